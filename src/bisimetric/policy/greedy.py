"""Greedy policies for a run: how ties are broken, and noise of a wanted size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kinds import Bools, Floats, Ints
from ..model import MDP
from ..values import choice_values, first_choices
from .settings import PolicySettings

_NOISE_TRIES = 400
_NOISE_STEP = 1.25
_TIE = 1e-10  # values closer than this part of the largest one are tied


class Greedy(NamedTuple):
    """A greedy policy [N], noisy where asked, its δ = ‖T_{π_g} V − T V‖∞, and the size σ of noise that gave it."""

    policy: Floats
    delta: float
    noise: float


def improve(mdp: MDP, V: Floats, settings: PolicySettings, rng: np.random.Generator, *, noise: float, k: int) -> Greedy:
    """The greedy policy for V in step k. Noise begins at the size that the last step ended with."""
    starts = mdp.choice_ptr[:-1]
    Q = choice_values(mdp, V)
    TV = np.maximum.reduceat(Q, starts)
    greedy = np.zeros(mdp.n_choices)
    # Where actions lead into one class their values differ by rounding only: such ties are broken as is asked for.
    tied = TV - _TIE * float(np.abs(TV).max())
    best = _chosen(mdp, tied[mdp.state_of_choice] <= Q, rng if settings.ties == "random" else None)
    greedy[best] = 1.0
    if settings.greedy_noise is None:
        return Greedy(greedy, float(np.max(TV - Q[best])), noise)
    low, high = settings.greedy_noise
    seen = []
    for _ in range(_NOISE_TRIES):
        noisy = greedy + np.abs(rng.normal(0.0, noise, mdp.n_choices))
        noisy /= np.add.reduceat(noisy, starts)[mdp.state_of_choice]
        delta = float(np.max(TV - np.add.reduceat(noisy * Q, starts)))
        if low <= delta <= high:
            return Greedy(noisy, delta, noise)
        seen.append(delta)
        noise *= _NOISE_STEP if delta < low else 1.0 / _NOISE_STEP
    raise ValueError(
        f"greedy_noise: no noise of {_NOISE_TRIES} tries at step {k} gave δ in [{low:g}, {high:g}]; δ between "
        f"{min(seen):.3g} and {max(seen):.3g} were seen. Choose a band inside what the values allow."
    )


def _chosen(mdp: MDP, good: Bools, rng: np.random.Generator | None) -> Ints:
    """One good choice of each state [S]: the first, or one at random."""
    if rng is None:
        return first_choices(mdp, good)
    lots = np.where(good, rng.random(mdp.n_choices), -1.0)
    return first_choices(mdp, np.maximum.reduceat(lots, mdp.choice_ptr[:-1])[mdp.state_of_choice] <= lots)
