"""Distances between two models on a device, against those of the CPU."""

from __future__ import annotations

import numpy as np

import bisimetric as bm

TRANSPORTS = (
    bm.Exact(),
    bm.Exact(2.0),
    bm.Sinkhorn(0.5),
    bm.Sinkhorn(0.1, cost="value"),
    bm.Sinkhorn(0.5, cost="value", p=2.0),
    bm.Independent(),
    bm.KLBall(0.2),
)


def two_models(scale=1):
    """Sides of different sizes, either of them the larger one; supports of 2 to 40 states; choices of both kinds."""

    def chain(n, branching, seed, actions=1):
        mdp = bm.problems.garnet(n_states=n * scale, n_actions=actions, branching=branching, seed=seed)
        return mdp.under(mdp.uniform_policy())

    mdps = [bm.problems.garnet(n_states=n * scale, n_actions=3, branching=3, seed=n) for n in (31, 17)]
    return {
        "2": (chain(61, 2, 1), chain(9, 2, 2), None),
        "4": (chain(67, 4, 1), chain(33, 3, 2), None),
        "8": (chain(13, 8, 1), chain(41, 7, 2), None),
        "12": (chain(29, 12, 1), chain(14, 9, 2), None),
        "20": (chain(24, 20, 1), chain(31, 3, 2), None),
        "32": (chain(33, 30, 1), chain(35, 2, 2), None),
        "40": (chain(45, 40, 1), chain(43, 5, 2), None),
        "labels": (*mdps, "labels"),
        "hausdorff": (*mdps, "hausdorff"),
    }


def check(kind, transport, dtype, device, scale=1):
    """Errors hold on both sides: distances and brackets agree with those of the CPU in double precision."""
    model, other, match = two_models(scale)[kind]
    tol = 1e-6 if dtype == "float64" else 1e-3
    ours = bm.compare(model, other, transport, match=match, tol=tol, dtype=dtype, device=device)
    theirs = bm.compare(model, other, transport, match=match, tol=1e-7)
    assert ours.distance.shape == (model.n_states, other.n_states)
    assert ours.distance.dtype == dtype
    assert ours.converged
    apart = float(np.abs(ours.distance - theirs.distance).max())
    if transport.axioms.nonexpansive:
        assert apart <= ours.error + theirs.error
    else:
        assert apart <= 5.0 * tol
    lower, upper = ours.bracket()
    lowest, highest = theirs.bracket()
    assert (lower <= highest + 1e-12).all()
    assert (lowest <= upper + 1e-12).all()
