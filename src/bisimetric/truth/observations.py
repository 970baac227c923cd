"""A finite model seen through distractors, noise and a random projection; all distances of observations are known.

An observation of a state s is M [code(s); κ u_j; σ ε]: a random code of the state, a large distractor u_j out of a
bank, and noise, all mixed by a random orthogonal matrix M. Distractors are drawn anew with every step, whatever the
state and the action are. So rewards and the next states depend on s alone, and d_π of two observations is d_π of their
states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..kinds import Array, Floats, Ints
from ..model import MDP

CODE, DISTRACTOR, NOISE = 16, 16, 4  # dimensions
LOUDNESS = 2.0  # κ: how much longer distractors are than codes
SIGMA = 0.5


@dataclass(frozen=True)
class Distracted:
    """A model's observations; distractors 0 to n_train − 1 are for training, the rest for testing."""

    mdp: MDP
    seed: int
    n_train: int = 8
    n_test: int = 8

    @property
    def train(self) -> Ints:
        return np.arange(self.n_train)

    @property
    def test(self) -> Ints:
        return self.n_train + np.arange(self.n_test)

    @property
    def n_inputs(self) -> int:
        return CODE + DISTRACTOR + NOISE

    @cached_property
    def _parts(self) -> tuple[Floats, Floats, Floats]:
        """(codes [S, 16], distractors [n_train + n_test, 16], M)."""
        rng = np.random.default_rng([self.seed, 11])
        codes = rng.standard_normal((self.mdp.n_states, CODE))
        bank = rng.standard_normal((self.n_train + self.n_test, DISTRACTOR))
        mixing = np.linalg.qr(rng.standard_normal((self.n_inputs, self.n_inputs)))[0]
        codes /= np.linalg.norm(codes, axis=1, keepdims=True)
        bank *= LOUDNESS / np.linalg.norm(bank, axis=1, keepdims=True)
        return codes, bank, mixing

    def observe(self, state: Ints, distractor: Ints, rng: np.random.Generator) -> Array:
        """Observations [N, n_inputs] in float32, each with noise of its own."""
        codes, bank, mixing = self._parts
        noise = SIGMA * rng.standard_normal((len(state), NOISE))
        seen = np.concatenate([codes[state], bank[distractor], noise], axis=1)
        return np.asarray(seen @ mixing.T, np.float32)
