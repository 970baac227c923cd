"""Labelled chains without discount (c_T = 1): the probabilistic bisimilarity distances of Desharnais et al.

d is 1 where respected labels differ, and else the least fixed point of

    F(d)(s, t) = min ⟨ω, d⟩ over couplings ω of P(s) and P(t),          F(d)(s, s) = 0.

d(s, t) is the least probability, over all ways to let two walks run side by side, that their labels ever differ. F is
monotone, and concave as a minimum of linear maps, but no contraction: there may be other fixed points, and sweeps may
come to rest far from d. What follows is Chen, van Breugel and Worrell (FoSSaCS 2012), Bacci et al. (TACAS 2013) and
Tang and van Breugel (CAV 2018), with a certificate that trusts no step of the way.

**Distance 0** is bisimilarity, which partition refinement finds. The work is on the quotient, where s ≠ t are not
bisimilar. Masses that differ by less than LUMP_TOL are taken as equal; where states were merged that are not bisimilar
as the numbers stand, a note says so, and what is certified is the chain in which they are.

**Distance 1** is a matter of the graph. A coupling may put mass on each pair of successors, so d(s, t) < 1 exactly
where a path through pairs with equal labels leads from (s, t) to the diagonal. For if there is none, every coupling
stays among pairs off the diagonal until labels differ, and they do with probability 1 (next paragraph); and if there is
one, the product coupling takes it with positive probability.

**The rest** are pairs that no coupling keeps for ever: if C were a set of pairs with equal labels, off the diagonal,
and each had a coupling that stays within C and the diagonal, then C and the diagonal would be (in a relation generated
by) a probabilistic bisimulation, and C empty. So with plans ω fixed for all these pairs, Ω, the part of ω among them,
has Ωᵏ → 0; the equations x = b + Ωx have one solution d_ω, those of the time until something is decided,
w = 1 + Ωw, have one too, and F with the other pairs held at 0 and 1 has one fixed point: if x and y are two and ω is
optimal for y, then x − y ≤ Ω(x − y) ≤ Ωᵏ(x − y) → 0, and the same the other way.

**The way** is policy iteration. A sweep finds the best plans for some x, the linear equations their d_ω and w, and the
next x is d_ω − r w, for a small r > 0, but at least 0: that is the policy iteration of Howard for F − r. It ends where
a sweep improves on the plans by less than r.

**The certificate.** Above: F(U) ≤ U and U ≥ 0 give d ≤ U (Knaster and Tarski: d is the least such, where U is 1 at
different labels). Below: L ≤ F(L), with L < F(L) wherever L > 0, save at distance 1. Then L ≤ 0 at pairs that are
bisimilar although the refinement told them apart: where L is largest over them, at c > 0 say, a coupling stays among
them and the diagonal, so L < F(L) ≤ c. With L = 0 there, the iterates of F from L increase to its one fixed point d.
Candidates are U = min(d_ω + r w, 1), for which F(U) ≤ F_ω(U) = U − r or U = 1, and L = max(d_ω − r w, 0), for which
F(L) ≥ L + r − (what a sweep improves on ω). Both are verified by a sweep whose errors are counted against it: its
transports, its rounding, and how far rows may be from summing to 1. That is all that r must exceed; so the error is
about r max w, and tolerances below some 1e-13 times the time that the walks may take are not reached. Where r fails,
for equations that could not be solved well enough, it is raised. Nothing else has to be true: without verified bounds
there are 0 and 1. Pairs at distance 1 are the one thing that rests on the refinement, which must not tell bisimilar
states apart.

Cost: some ten sweeps over pairs with equal labels; passes over the equations, some 12 (n + m) bytes a pair for
supports of n and m states; 5 S² bytes for the graph and the numbers of pairs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..backends.protocol import Distances, Sweep, Sweeper
from ..backends.select import distances_of, host
from ..backends.threads import single_thread
from ..kinds import Array, Floats
from ..model import Chain
from ..reduction import LUMP_TOL, Lumped, Reduction
from ..status import Status
from .driver import Progress, Watch

if TYPE_CHECKING:
    from scipy.sparse import csc_array

SOURCE = "inductive bounds without discount: F(U) ≤ U and L ≤ F(L), verified"

# Pairs up to which equations are solved by factors, always, or where passes take long: those of random chains fill.
_DIRECT, _FACTORS = 1000, 10_000
_PASSES, _FEW_PASSES = 2000, 100  # over the equations, for one solution
_MARGIN = 2.0  # r is this many times what a sweep may be off, or more
_CLOSER = 1e-2  # passes leave this share of what the last sweep changed
_NEAR = 1e-2  # changes from which on it matters how long walks take
_GIVE_UP = 12  # times that r may be raised
_DOUBLE = float(np.finfo(np.float64).eps)


class Equations(Protocol):
    """leaving·x = constants + Σ masses·x, one equation for each undecided pair, of the plans that a sweep chose."""

    @property
    def constants(self) -> Floats: ...
    @property
    def leaving(self) -> Floats: ...
    def relax(self, x: Floats, share: float, shift: float, backwards: bool) -> float:
        """One pass of Gauss and Seidel for share·constants + shift on the right; returns the largest defect."""
        ...

    def matrix(self) -> csc_array:
        """leaving on the diagonal, less the masses: a sparse array of SciPy."""
        ...


class UndecidedPairs(Protocol):
    """Pairs at distances between 0 and 1, numbered: M numbers in place of S²."""

    count: int
    number: NDArray[np.int32]

    def spread(self, values: Floats, out: Array) -> None:
        """Fill distances [S, S]: those of these pairs, and 1 or 0 elsewhere."""
        ...

    def rises(self, matrix: Array, values: Floats) -> tuple[float, float]:
        """(Least rise where values are above 0, largest where they are below 1) from the values to a matrix."""
        ...

    def equations(self, sweeper: Sweeper, room: Any = None) -> Equations:
        """Those of the plans that the last sweep chose; where `room` is given, in its place."""
        ...


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Verified bounds on the undecided pairs; the others are known."""

    pairs: UndecidedPairs
    lower: Floats
    upper: Floats

    def matrices(self) -> tuple[Floats, Floats]:
        """(lower, upper) [S, S]."""
        lower, upper = np.empty(self.pairs.number.shape), np.empty(self.pairs.number.shape)
        self.pairs.spread(self.lower, lower)
        self.pairs.spread(self.upper, upper)
        return lower, upper


class _Policy:
    """What is known of the plans that a sweep chose: d_ω, and how long walks go on, w."""

    def __init__(self, count: int) -> None:
        self.d, self.w = np.ones(count), np.ones(count)

    @property
    def longest(self) -> float:
        return float(self.w.max())

    def solve(self, equations: Equations, goal: Callable[[float], float], *, timed: bool) -> None:
        """Take other plans; d is to solve its equations up to what `goal` gives for the longest time.

        Where it is not `timed`, w may stay as it was.
        """
        few = len(self.d) <= _FACTORS
        if len(self.d) <= _DIRECT:
            _solve_by_factors(equations, self.d, self.w)
        settled = not timed or _solve_by_passes(equations, self.w, 0.0, 1.0, 0.2, few)
        settled = _solve_by_passes(equations, self.d, 1.0, 0.0, goal(self.longest), few) and settled
        if few and not settled:
            _solve_by_factors(equations, self.d, self.w)


class Undiscounted:
    """A solve under way.

    Attributes: pairs (that are undecided), d, lower, upper (bounds) of these pairs; error; sweeps, iterations, seconds.
    """

    def __init__(self, sweeper: Sweeper, tol: float, widest: int) -> None:
        """`widest`: successors of a state of the model, before it was reduced."""
        c, self._began = sweeper.comparison, time.perf_counter()
        self.sweeper, self.tol = sweeper, tol
        self.pairs: UndecidedPairs = host().undecided_pairs(c.rows, c.apart)
        count = self.pairs.count
        self.d, self.upper, self.lower = np.ones(count), np.ones(count), np.zeros(count)
        self.error = 1.0 if count else 0.0
        self.sweeps, self.iterations = 0, 0
        self._policy = _Policy(count)
        self._equations: Equations | None = None
        self._table = np.empty(c.shape if count else (0, 0), sweeper.backend.dtype)  # what sweeps work on
        self._mass = 4.0 * widest * _DOUBLE  # by which two rows may differ from what their numbers stand for
        self._factor = _MARGIN

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def distances(self) -> Distances:
        """d, for all pairs."""
        table = np.empty(self.pairs.number.shape, self.sweeper.backend.dtype)
        self.pairs.spread(self.d, table)
        d = distances_of(table)
        d.freeze()
        return d

    def enclosure(self) -> Enclosure:
        return Enclosure(self.pairs, self.lower, self.upper)

    def run(self, max_sweeps: int, watch: Watch, on_checkpoint: Callable[[Undiscounted], None] | None) -> Status:
        """Go on until the error is small enough, or something else ends it; says what."""
        self._most, self._watch, self._on_checkpoint = max_sweeps, watch, on_checkpoint
        self._saved = time.perf_counter()
        try:
            status = self._run()
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        self.sweeper.solver.finish()
        return status

    def _run(self) -> Status:
        if self.pairs.count == 0:
            return Status.CONVERGED
        for find in (self._find_lower, self._find_upper):
            if not find():
                return Status.SWEEP_LIMIT if self.sweeps >= self._most else Status.ROUNDING
        return Status.CONVERGED if self.error <= self.tol else Status.ROUNDING

    def _find_lower(self) -> bool:
        """Policy iteration, until what it has reached is a lower bound."""
        x, least, stuck, raised = self.d, np.inf, 0, 0
        while self.sweeps < self._most and raised <= _GIVE_UP:
            rise, _, off = self._sweep(x)
            if self.sweeps > 1 and rise > off:
                self._take(lower=x)
                self._tell(0.0)
                return True
            fall = max(-rise, off)
            self._tell(fall)
            stuck = stuck + 1 if fall >= 0.5 * least else 0
            least = min(least, fall)
            if stuck >= 3:
                self._factor, stuck, raised = 4.0 * self._factor, 0, raised + 1
            self._improve(fall, off)
            x = self._cast(np.maximum(self._policy.d - self._step(off) * self._policy.w, 0.0))
        return False

    def _find_upper(self) -> bool:
        """Raise d by r w until that is an upper bound."""
        for _ in range(_GIVE_UP):
            if self.sweeps >= self._most:
                return False
            x = self._cast(np.minimum(self._policy.d + self._step(self._off) * self._policy.w, 1.0))
            _, rise, off = self._sweep(x)
            if rise <= -off:
                self._take(upper=x)
                self._tell(0.0)
                return True
            self._tell(max(rise, 0.0))
            self._factor *= 4.0
        return False

    def _sweep(self, x: Floats) -> tuple[float, float, float]:
        """(Least rise from x > 0 to F(x), largest from x < 1, by how much F(x) may be off)."""
        self.pairs.spread(x, self._table)
        report: Sweep = self.sweeper.sweep(distances_of(self._table))
        self.sweeps, self.iterations = self.sweeps + 1, self.iterations + report.iterations
        self._off = report.transport_error + report.rounding + self._mass
        return *self.pairs.rises(self._table, x), self._off

    def _improve(self, fall: float, off: float) -> None:
        """Solve for the plans of the last sweep, and take their distances."""
        self._equations = self.pairs.equations(self.sweeper, self._equations)

        def goal(longest: float) -> float:
            r = self._step(off, longest)
            return max(0.1 * r, _CLOSER * fall if fall > 1e3 * r else 0.0)

        self._policy.solve(self._equations, goal, timed=fall <= _NEAR)
        self._take(d=self._cast(np.clip(self._policy.d, 0.0, 1.0)))

    def _step(self, off: float, longest: float | None = None) -> float:
        """r: a share of the tolerance, and more than what a sweep may be off."""
        longest = self._policy.longest if longest is None else longest
        return max(self._factor * off, 0.25 * self.tol / longest)

    def _take(self, *, d: Floats | None = None, lower: Floats | None = None, upper: Floats | None = None) -> None:
        """Take distances, or bounds that were verified, and work out the error."""
        self.error = 1.0  # until all is taken, should Ctrl-C come between
        self.d = self.d if d is None else d
        self.lower = self.lower if lower is None else lower
        self.upper = self.upper if upper is None else upper
        error = max(float((self.upper - self.d).max()), float((self.d - self.lower).max()), 0.0)
        self.error = min(math.nextafter(error * (1.0 + 4.0 * _DOUBLE), 1.0), 1.0)

    def _cast(self, x: Floats) -> Floats:
        """As the engine stores it."""
        return x.astype(self.sweeper.backend.dtype, copy=False).astype(np.float64, copy=False)

    def _tell(self, change: float) -> None:
        if self._watch.on_progress is not None:
            self._watch.on_progress(Progress(self.sweeps, self.error, self.tol, change, self.seconds))
        if self._on_checkpoint is not None and time.perf_counter() - self._saved >= self._watch.checkpoint_every:
            self._on_checkpoint(self)
            self._saved = time.perf_counter()


def _solve_by_passes(equations: Equations, x: Floats, share: float, shift: float, goal: float, few: bool) -> bool:
    """Gauss and Seidel, there and back again, until no equation is off by more than `goal`; returns whether that is so.

    Where there are `few` pairs there is another way, so this one ends early.
    """
    return any(equations.relax(x, share, shift, bool(k % 2)) <= goal for k in range(_FEW_PASSES if few else _PASSES))


def _solve_by_factors(equations: Equations, d: Floats, w: Floats) -> None:
    """Both solutions by sparse factors; what cannot be solved stays as it is."""
    from scipy.sparse.linalg import splu

    if not (equations.leaving > 0.0).all():
        return
    with single_thread():
        try:
            factors = splu(equations.matrix())
        except RuntimeError:  # singular
            return
        for x, right in ((d, equations.constants), (w, np.ones(len(w)))):
            found = factors.solve(right)
            if np.isfinite(found).all() and found.min() >= 0.0:
                x[:] = found


def without_rewards(chain: Chain) -> Chain:
    """The chain with all rewards 0."""
    return replace(chain, rewards=np.zeros(chain.n_states), reward_range=(0.0, 0.0), reward_name=None)


def certainty_notes(chain: Chain, reduction: Reduction[Chain]) -> tuple[str, ...]:
    """What was taken as equal although the numbers differ."""
    if not isinstance(reduction, Lumped):
        return ()
    states = _inexact_states(chain, reduction)
    if not states:
        return ()
    return (
        f"{states} states were merged with others whose probabilities differ from theirs by less than {LUMP_TOL:g}; "
        "the error is that of the chain in which these are equal",
    )


def _inexact_states(chain: Chain, reduction: Lumped[Chain]) -> int:
    """How many states are not bisimilar, number by number, to the one that stands for them.

    A sum that is rounded once (`math.fsum`) is 0 only where it is 0.
    """
    rows, class_of, medoids = chain.rows, reduction.lumping.class_of, reduction.lumping.medoids
    count = 0
    for s in np.flatnonzero(medoids[class_of] != np.arange(chain.n_states)):
        terms: dict[int, list[float]] = {}
        for state, sign in ((int(s), 1.0), (int(medoids[class_of[s]]), -1.0)):
            part = slice(rows.indptr[state], rows.indptr[state + 1])
            for successor, p in zip(rows.indices[part].tolist(), rows.probs[part].tolist(), strict=True):
                terms.setdefault(int(class_of[successor]), []).append(sign * p)
        count += any(math.fsum(of_class) != 0.0 for of_class in terms.values())
    return count
