import bisimetric as bm

mdp = bm.problems.gridworld(copies=2)
bm.plot.metric(bm.solve_metric(mdp, match="labels"))
