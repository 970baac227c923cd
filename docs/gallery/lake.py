import matplotlib.pyplot as plt

import bisimetric as bm

lake = bm.from_gymnasium("FrozenLake-v1", gamma=0.95, map_name="8x8")
solution = bm.solve_metric(lake, match="labels")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
bm.plot.board(lake, bm.optimal_values(lake).value, axes=left).set_title("best value")
bm.plot.board(lake, solution.distance[0], axes=right).set_title("distance from the start")
