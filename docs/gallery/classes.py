import bisimetric as bm

mdp = bm.problems.chain(n_states=100, n_classes=10, mixing=0.05)
bm.plot.classes(bm.solve_metric(mdp.under(mdp.uniform_policy())))
