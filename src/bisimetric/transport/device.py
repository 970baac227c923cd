"""Transports at work on a CUDA device: the evaluators of `exact`, `sinkhorn` and `independent` on its arrays.

`enqueue` starts the work of a block; what it reports gathers in a tally on the device. What is kept between sweeps is
one row per pair, in the order of the pairs, so pairs whose rows did not change can be carried over in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels.select import DeviceError, Engine
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
                f"{needs} {1e-9 * free:.3g} GB of device memory are free. "
                'Use dtype="float32", fewer states, or device="cpu".'
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

    def rounding(self) -> float:
        """What rounding may add to an entry beyond what the kernels report."""
        return 0.0

    def prepare(self, d: Array, accuracy: float) -> None:
        self.accuracy = accuracy
        self.engine.kernels.power(self.tally, d, self.p, self.cost)

    def block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        """As on the CPU, on arrays of the device; waits for it. For single blocks: sweeps use `enqueue`."""
        before = self.tally.read()
        self.enqueue(group, a0, a1, out)
        after = self.tally.read()
        self.tally.clear()
        self.tally.array[0] = int(np.float64(after.top).view(np.int64))
        return Report(after.iterations - before.iterations, max(after.error, self.rounding()))

    def enqueue(self, group: int, a0: int, a1: int, out: Array) -> None:
        """Start the work of `block`."""
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
        slack = max(1e-13, 8.0 * self.engine.eps if self.engine.dtype == np.float32 else 0.0) * self.top
        xp = self.engine.xp
        lower[:] = xp.maximum(upper**self.p - slack, 0.0) ** (1.0 / self.p)


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

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        self.enqueue(group, a0, a1, upper)
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
    iteration_limit = 20_000
    dense_limit = 400  # rounds of matrix products before the slow pairs are finished one by one

    def __init__(self, engine: Engine, family: Family, settings: Sinkhorn, keep: bool) -> None:
        self.settings = settings
        self.dense_rows = _dense(engine, family)
        self.by_products = False  # whether kept holds y/b rather than log y
        self.gibbs: Any = None
        self.pairs: dict[tuple[int, int, int], Any] = {}
        super().__init__(engine, family, settings.p, keep, 0 if settings.diagonal == "kept" else 1)
        self.synchronous = self.dense_rows is not None
        self.safe = 300.0 if engine.dtype == np.float64 else 30.0
        self.tightest = 64.0 * engine.eps

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

    def rounding(self) -> float:
        """The value is λ times a sum of logarithms near 0, so rounding costs about λ eps."""
        if self.settings.cost != "value":
            return 0.0
        return float((16.0 * self.engine.eps * self.settings.reg) ** (1.0 / self.p))

    def prepare(self, d: Array, accuracy: float) -> None:
        xp, reg = self.engine.xp, float(self.settings.reg)
        if self.dense_rows is None and self.rows.wants_gibbs():
            if self.gibbs is None or self.gibbs.shape != d.shape:
                self.gibbs = xp.empty_like(d)
            self.accuracy = accuracy
            self.engine.kernels.power(self.tally, d, self.p, self.cost, reg, self.gibbs)
            return
        super().prepare(d, accuracy)
        if self.dense_rows is None:
            return
        self.top = self.tally.read().top
        by_products = self.top <= self.safe * reg
        if by_products != self.by_products:
            for kept in self.kept:
                kept.view(np.uint8).fill(self.cold)
            self.by_products = by_products
        if by_products:
            self.kernel = xp.exp(self.cost * (-1.0 / reg))
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
            self.tally, self.rows, group, a0, a1, self.cost, s.reg, s.cost == "value", 1.0 / s.p, self.accuracy,
            self.tightest, max(s.marginal_tol, self.tightest), self.iteration_limit, self.first, kept, out, self.gibbs,
            self.safe, listed,
        )  # fmt: skip

    def _by_products(self, group: int, a0: int, a1: int, out: Array) -> None:
        s, members, kernels = self.settings, self.family.groups[group], self.engine.kernels
        budget = 0.9 * self.accuracy**s.p / max(self.top, 1e-300)
        tol = max(min(s.marginal_tol, budget), self.tightest)
        if (group, a0, a1) not in self.pairs:
            self.pairs[group, a0, a1] = kernels.dense_pairs(members, a0, a1, self.first)
        at = a0 * (len(members) - self.first) - a0 * (a0 - 1) // 2
        iterations, error, left = kernels.dense_sinkhorn_block(
            self.dense_rows, self.pairs[group, a0, a1], self.kernel, self.weighted, s.reg, s.cost == "value",
            1.0 / s.p, tol, self.dense_limit, at, self._kept_up_to(group, a1), out,
        )  # fmt: skip
        self.tally.add(iterations, float((error * self.top) ** (1.0 / s.p)))
        if len(left):
            self.rows.list_pairs(left)
            self.tally.set_left(len(left))
            self._gathered(group, a0, a1, out, self.engine.xp.empty((0, 1), self.engine.dtype), listed=True)

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        s = self.settings
        budget = 0.9 * self.accuracy**s.p / max(self.top, 1e-300)
        tol = max(min(s.marginal_tol, budget), 64.0 * np.finfo(np.float64).eps)
        whole = self.dense_rows is None or not self.by_products
        kept = self._kept_up_to(group, a1) if whole else self.kept[group][:0]
        self.engine.kernels.bounds_block(
            self.tally, self.rows, group, a0, a1, self.cost, s.reg, False, 1.0 / s.p, tol, self.iteration_limit,
            self.first, kept, lower, upper,
        )  # fmt: skip

    def finish(self) -> None:
        super().finish()
        self.kernel = self.weighted = self.gibbs = None


class BallOnDevice(DeviceEvaluator):
    """Keeps log λ and log y of each pair, and the trees of the pairs that are exact."""

    cold = 255
    kept_dtype = np.float64
    iteration_limit = 20_000

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

    def prepare(self, d: Array, accuracy: float) -> None:
        super().prepare(d, accuracy)
        self.top = self.tally.read().top
        if self.exact is not None:
            self.exact.cost = self.cost
        self.target = max(min(0.5 * accuracy, 1e-6 * self.top), 1e-13 * self.top)
        self.tol = max(min(1e-6, 0.05 * accuracy / max(self.top, 1e-300)), 64.0 * np.finfo(np.float64).eps)

    def enqueue(self, group: int, a0: int, a1: int, out: Array) -> None:
        if self.top == 0.0:
            out.fill(0.0)
            return
        if self.exact is not None:
            self.exact.enqueue(group, a0, a1, out)
        self.engine.kernels.ball_block(
            self.tally, self.rows, group, a0, a1, self.cost, self.settings.radius, self.entropies, 1.0 / self.p,
            self.tol, self.iteration_limit, self.target, self.first, self._kept_up_to(group, a1), out,
        )  # fmt: skip

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        self.engine.kernels.bounds_block(
            self.tally, self.rows, group, a0, a1, self.cost, 1.0, True, 1.0 / self.p, self.tol, self.iteration_limit,
            self.first, self._kept_up_to(group, a1), lower, upper,
        )  # fmt: skip
