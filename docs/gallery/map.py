import bisimetric as bm

mdp = bm.problems.gridworld(copies=2)
solution = bm.solve_metric(mdp, match="labels")
bm.plot.map(solution, colour=bm.optimal_values(mdp).value)
