import bisimetric as bm

mdp = bm.problems.chain(n_states=60, n_classes=12)
run = bm.solve_policy(mdp, transport=bm.Exact(), step_size=bm.PowerDecay(0.8, floor=2**-6), steps=60)
bm.plot.curves(run, ["bound", "error"])
