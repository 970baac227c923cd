"""Known MDPs, data from them that are as adverse as they can be, and whether what is said of them is true.

Each row has a stack of successors. The number of visits is chosen by looking at the stack *and at the truth*: where the
estimate is farthest off, in standard deviations. No honest experiment is as bad, and bounds that hold for all numbers
of visits at once must hold for this one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

import bisimetric as bm
from bisimetric.estimate import confidence

DELTA = 0.05


def rare_events() -> bm.MDP:
    """Work pays, and breaks down once in 500 steps; repairs cost, and seldom succeed. The other action is idle."""
    P = np.zeros((4, 2, 4))
    P[0, 0] = [0.998, 0.0, 0.0, 0.002]
    P[0, 1] = [0.5, 0.5, 0.0, 0.0]
    P[1, 0] = [0.9, 0.1, 0.0, 0.0]
    P[1, 1] = [0.0, 0.99, 0.01, 0.0]
    P[2, 0] = [0.0, 0.0, 1.0, 0.0]
    P[2, 1] = [0.3, 0.0, 0.7, 0.0]
    P[3, 0] = [0.05, 0.0, 0.0, 0.95]
    P[3, 1] = [0.0, 0.0, 0.01, 0.99]
    R = np.array([[1.0, 0.2], [0.5, 0.2], [0.8, 0.2], [0.0, 0.0]])
    return bm.MDP.from_arrays(P, R, 0.9, axes="sas")


def frozen_lake() -> bm.MDP:
    """The 4 × 4 lake of Gymnasium from its own rules, so that no environment is needed; holes and goal end it."""
    lake, moves = "SFFFFHFHFFFHHFFG", ((0, -1), (1, 0), (0, 1), (-1, 0))
    P, R = np.zeros((17, 4, 17)), np.zeros((17, 4))
    for s in range(17):
        for a in range(4):
            if s == 16 or lake[s] in "HG":
                P[s, a, 16 if s == 16 else s] = 1.0
                continue
            for k in (a - 1, a, a + 1):
                step = moves[k % 4]
                row, column = min(max(s // 4 + step[0], 0), 3), min(max(s % 4 + step[1], 0), 3)
                t = 4 * row + column
                P[s, a, 16 if lake[t] in "HG" else t] += 1.0 / 3.0
                R[s, a] += (lake[t] == "G") / 3.0
    kept = [s for s in range(17) if s == 16 or lake[s] not in "HG"]  # holes are the end
    return bm.MDP.from_arrays(P[np.ix_(kept, range(4), kept)], R[kept], 0.9, axes="sas")


NOISY = ("garnet", "rare events")  # whose rewards are drawn
PROBLEMS: dict[str, Callable[[], bm.MDP]] = {
    "chain": lambda: bm.problems.chain(n_states=9, n_classes=3),
    "garnet": lambda: bm.problems.garnet(n_states=8, n_actions=2, branching=3, seed=5),
    "gridworld": lambda: bm.problems.gridworld(width=3, height=3, gamma=0.9),
    "frozen lake": frozen_lake,
    "detours": lambda: bm.problems.detours(n_states=9, n_classes=3, n_actions=2),
    "rare events": rare_events,
}


@dataclass(frozen=True)
class Truth:
    """A known MDP and all that bounds are compared with."""

    mdp: bm.MDP
    rows: np.ndarray  # [N, S]
    metric: np.ndarray  # match="labels"
    policy_metric: np.ndarray  # of the uniform policy
    best: np.ndarray  # V*
    noisy: bool  # whether rewards are 0 or 1, by chance, and their means are the model's

    @classmethod
    def of(cls, mdp: bm.MDP, noisy: bool = False) -> Truth:
        chain = mdp.under(mdp.uniform_policy())
        return cls(
            mdp,
            mdp.rows.matrix().toarray(),
            bm.solve_metric(mdp, match="labels", tol=1e-9).distance,
            bm.solve_metric(chain, tol=1e-9).distance,
            bm.optimal_values(mdp).value,
            noisy,
        )

    @property
    def n_actions(self) -> int:
        return self.mdp.n_choices // self.mdp.n_states


def worst_visits(truth: Truth, stacks: np.ndarray, rng: np.random.Generator, fewest: int = 8) -> np.ndarray:
    """How many of each stack to take [N], so that the estimate of a random set of successors is farthest off."""
    sets = rng.random(truth.rows.shape) < 0.5
    p = (truth.rows * sets).sum(axis=1)
    hits = np.cumsum(np.take_along_axis(sets, stacks, axis=1), axis=1)
    n = np.arange(1, stacks.shape[1] + 1)
    off = np.abs(hits - n * p[:, None]) / np.sqrt(n * np.maximum(p * (1.0 - p), 1e-9)[:, None])
    return fewest + off[:, fewest - 1 :].argmax(axis=1)


def replicated_counts(truth: Truth, most: int, rng: np.random.Generator, *, fixed: bool = False) -> bm.Counts:
    """Counts of stacks of `most` successors, each cut where it is worst, or whole (a fixed design)."""
    N, S = truth.rows.shape
    ladder = np.cumsum(truth.rows, axis=1)
    draws = rng.random((N, most))
    stacks = np.stack([np.searchsorted(ladder[k] / ladder[k, -1], draws[k], side="right") for k in range(N)])
    stacks = np.minimum(stacks, S - 1)
    visits = np.full(N, most) if fixed else worst_visits(truth, stacks, rng)
    row = np.repeat(np.arange(N), visits)
    target = np.concatenate([stacks[k, : visits[k]] for k in range(N)])
    s, a = np.divmod(row, truth.n_actions)
    r = (rng.random(len(row)) < truth.mdp.rewards[row]).astype(float) if truth.noisy else truth.mdp.rewards[row]
    design = "fixed" if fixed else "adaptive"
    return bm.Counts.from_transitions(s, a, r, target, n_states=S, n_actions=truth.n_actions, design=design)


def assumptions(truth: Truth) -> dict[str, object]:
    return {"exact_rewards": not truth.noisy, "reward_range": (0.0, 1.0)}


def covered(truth: Truth, counts: bm.Counts, delta: float = DELTA, *, brackets: bool = True) -> dict[str, bool]:
    """Whether sets, policy bounds and brackets (of the MDP, of the uniform policy) hold."""
    given, gamma, slack = assumptions(truth), truth.mdp.gamma, 1e-7
    said = {"sets": counts.confidence(delta, **given).contains(truth.rows, truth.mdp.rewards)}
    model = counts.model(gamma, unseen="sink")
    chosen = bm.greedy(model, bm.optimal_values(model)).reshape(-1, truth.n_actions)[: truth.mdp.n_states]
    data = counts.certify(chosen, delta, gamma=gamma, **given)
    value = bm.evaluate(truth.mdp, chosen.reshape(-1)).value
    inside = (data.lower <= value + slack).all() and (value <= data.upper + slack).all()
    inside = inside and (data.best_lower <= truth.best + slack).all() and (truth.best <= data.best_upper + slack).all()
    said["policy"] = bool(inside and (truth.best - value <= data.loss + slack).all())
    if not brackets:
        return said
    for name, policy, d in (("metric", None, truth.metric), ("policy metric", "uniform", truth.policy_metric)):
        lower, upper = counts.bracket(delta, gamma=gamma, policy=policy, tol=0.02, **given)
        said[name] = bool((lower <= d + slack).all() and (d <= upper + slack).all())
    return said


@contextmanager
def halved_radii():
    """Broken confidence sets: all radii are half of what they should be."""
    honest = confidence.sets_of

    def broken(*arguments):
        sets = honest(*arguments)
        seen = sets.observed
        spread, unseen = (np.where(seen, 0.5 * x, x) for x in (sets.spread, sets.unseen))
        return replace(sets, spread=spread, unseen=unseen)

    confidence.sets_of = broken
    try:
        yield
    finally:
        confidence.sets_of = honest
