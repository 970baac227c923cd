"""Entropically regularised transport: the dual form (fixed λ) and the primal form (a KL ball)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_number
from ..kernels.select import Engine
from . import accuracy
from .base import Array, Axioms, Evaluator, Family, Kept, Report, Transport, check_order, pair_entries
from .exact import ExactEvaluator
from .independent import check_diagonal


@dataclass(frozen=True)
class Sinkhorn(Transport):
    """Transport with λ times relative entropy added: ω* = argmin ⟨ω, d^p⟩ + λ KL(ω ‖ μ⊗ν).

    cost="sharp" (the paper's experiments, eq. 8) returns ⟨ω*, d^p⟩^(1/p). It is not monotone in d and its
    slope can exceed 1, so no theorem bounds the error of its fixed point.

    cost="value" returns (⟨ω*, d^p⟩ + λ KL)^(1/p). This is monotone and non-expansive in d, lies between W_p
    and the independent coupling, and so has one fixed point with a rigorous error.

    Args:
        reg: λ > 0, in units of d^p. (λ = 0 is `Exact`, λ = ∞ is `Independent`.)
        p: order, at least 1.
        cost: "sharp" or "value".
        diagonal: "kept" for the true d(s, s) > 0, "zero" to set it to 0 as the paper's runs did.
        marginal_tol: L1 error of a plan's marginal at which its iterations stop; tightened where the
            tolerance of the answer needs it.

    Memory: one number per successor of the second row is kept for each pair.
    """

    iterative = True

    reg: float = 1.0
    p: float = 1.0
    cost: str = "sharp"
    diagonal: str = "kept"
    marginal_tol: float = 1e-6

    def __post_init__(self) -> None:
        check_order(self.p)
        check_diagonal(self.diagonal)
        if not 0.0 < check_number("reg", self.reg) < np.inf:
            limits = "Exact transport is the limit 0, independent coupling that of infinity."
            raise ValueError(f"reg must be positive and finite; got {self.reg}. {limits}")
        if self.cost not in ("sharp", "value"):
            raise ValueError(f'cost must be "sharp" or "value"; got {self.cost!r}.')
        if not 0.0 < check_number("marginal_tol", self.marginal_tol) < 1.0:
            raise ValueError(f"marginal_tol must be in (0, 1); got {self.marginal_tol}.")

    @property
    def axioms(self) -> Axioms:
        # The value keeps the triangle inequality: plans of (μ, ν) and (ν, ρ) are glued along ν, costs add up
        # (Minkowski), and by data processing the mutual information of the ends is at most that of either side.
        value = self.cost == "value"
        return Axioms(zero_diagonal=self.diagonal == "zero", triangle=value, monotone=value, nonexpansive=value)

    @property
    def guarantee(self) -> str:
        if self.cost == "value":
            return "contraction: the value ⟨ω, d^p⟩ + λ KL is a minimum over couplings, so non-expansive in d"
        return "none: the sharp Sinkhorn cost is neither monotone nor non-expansive in d"

    def evaluator(self, engine: Engine, family: Family, keep: bool) -> Evaluator:
        if engine.on_device:
            from .device import SinkhornOnDevice

            return SinkhornOnDevice(engine, family, self, keep)
        return SinkhornEvaluator(engine, family, self, keep)

    def kept_size(self, family: Family) -> int:
        return pair_entries(family, first=0, per_pair=0, shared=0) * 8


@dataclass(frozen=True)
class KLBall(Transport):
    """The paper's primal Sinkhorn distance (eq. 7): least ‖d‖_{p,ω} over couplings with KL(ω ‖ μ⊗ν) ≤ radius.

    λ is searched per pair until KL = radius. radius = 0 is the independent coupling; a radius of at least
    min(H(μ), H(ν)) is exact transport.

    Args:
        radius: 1/ζ ≥ 0, in nats.
        p: order, at least 1.
        diagonal: "kept" or "zero", see `Sinkhorn`.
    """

    iterative = True

    radius: float
    p: float = 1.0
    diagonal: str = "kept"

    def __post_init__(self) -> None:
        check_order(self.p)
        check_diagonal(self.diagonal)
        if not 0.0 <= check_number("radius", self.radius) < np.inf:
            raise ValueError(f"radius must be finite and not negative; got {self.radius}. Use Exact for no limit.")

    @property
    def axioms(self) -> Axioms:
        return Axioms(zero_diagonal=self.diagonal == "zero", triangle=True, monotone=True, nonexpansive=True)

    @property
    def guarantee(self) -> str:
        return "contraction: the theorem on (p, ζ)-Sinkhorn bisimulation metrics (eqs. 9 to 11)"

    def evaluator(self, engine: Engine, family: Family, keep: bool) -> Evaluator:
        if engine.on_device:
            from .device import BallOnDevice

            return BallOnDevice(engine, family, self, keep)
        return BallEvaluator(engine, family, self, keep)

    def kept_size(self, family: Family) -> int:
        return pair_entries(family, first=0, per_pair=1, shared=0) * 8


class SinkhornEvaluator(Evaluator):
    """Keeps the column scalings y of each pair, or log y where the kernel would underflow."""

    def __init__(self, engine: Engine, family: Family, settings: Sinkhorn, keep: bool) -> None:
        super().__init__(engine, family, settings.p)
        self.settings = settings
        self.first = 0 if settings.diagonal == "kept" else 1
        self.keep = keep
        self.in_logs = False
        self.reg = settings.reg  # in units of the sweep's costs
        self.dense_rows = engine.kernels.dense_rows(family, engine.dtype) if family.dense() else None
        self.dense_kept: list[Array] = [np.empty((0, family.n_states), engine.dtype) for _ in family.groups]
        self.kernel: Array = np.empty((0, 0), engine.dtype)
        self.weighted: Array = np.empty((0, 0), engine.dtype)
        self.kept = self._new_kept(keep and self.dense_rows is None)

    def _new_kept(self, keep: bool) -> Kept:
        return Kept(self.engine, self.family, first=self.first, per_pair=0, shared=0, cold=np.nan, dtype=np.float64,
                    keep=keep)  # fmt: skip

    @property
    def kept_bytes(self) -> int:
        return self.kept.nbytes + sum(array.nbytes for array in self.dense_kept)

    def take_from(self, old: Evaluator) -> None:
        if isinstance(old, SinkhornEvaluator) and (old.settings.reg, old.p) == (self.settings.reg, self.p):
            self.in_logs = old.in_logs
            self.kept.take_from(old.kept)
            if self.dense_rows is not None and old.dense_rows is not None and self.keep and self.first == old.first:
                same = all(np.array_equal(a, b) for a, b in zip(self.family.groups, old.family.groups, strict=False))
                if same and len(self.family.groups) == len(old.family.groups):
                    self.dense_kept = [array.copy() for array in old.dense_kept]

    def follow(self, family: Family) -> None:
        super().follow(family)
        self.kept.follow(family)
        if self.dense_rows is not None:
            self.dense_rows = self.engine.kernels.dense_rows(family, self.engine.dtype)

    def state(self) -> dict[str, Array]:
        dense = {f"dense{g}": array for g, array in enumerate(self.dense_kept)}
        return {**self.kept.state("scalings"), **dense, "in_logs": np.array(self.in_logs)}

    def load(self, state: Mapping[str, Array]) -> None:
        self.in_logs = bool(state["in_logs"])
        self.kept.load(state, "scalings")
        self.dense_kept = [np.array(state[f"dense{g}"]) for g in range(len(self.dense_kept))]

    def prepare(self, d: Array, wanted: float) -> None:
        super().prepare(d, wanted)
        eps = self.engine.eps
        self.reg = accuracy.scaled_reg(self.settings.reg, self.p, self.unit)
        in_logs = not self.top <= accuracy.safe_exponent(eps) * self.reg
        if in_logs != self.in_logs:  # y and log y are one step apart
            for array in self.kept.arrays:
                array[:] = np.log(array) if in_logs else np.nan
            self.in_logs = in_logs
        self.eps = float(np.finfo(np.float64).eps) if in_logs else eps
        self.tightest = accuracy.tightest_marginals(self.eps)
        loosest = self.settings.marginal_tol
        self.tol = accuracy.marginal_tolerance(self.accuracy, self.p, self.top, loosest, self.tightest)
        if in_logs:
            self.kernel = np.empty((1, 1), self.engine.dtype)
            return
        if self.kernel.shape != self.cost.shape:
            self.kernel = np.empty_like(self.cost)
        self.engine.kernels.gibbs(self.cost, self.reg, self.kernel)
        if self.dense_rows is not None:
            self._prepare_dense()

    def _prepare_dense(self) -> None:
        if self.settings.cost == "sharp":
            self.weighted = self.kernel * self.cost
        for group, members in enumerate(self.family.groups):
            if self.keep and not len(self.dense_kept[group]):
                pairs = len(members) * (len(members) + 1) // 2 - self.first * len(members)
                self.dense_kept[group] = np.full((pairs, self.family.n_states), np.nan, self.engine.dtype)

    def _block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        if self.dense_rows is not None and not self.in_logs:
            return self._dense_block(group, a0, a1, out)
        return self._sparse_block(self.family.groups[group], a0, a1, out,
                                  self.kept.arrays[group], self.kept.bases[group], self.first)  # fmt: skip

    def _sparse_block(
        self, members: Array, a0: int, a1: int, out: Array, kept: Array, base: Array, first: int
    ) -> Report:
        f, s = self.family, self.settings
        return Report(*self.engine.kernels.sinkhorn_block(
            f.indptr, f.indices, f.probs, members, a0, a1, self.cost, self.kernel, self.in_logs, self.reg,
            s.cost == "value", 1.0 / s.p, self.top, self.accuracy, self.tightest, max(s.marginal_tol, self.tightest),
            accuracy.ITERATION_LIMIT, self.eps, first, kept, base, self.halt, out,
        ))  # fmt: skip

    def _dense_block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        s, members = self.settings, self.family.groups[group]
        assert self.dense_rows is not None
        iterations, left, error = self.engine.kernels.dense_sinkhorn_block(
            self.dense_rows, members, a0, a1, self.kernel, self.weighted, self.reg, s.cost == "value", self.tol,
            accuracy.DENSE_LIMIT, self.first, self.dense_kept[group], self.halt, out,
        )  # fmt: skip
        slack = self._dense_slack(error)
        worst = slack
        if s.p != 1.0:  # a root magnifies errors most where values are smallest
            least = float(
                np.min(out[np.arange(out.shape[1]) >= np.arange(a0, a1)[:, None] + self.first], initial=self.top)
            )
            worst = accuracy.root_error(least, slack, s.p)
            np.power(out, 1.0 / s.p, out=out)
        for a, b, y in left:  # finished one by one, with Newton steps
            one = np.zeros((1, 2))
            lo, hi = self.family.indptr[members[b]], self.family.indptr[members[b] + 1]
            start = y[self.family.indices[lo:hi]].astype(np.float64)
            report = self._sparse_block(members[[a, b]], 0, 1, one, start, np.zeros(1, np.int64), 1)
            out[a - a0, b] = one[0, 1]
            iterations, worst = iterations + report.iterations, max(worst, report.error)
        return Report(iterations, worst)

    def _dense_slack(self, error: float) -> float:
        """How far a cost or value by matrix products may be off, for marginals within `error`."""
        terms = 2 * self.family.n_states
        rounding = (
            accuracy.value_rounding(terms, self.reg, self.top, self.eps) if self.settings.cost == "value" else 0.0
        )
        return (error + terms * self.eps) * self.top + rounding

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        f, s = self.family, self.settings
        self.engine.kernels.bounds_block(
            f.indptr, f.indices, f.probs, f.groups[group], a0, a1, self.cost, self.reg, False, not self.in_logs,
            1.0 / s.p, self.top, self.tol, accuracy.ITERATION_LIMIT, self.first, self.kept.arrays[group],
            self.kept.bases[group], self.halt, lower, upper,
        )  # fmt: skip

    def finish(self) -> None:
        super().finish()
        self.kernel = np.empty((0, 0), self.engine.dtype)
        self.weighted = np.empty((0, 0), self.engine.dtype)


class BallEvaluator(Evaluator):
    """Keeps log λ and log y of each pair, and the trees of the pairs that are exact."""

    def __init__(self, engine: Engine, family: Family, settings: KLBall, keep: bool) -> None:
        super().__init__(engine, family, settings.p)
        self.settings = settings
        self.first = 0 if settings.diagonal == "kept" else 1
        self.entropies = entropies(family)
        self.exact: Any = None
        if self._needs_exact():
            self.exact = ExactEvaluator(engine, family, settings.p, keep, self.first)
        self.kept = Kept(engine, family, first=self.first, per_pair=1, shared=0, cold=np.nan, dtype=np.float64,
                         keep=keep)  # fmt: skip

    def _needs_exact(self) -> bool:
        """Whether some pair's ball holds all couplings."""
        return bool(self.settings.radius >= np.min(self.entropies[self.family.sizes > 1], initial=np.inf))

    @property
    def kept_bytes(self) -> int:
        return self.kept.nbytes + (self.exact.kept_bytes if self.exact is not None else 0)

    def take_from(self, old: Evaluator) -> None:
        if isinstance(old, BallEvaluator):
            if (old.settings.radius, old.p) == (self.settings.radius, self.p):
                self.kept.take_from(old.kept)
            if self.exact is not None and old.exact is not None:
                self.exact.take_from(old.exact)

    def follow(self, family: Family) -> None:
        super().follow(family)
        self.kept.follow(family)
        self.entropies = entropies(family)
        if self.exact is not None:
            self.exact.follow(family)
        elif self._needs_exact():
            self.exact = ExactEvaluator(self.engine, family, self.p, len(self.kept.bases[0]) > 0, self.first)

    def state(self) -> dict[str, Array]:
        trees = {f"exact_{name}": array for name, array in self.exact.state().items()} if self.exact is not None else {}
        return {**self.kept.state("logs"), **trees}

    def load(self, state: Mapping[str, Array]) -> None:
        self.kept.load(state, "logs")
        if self.exact is None and any(name.startswith("exact_") for name in state):
            keep = len(self.kept.bases[0]) > 0
            self.exact = ExactEvaluator(self.engine, self.family, self.p, keep, self.first)
        if self.exact is not None:
            self.exact.load({name.removeprefix("exact_"): array for name, array in state.items()})

    def prepare(self, d: Array, wanted: float) -> None:
        super().prepare(d, wanted)
        if self.exact is not None:
            self.exact.cost, self.exact.top, self.exact.unit = self.cost, self.top, 1.0
            self.exact.halt = self.halt
        self.target = accuracy.ball_target(self.accuracy, self.p, self.top)
        self.tol = accuracy.ball_marginals(self.accuracy, self.top)

    def _block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        f, s = self.family, self.settings
        before = Report(0, 0.0)
        if self.exact is not None:
            before = self.exact._block(group, a0, a1, out)
        iterations, error = self.engine.kernels.ball_block(
            f.indptr, f.indices, f.probs, f.groups[group], a0, a1, self.cost, s.radius, self.entropies, 1.0 / s.p,
            self.tol, accuracy.ITERATION_LIMIT, self.target, self.first, self.kept.arrays[group],
            self.kept.bases[group], self.halt, out,
        )  # fmt: skip
        return Report(iterations + before.iterations, max(error, before.error))

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        f, s = self.family, self.settings
        self.engine.kernels.bounds_block(
            f.indptr, f.indices, f.probs, f.groups[group], a0, a1, self.cost, 1.0, True, False, 1.0 / s.p, self.top,
            self.tol, accuracy.ITERATION_LIMIT, self.first, self.kept.arrays[group], self.kept.bases[group],
            self.halt, lower, upper,
        )  # fmt: skip


def entropies(family: Family) -> Array:
    """Shannon entropy of each row, in nats [N]."""
    return np.asarray(-np.add.reduceat(np.log(family.probs) * family.probs, family.indptr[:-1]))
