"""A user's file: mypy (strict) and pyright read it against the installed package."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import bisimetric as bm

mdp = bm.MDP.from_arrays(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], gamma=0.9, axes="sas")
chain = mdp.under(mdp.uniform_policy())
solution = bm.solve_metric(chain, bm.Exact(), tol=1e-6)
assert_type(solution, bm.MetricSolution)
assert_type(solution.error, float)
lower, upper = solution.bracket()
largest: float = float(upper.max())
why = solution.explain(0, 1, depth=2)
assert_type(why, bm.Explanation)
assert_type(why.text(), str)
part = bm.EpsilonCover(0.1)(solution.distance)
assert_type(part, bm.Partition)
class_of: NDArray[np.int64] = part.class_of
run = bm.solve_policy(mdp, steps=2)
assert_type(run.certificate, bm.Certificate)
lumping = bm.lump(mdp, "hausdorff")
assert_type(lumping, bm.Lumping)
between = bm.compare(mdp, mdp, match="labels")
assert_type(between, bm.CrossMetric)
page = bm.view(solution, "page.html")
with bm.Bar() as bar:
    bm.solve_metric(mdp, match="labels", on_progress=bar)
print(largest, why, class_of, run, page, between)
