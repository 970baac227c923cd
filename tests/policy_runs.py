"""Runs of policy iteration: a chain to run on, noisy settings, and whether two runs are the same."""

from __future__ import annotations

import dataclasses

import bisimetric as bm

NOISY = {"greedy_noise": (0.05, 0.1), "step_size": bm.PowerDecay(0.8, 2**-4)}
TIMES = {"seconds": 0.0, "metric_seconds": 0.0}


def chain(**arguments) -> bm.MDP:
    return bm.problems.chain(**{"n_states": 20, "n_classes": 5, **arguments})


def without_times(run: bm.PolicyRun) -> list[bm.Step]:
    return [dataclasses.replace(step, **TIMES) for step in run.history]


def same(one: bm.PolicyRun, two: bm.PolicyRun) -> None:
    """Equal bytes, times aside."""
    for array in ("policy", "value", "distance", "abstract_value"):
        assert getattr(one, array).tobytes() == getattr(two, array).tobytes(), array
    assert one.partition == two.partition
    assert without_times(one) == without_times(two)
    assert (one.status, one.certificate, one.theorems) == (two.status, two.certificate, two.theorems)


def mirrored(mdp: bm.MDP) -> bm.MDP:
    """The same model with its two actions in the other order.

    A metric that cannot tell states apart leaves ties, and a tie that goes to the first action is right by luck on the
    chain, whose first action is the best. Mirrored, it is wrong, so that what is seen is due to the metric.
    """
    P = mdp.rows.matrix().toarray().reshape(mdp.n_states, 2, -1)[:, ::-1]
    return bm.MDP.from_arrays(P, mdp.rewards.reshape(-1, 2)[:, ::-1], mdp.gamma, axes="sas", classes=mdp.classes)
