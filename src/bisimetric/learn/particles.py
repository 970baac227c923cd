"""Transport between samples of next states, by this package's kernels on the host.

Empirical transport is too large: two sets of n samples of the same distribution are apart. On finitely many states the
excess is of order n^(−1/2) where distributions are alike and smaller where they are not, so that the value of n samples
less (the value of n/2 samples − that of n samples)/(√2 − 1) has it no more to first order, in both cases (Richardson's
extrapolation). Subtracting half of the excess of each with itself, as Sinkhorn divergences do, takes too much where
distributions differ. With λ > 0 the excess is of order 1/n (Genevay et al., AISTATS 2019), and the factor 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..backends.plans import plan_of, transport_cost
from ..checks import check_number, check_whole
from ..kinds import Floats
from ..model import Distributions
from ..transport import Exact, Sinkhorn, Transport
from .couplings import Coupling
from .heads import Head
from .nexts import Next, Transports, on_host


@dataclass(frozen=True)
class Particles(Coupling):
    """Transport between n samples of each state's next states.

    Takes samples [B, n, D], drawn for each state by itself. With n = 1 it is MICo's target.

    Args:
        n: samples of a state; even where they are debiased.
        reg: λ ≥ 0. 0 is exact transport; above, the value ⟨ω, D⟩ + λ KL, near the independent coupling for large λ.
        debias: extrapolate from n/2 and n samples to infinitely many (see the module). It is heuristic, makes targets
            noisier, and may make single ones negative: these are not cut off, since their mean is what counts.

    Cost: B²/2 transports of n × n a step (debiased: and B² of half the size) on one core of the host. Memory: (B·n)².
    """

    n: int
    reg: float = 0.0
    debias: bool = True

    def __post_init__(self) -> None:
        if check_whole("n", self.n) < 1:
            raise ValueError(f"Particles: n must be at least 1; got {self.n}.")
        if not 0.0 <= check_number("reg", self.reg) < math.inf:
            raise ValueError(
                f"Particles: reg must be finite and not negative; got {self.reg}. Use Independent() for ∞."
            )
        if self.debias and self.n % 2:
            raise ValueError(f"Particles: debias=True halves the samples, so n must be even; got {self.n}.")

    @property
    def transport(self) -> Transport:
        """The transport between empirical distributions."""
        return Exact() if self.reg == 0.0 else Sinkhorn(self.reg, cost="value")

    @property
    def excess(self) -> float:
        """How much of (value of half the samples − value of all) the bias is."""
        return 1.0 / (math.sqrt(2.0) - 1.0) if self.reg == 0.0 else 1.0

    def knows_diagonal(self, head: Head, following: Next) -> bool:
        del following
        return self.reg == 0.0 and head.zero_diagonal  # 0; otherwise both sides would be the same samples

    def square(self, head: Head, following: Next) -> Tensor:
        samples = self._samples(following)
        B, n, D = samples.shape
        flat = samples.reshape(B * n, D)
        values = empirical_transports(
            on_host(head.next_values(flat, flat)), n, self.transport, self.excess if self.debias else 0.0
        )
        return torch.as_tensor(values, dtype=samples.dtype, device=samples.device)

    def paired(self, head: Head, following: Next, partner: Tensor) -> Tensor:
        samples = self._samples(following)
        if self.reg > 0.0:  # all pairs at once are faster than single ones with a plan each
            return self.square(head, following)[torch.arange(len(partner), device=partner.device), partner]
        pairs = zip(samples, samples[partner], strict=True)
        values = [
            0.0 if i == j else self._pair(on_host(head.next_values(x, y)))
            for i, (j, (x, y)) in enumerate(zip(partner.tolist(), pairs, strict=True))
        ]
        return torch.as_tensor(values, dtype=samples.dtype, device=samples.device)

    def _pair(self, ground: Floats) -> float:
        """The exact transport of n × n samples, from their ground costs."""
        whole = _value(ground)
        if not self.debias:
            return whole
        half = self.n // 2
        parts = 0.5 * (_value(ground[:half, :half]) + _value(ground[half:, half:]))
        return whole - self.excess * (parts - whole)

    def _samples(self, following: Next) -> Tensor:
        if not isinstance(following, Tensor) or following.shape[1] != self.n:
            raise self.refuse(following, f"samples [B, {self.n}, D]")
        return following


def empirical_transports(ground: Floats, n: int, transport: Transport, excess: float) -> Floats:
    """Transports of all pairs of B sets of n points each [B, B], from ground costs [B·n, B·n], extrapolated.

    Costs below 0 are lifted: both transports have p = 1, so that adds the same to all of them and changes no plan.
    Exact transport of a set to itself is 0.
    """
    low = min(float(ground.min()), 0.0)
    ground = ground - low
    if isinstance(transport, Exact):
        np.fill_diagonal(ground, 0.0)
    points = np.arange(len(ground), dtype=np.int32).reshape(-1, n)
    parts = [points] if excess == 0.0 else [points, points[:, : n // 2], points[:, n // 2 :]]
    sizes = np.concatenate([np.full(len(points), part.shape[1]) for part in parts])
    rows = Distributions(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([part.reshape(-1) for part in parts]),
        np.repeat(1.0 / sizes, sizes),
        len(ground),
    ).normalised()
    found = low + extrapolated(Transports(rows, transport, parts=len(parts), remember=False)(ground), excess)
    if isinstance(transport, Exact):
        np.fill_diagonal(found, 0.0)
    return found


def extrapolated(values: Floats, excess: float) -> Floats:
    """From transports of all samples, and of two halves of them where there is an excess [1 or 3, B, B]."""
    whole = values[0]
    return whole if excess == 0.0 else np.asarray(whole - excess * (0.5 * (values[1] + values[2]) - whole))


def _value(ground: Floats) -> float:
    """The exact transport of one pair of uniform distributions."""
    a, b = (np.full(k, 1.0 / k) for k in ground.shape)
    low = min(float(ground.min()), 0.0)
    lifted = ground - low
    return low + transport_cost(Exact(), lifted, plan_of(Exact(), lifted, a, b), a, b)[0]


def transport_of(cost: Tensor, reg: float = 0.0, *, a: Tensor | None = None, b: Tensor | None = None) -> Tensor:
    """Transport between weighted samples with ground costs [n, m], with gradients to the costs.

        T(C) = min over couplings ω of ⟨ω, C⟩ + λ KL(ω ‖ a⊗b)

    By the envelope theorem the gradient is the optimal plan: ω does not move to first order. For λ = 0 it is a
    subgradient where several plans are optimal. (Targets of a `MetricLoss` have no gradients; this is for those who
    train something else through a transport.)

    Args:
        cost: ground costs, at least 0 [n, m].
        reg: λ ≥ 0.
        a, b: weights that sum to 1 [n] and [m]; uniform by default.

    Cost: one plan on the host, below a millisecond for tens of samples; with λ > 0 some milliseconds, more for small λ.
    """
    if cost.ndim != 2 or not bool((cost >= 0.0).all()):
        raise ValueError(f"cost: must be numbers of at least 0 [n, m]; got shape {list(cost.shape)} or negative ones.")
    transport = Exact() if reg == 0.0 else Sinkhorn(reg, cost="value")
    ground = on_host(cost)
    n, m = ground.shape
    left = np.full(n, 1.0 / n) if a is None else a.detach().cpu().double().numpy()
    right = np.full(m, 1.0 / m) if b is None else b.detach().cpu().double().numpy()
    plan = plan_of(transport, ground, left, right)
    value, entropic = transport_cost(transport, ground, plan, left, right)
    fixed = torch.as_tensor(plan, dtype=cost.dtype, device=cost.device)
    return (fixed * cost).sum() + value * entropic
