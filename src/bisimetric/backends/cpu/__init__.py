"""The engine of the host's cores: Numba kernels that release the interpreter lock, on threads."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import numpy as np

from ...kinds import Array, Floats, Ints, Precision
from ...model import MDP, Chain, Distributions
from ...transport import Exact, Independent, KLBall, Sinkhorn, Transport
from ..comparison import Comparison
from ..protocol import Distances, known
from . import kernels
from .ball import BallSolver
from .distances import HostDistances
from .exact import ExactSolver
from .independent import IndependentSolver
from .kernels.arguments import ChainOfRewards, Choices, Classes, Into, Rows
from .local_pairs import PairTable
from .sinkhorn import SinkhornSolver
from .solver import CpuSolver, PairTally
from .sweeper import CpuSweeper
from .undecided import UndecidedPairs

SOLVERS: dict[type[Transport], type[CpuSolver]] = {
    Exact: ExactSolver,
    Sinkhorn: SinkhornSolver,
    KLBall: BallSolver,
    Independent: IndependentSolver,
}


class CpuBackend:
    """The host in one precision."""

    device: ClassVar[str] = "cpu"
    on_host: ClassVar[bool] = True

    def __init__(self, dtype: Precision) -> None:
        self.dtype = dtype

    def zeros(self, shape: tuple[int, int]) -> HostDistances:
        return HostDistances(np.zeros(shape, self.dtype))

    def distances(self, given: Array | Distances) -> HostDistances:
        return HostDistances(np.array(given if isinstance(given, np.ndarray) else given.to_host(), self.dtype))

    def solver(self, rows: Distributions, groups: tuple[Ints, ...], transport: Transport, remember: bool) -> CpuSolver:
        return known(SOLVERS, transport)(self.dtype, rows, groups, transport, remember)

    def bytes_to_remember(self, rows: Distributions, groups: tuple[Ints, ...], transport: Transport) -> int:
        """Bytes that a solver would remember between sweeps, before anything is allocated."""
        return known(SOLVERS, transport).bytes_to_remember(rows, groups, transport)

    def can_spare(self, rows: Distributions, transport: Transport) -> bool:
        """Whether `Sweeper.spare_memory` can be."""
        return known(SOLVERS, transport).can_halve(rows)

    def sweeper(self, comparison: Comparison, transport: Transport, remember: bool) -> CpuSweeper:
        return CpuSweeper(self, comparison, transport, remember)

    def averaged_values(
        self, chain: Chain, class_of: Ints, shares: Floats, start: Floats, limit: float
    ) -> tuple[Floats, float]:
        V, change = kernels.averaged_values(_rewards_of(chain), Classes(class_of, shares), start, limit)
        return V, float(change)

    def refine(self, mdp: MDP, states: Ints, choices: Ints, tol: float) -> tuple[Ints, Ints]:
        """The coarsest bisimulation that refines given blocks of states and of choices, as blocks of both."""
        rows = mdp.rows
        order = np.argsort(rows.indices, kind="stable")
        into = np.repeat(np.arange(mdp.n_choices), rows.sizes)[order]
        into_ptr = np.concatenate([[0], np.cumsum(np.bincount(rows.indices, minlength=mdp.n_states))])
        found_states, found_choices, _ = kernels.refine(
            Rows(rows.indptr, rows.indices, rows.probs),
            Choices(mdp.choice_ptr, mdp.state_of_choice),
            Into(into_ptr, into),
            states,
            choices,
            tol,
        )
        return found_states, found_choices

    def undecided_pairs(self, rows: Distributions, apart: Ints) -> UndecidedPairs:
        """The pairs of a chain that can meet before their numbers `apart` differ."""
        return UndecidedPairs(rows, apart)

    def pair_table(self, comparison: Comparison, order: Ints) -> PairTable:
        """An empty table of pairs with bounds; `order` lists the rows of each state in the same order of labels."""
        return PairTable(comparison, order)

    def gather(self, source: Array, rows: Ints, columns: Ints, out: Array, *, turned: bool = False) -> None:
        """out = source[rows][:, columns], or the mirror image of that."""
        take = kernels.gather_turned if turned else kernels.gather
        take(np.asarray(source), rows, columns, out)

    def all_finite(self, d: Array) -> bool:
        return bool(kernels.all_finite(d))

    def averaged_system(self, chain: Chain, class_of: Ints, shares: Floats, A: Floats, R: Floats) -> None:
        """A = I − γ P, and R, of the chain averaged over classes."""
        kernels.averaged_system(_rewards_of(chain), Classes(class_of, shares), A, R)

    def tally(self) -> PairTally:
        """A place for what solvers report."""
        return PairTally()

    def describe(self) -> str:
        return f"{platform.machine()} with {os.cpu_count()} cores"

    def stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def guard(self, squares: int, shape: tuple[int, int]) -> AbstractContextManager[object]:
        del squares, shape
        return nullcontext()


def _rewards_of(chain: Chain) -> ChainOfRewards:
    rows = chain.rows
    return ChainOfRewards(Rows(rows.indptr, rows.indices, rows.probs), chain.rewards, chain.gamma)
