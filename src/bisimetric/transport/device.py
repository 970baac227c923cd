"""Transports at work on a CUDA device: the evaluators of `exact`, `sinkhorn` and `independent` on its arrays.

`enqueue` starts the work of a block; what it reports gathers in a tally on the device. What is kept between sweeps is
one row per pair, in the order of the pairs, so pairs whose rows did not change can be carried over in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels.select import DeviceError, Engine
from . import accuracy
from .base import Array, Evaluator, Family, Report, same_supports

if TYPE_CHECKING:
    from .independent import Independent
    from .sinkhorn import KLBall, Sinkhorn

_KEPT_SHARE = 0.8  # of the memory beyond the arrays of all pairs of states, for what is kept between sweeps


class DeviceEvaluator(Evaluator):
    """What evaluators on the device share."""

    synchronous = False  # whether `enqueue` waits for the device
    squares = 2  # arrays of all pairs of states that a sweep needs
    cold = 0  # byte that marks a pair without anything kept
    kept_dtype: Any = None

    def __init__(self, engine: Engine, family: Family, p: float, keep: bool, first: int) -> None:
        self.needs = self._plan(engine, family)
        with engine.kernels.memory_errors(self.needs):
            super().__init__(engine, family, p)
        self.first, self.keep = first, keep
        self.synchronous = p != 1.0  # the unit of a sweep is known to the host
        self.tally = engine.kernels.Tally()
        self.rows = self._rows(family)
        self.kept: list[Any] = []  # of each group, for the pairs of its first rows
        self.kept_rows: list[int] = []  # how many rows these are
        self._make_kept()

    def _plan(self, engine: Engine, family: Family) -> str:
        """What must fit, in words; raises where it cannot."""
        square = family.n_states**2 * engine.dtype.itemsize
        wanted = self.squares * square
        free = engine.kernels.free_bytes()
        needs = (
            f"{family.n_states} states in {engine.dtype} need {1e-9 * wanted:.3g} GB: {self.squares} arrays of "
            f"{1e-9 * square:.3g} GB (distances, ground cost{', kernel' if self.squares > 2 else ''})."
        )
        if wanted > free:
            raise DeviceError(
                f"{needs} {1e-9 * free:.3g} GB of device memory are free. Use float32, fewer states, or the CPU."
            )
        self.spare = free - wanted
        return needs

    def _rows(self, family: Family) -> Any:
        return self.engine.kernels.Rows(
            family.indptr, family.indices, family.probs, family.groups, family.n_states, self.engine.dtype
        )

    def _kept_entries(self, group: int) -> int:
        """Entries kept for a pair of the group."""
        del group
        return 0

    def _make_kept(self) -> None:
        """Room for what is kept: of all pairs, or of those of the first rows, as memory allows."""
        xp, dtype = self.engine.xp, np.dtype(self.kept_dtype or self.engine.dtype)
        room = int(_KEPT_SHARE * self.spare) if self.keep else 0
        for group, members in enumerate(self.family.groups):
            n, width = len(members), self._kept_entries(group)
            pairs = np.concatenate([[0], np.cumsum(n - self.first - np.arange(n))])  # of the first rows
            rows = int(np.searchsorted(pairs, room // (width * dtype.itemsize), side="right")) - 1 if width else 0
            if pairs[rows] == 0:
                rows = 0
            kept = xp.empty((int(pairs[rows]), width if rows else 1), dtype)
            kept.view(np.uint8).fill(self.cold)
            self.kept.append(kept)
            self.kept_rows.append(rows)
            room -= kept.nbytes

    def _kept_up_to(self, group: int, a1: int) -> Any:
        """What is kept of the pairs of rows before a1; nothing where there was no room for all of them."""
        return self.kept[group] if a1 <= self.kept_rows[group] else self.kept[group][:0]

    @property
    def kept_bytes(self) -> int:
        return sum(array.nbytes for array in self.kept)

    @property
    def rows_at_once(self) -> int:
        """Rows that a block should have at most."""
        return 1 << 20

    def rounding(self, top: float) -> float:
        """What rounding may add to an entry beyond what the kernels report, for costs up to `top`."""
        del top
        return 0.0

    def prepare(self, d: Array, wanted: float) -> None:
        self.unit = self.engine.kernels.unit_of(d, self.p)
        self.accuracy = wanted / self.unit
        self._costs(d)

    def _costs(self, d: Array) -> None:
        self.engine.kernels.power(self.tally, d, self.p, self.cost, self.unit)

    def block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        """As on the CPU, on arrays of the device; waits for it. For single blocks: sweeps use `enqueue`."""
        before = self.tally.read()
        self.enqueue(group, a0, a1, out)
        after = self.tally.read()
        self.tally.clear()
        self.tally.array[0] = int(np.float64(after.top).view(np.int64))
        if self.unit != 1.0:
            out *= self.unit
        return Report(after.iterations - before.iterations, self.true_error(after.error, after.top))

    def true_error(self, reported: float, top: float) -> float:
        """The error of an entry, from what kernels report in the units of a sweep with costs up to `top`."""
        return self.unit * (reported + self.rounding(top)) + (self._lost() if top > 0.0 else 0.0)

    def enqueue(self, group: int, a0: int, a1: int, out: Array) -> None:
        """Start the work of `block`, in units of the sweep."""
        raise NotImplementedError

    def _block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        return self.block(group, a0, a1, out)

    def bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        self.top = self.tally.read().top
        super().bounds(group, a0, a1, lower, upper)

    def follow(self, family: Family) -> None:
        self.family = family
        self.rows.set_probs(family.probs)

    def take_from(self, old: Evaluator) -> None:
        if type(old) is not type(self) or not self._fits(old):
            return
        assert isinstance(old, DeviceEvaluator)
        groups, before = self.family.groups, old.family.groups
        if old.first != self.first or len(groups) != len(before):
            return
        same = same_supports(self.family, old.family)
        for g, members in enumerate(groups):
            mine, theirs = self.kept[g], old.kept[g]
            both = min(len(mine), len(theirs))  # memory may have been shorter for one of them
            if not both or (mine.shape[1], mine.dtype) != (theirs.shape[1], theirs.dtype):
                continue
            if not np.array_equal(members, before[g]):
                continue
            mine[:both] = theirs[:both]
            if not same[members].all():
                flags = self.engine.to_device(same[members].astype(np.uint8))
                self.engine.kernels.forget(self.kept[g], len(members), self.first, flags, self.cold)

    def _fits(self, old: Any) -> bool:
        """Whether what an evaluator of the same kind kept can be used."""
        return bool(old.p == self.p)

    def state(self) -> dict[str, Array]:
        return {f"kept{g}": self.engine.to_host(array) for g, array in enumerate(self.kept)}

    def load(self, state: Mapping[str, Array]) -> None:
        for g in range(len(self.kept)):
            if self.kept[g].shape == state[f"kept{g}"].shape:
                self.kept[g][:] = self.engine.to_device(state[f"kept{g}"])

    def finish(self) -> None:
        super().finish()
        self.rows.release()


class ExactOnDevice(DeviceEvaluator):
    """Keeps the optimal tree of each pair."""

    kept_dtype = np.uint8

    def __init__(self, engine: Engine, family: Family, p: float, keep: bool, first: int = 1) -> None:
        super().__init__(engine, family, p, keep, first)

    def _kept_entries(self, group: int) -> int:
        return int(self.rows.tree_bytes(group))

    @property
    def rows_at_once(self) -> int:
        return int(self.rows.rows_at_once())

    def enqueue(self, group: int, a0: int, a1: int, out: Array) -> None:
        self.engine.kernels.exact_block(
            self.tally, self.rows, group, a0, a1, self.cost, 1.0 / self.p, self.first, self._kept_up_to(group, a1), out
        )

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        kernels, nothing = self.engine.kernels, self.kept[group][:0]
        kernels.exact_block(self.tally, self.rows, group, a0, a1, self.cost, 1.0 / self.p, self.first, nothing, upper)
        error = self.tally.read().error
        lower[:] = self.engine.xp.maximum(upper - error, 0.0)
        upper += error


class IndependentOnDevice(DeviceEvaluator):
    def __init__(self, engine: Engine, family: Family, settings: Independent) -> None:
        super().__init__(engine, family, settings.p, False, 0 if settings.diagonal == "kept" else 1)
        self.dense_rows = _dense(engine, family)

    def follow(self, family: Family) -> None:
        super().follow(family)
        self.dense_rows = _dense(self.engine, family)

    def enqueue(self, group: int, a0: int, a1: int, out: Array) -> None:
        kernels = self.engine.kernels
        if self.dense_rows is not None:
            members = self.rows.groups[group]
            kernels.dense_independent_block(self.dense_rows, members, a0, a1, self.cost, 1.0 / self.p, out)
        else:
            kernels.independent_block(self.tally, self.rows, group, a0, a1, self.cost, 1.0 / self.p, self.first, out)

    def rounding(self, top: float) -> float:
        """All terms are positive, so sums of n and m of them are off by (n + m) units of round-off of themselves."""
        terms = 2 * (self.family.n_states if self.dense_rows is not None else int(self.family.sizes.max())) + 8
        return float(terms * self.engine.eps * top ** (1.0 / self.p))

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        self.enqueue(group, a0, a1, upper)
        upper += self.rounding(self.top)
        lower[:] = 0.0


def _dense(engine: Engine, family: Family) -> Any:
    """The rows as a matrix where products beat gathered supports, else None."""
    if not family.dense():
        return None
    return engine.kernels.dense_matrix(family.indptr, family.indices, family.probs, family.n_states, engine.dtype)


class SinkhornOnDevice(DeviceEvaluator):
    """Keeps log y of each pair (y/b for matrix products)."""

    squares = 3
    cold = 255  # bytes of a NaN

    def __init__(self, engine: Engine, family: Family, settings: Sinkhorn, keep: bool) -> None:
        self.settings = settings
        self.dense_rows = _dense(engine, family)
        self.by_products = False  # whether kept holds y/b rather than log y
        self.gibbs: Any = None
        self.pairs: dict[tuple[int, int, int], Any] = {}
        super().__init__(engine, family, settings.p, keep, 0 if settings.diagonal == "kept" else 1)
        self.synchronous = self.synchronous or self.dense_rows is not None
        self.safe = accuracy.safe_exponent(engine.eps)
        self.tightest = accuracy.tightest_marginals(engine.eps)
        self.reg = settings.reg  # in units of the sweep's costs

    def _kept_entries(self, group: int) -> int:
        return self.family.n_states if self.dense_rows is not None else int(self.rows.kept_numbers(group))

    def _fits(self, old: Any) -> bool:
        fits = (old.settings.reg, old.p) == (self.settings.reg, self.p)
        if fits and (old.dense_rows is None) == (self.dense_rows is None):
            self.by_products = old.by_products
            return True
        return False

    def follow(self, family: Family) -> None:
        super().follow(family)
        self.dense_rows = _dense(self.engine, family)

    @property
    def rows_at_once(self) -> int:
        return int(self.rows.rows_at_once())

    def _costs(self, d: Array) -> None:
        xp = self.engine.xp
        self.reg = accuracy.scaled_reg(self.settings.reg, self.p, self.unit)
        if self.dense_rows is None and self.rows.wants_gibbs():
            if self.gibbs is None or self.gibbs.shape != d.shape:
                self.gibbs = xp.empty_like(d)
            self.engine.kernels.power(self.tally, d, self.p, self.cost, self.unit, self.reg, self.gibbs)
            return
        super()._costs(d)
        if self.dense_rows is None:
            return
        self.top = self.tally.read().top
        by_products = self.top <= self.safe * self.reg
        if by_products != self.by_products:
            for kept in self.kept:
                kept.view(np.uint8).fill(self.cold)
            self.by_products = by_products
        if by_products:
            self.kernel = xp.exp(self.cost * (-1.0 / self.reg))
            self.weighted = self.kernel * self.cost

    def enqueue(self, group: int, a0: int, a1: int, out: Array) -> None:
        if self.dense_rows is not None and self.by_products:
            if self.top == 0.0:
                out.fill(0.0)
            else:
                self._by_products(group, a0, a1, out)
            return
        self._gathered(group, a0, a1, out, self._kept_up_to(group, a1))

    def _gathered(self, group: int, a0: int, a1: int, out: Array, kept: Array, listed: bool = False) -> None:
        s = self.settings
        self.engine.kernels.sinkhorn_block(
            self.tally, self.rows, group, a0, a1, self.cost, self.reg, s.cost == "value", 1.0 / s.p, self.accuracy,
            self.tightest, max(s.marginal_tol, self.tightest), accuracy.ITERATION_LIMIT, self.first, kept, out,
            self.gibbs, self.safe, listed,
        )  # fmt: skip

    def _by_products(self, group: int, a0: int, a1: int, out: Array) -> None:
        s, members, kernels = self.settings, self.family.groups[group], self.engine.kernels
        tol = accuracy.marginal_tolerance(self.accuracy, s.p, self.top, s.marginal_tol, self.tightest)
        if (group, a0, a1) not in self.pairs:
            self.pairs[group, a0, a1] = kernels.dense_pairs(members, a0, a1, self.first)
        at = a0 * (len(members) - self.first) - a0 * (a0 - 1) // 2
        iterations, error, least, left = kernels.dense_sinkhorn_block(
            self.dense_rows, self.pairs[group, a0, a1], self.kernel, self.weighted, self.reg, s.cost == "value",
            1.0 / s.p, tol, accuracy.DENSE_LIMIT, at, self._kept_up_to(group, a1), out,
        )  # fmt: skip
        terms, eps = 2 * self.family.n_states, self.engine.eps
        slack = (error + terms * eps) * self.top
        if s.cost == "value":
            slack += accuracy.value_rounding(terms, self.reg, self.top, eps)
        self.tally.add(iterations, accuracy.root_error(min(least, self.top), slack, s.p))
        if len(left):
            self.rows.list_pairs(left)
            self.tally.set_left(len(left))
            self._gathered(group, a0, a1, out, self.engine.xp.empty((0, 1), self.engine.dtype), listed=True)

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        s = self.settings
        tightest = accuracy.tightest_marginals(float(np.finfo(np.float64).eps))
        tol = accuracy.marginal_tolerance(self.accuracy, s.p, self.top, s.marginal_tol, tightest)
        whole = self.dense_rows is None or not self.by_products
        kept = self._kept_up_to(group, a1) if whole else self.kept[group][:0]
        self.engine.kernels.bounds_block(
            self.tally, self.rows, group, a0, a1, self.cost, self.reg, False, 1.0 / s.p, tol,
            accuracy.ITERATION_LIMIT, self.first, kept, lower, upper,
        )  # fmt: skip

    def finish(self) -> None:
        super().finish()
        self.kernel = self.weighted = self.gibbs = None


class BallOnDevice(DeviceEvaluator):
    """Keeps log λ and log y of each pair, and the trees of the pairs that are exact."""

    cold = 255
    kept_dtype = np.float64

    def __init__(self, engine: Engine, family: Family, settings: KLBall, keep: bool) -> None:
        self.settings = settings
        super().__init__(engine, family, settings.p, keep, 0 if settings.diagonal == "kept" else 1)
        self.synchronous = True  # its accuracy follows the largest cost
        self.exact: Any = None
        self._take_entropies(family)

    def _take_entropies(self, family: Family) -> None:
        from .sinkhorn import entropies

        rows = entropies(family)
        self.entropies = self.engine.to_device(rows)
        if self.exact is None and self.settings.radius >= np.min(rows[family.sizes > 1], initial=np.inf):
            self.exact = ExactOnDevice(self.engine, family, self.p, self.keep, self.first)
            self.exact.tally, self.exact.rows = self.tally, self.rows

    def _kept_entries(self, group: int) -> int:
        return int(self.rows.widest[group]) + 1

    def _fits(self, old: Any) -> bool:
        return (old.settings.radius, old.p) == (self.settings.radius, self.p)

    @property
    def kept_bytes(self) -> int:
        return super().kept_bytes + (self.exact.kept_bytes if self.exact is not None else 0)

    def take_from(self, old: Evaluator) -> None:
        super().take_from(old)
        if isinstance(old, BallOnDevice) and self.exact is not None and old.exact is not None:
            self.exact.take_from(old.exact)

    def follow(self, family: Family) -> None:
        super().follow(family)
        if self.exact is not None:
            self.exact.family = family
        self._take_entropies(family)

    def state(self) -> dict[str, Array]:
        trees = {f"exact_{name}": array for name, array in self.exact.state().items()} if self.exact is not None else {}
        return {**super().state(), **trees}

    def load(self, state: Mapping[str, Array]) -> None:
        super().load(state)
        if self.exact is not None and "exact_kept0" in state:
            self.exact.load({name.removeprefix("exact_"): array for name, array in state.items()})

    def prepare(self, d: Array, wanted: float) -> None:
        super().prepare(d, wanted)
        self.top = self.tally.read().top
        if self.exact is not None:
            self.exact.cost = self.cost
        self.target = accuracy.ball_target(self.accuracy, self.p, self.top)
        self.tol = accuracy.ball_marginals(self.accuracy, self.top)

    def enqueue(self, group: int, a0: int, a1: int, out: Array) -> None:
        if self.top == 0.0:
            out.fill(0.0)
            return
        if self.exact is not None:
            self.exact.enqueue(group, a0, a1, out)
        self.engine.kernels.ball_block(
            self.tally, self.rows, group, a0, a1, self.cost, self.settings.radius, self.entropies, 1.0 / self.p,
            self.tol, accuracy.ITERATION_LIMIT, self.target, self.first, self._kept_up_to(group, a1), out,
        )  # fmt: skip

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        self.engine.kernels.bounds_block(
            self.tally, self.rows, group, a0, a1, self.cost, 1.0, True, 1.0 / self.p, self.tol,
            accuracy.ITERATION_LIMIT, self.first, self._kept_up_to(group, a1), lower, upper,
        )  # fmt: skip
