"""Error bounds: one pure function per result of the paper, and the a-posteriori bounds that are sharper.

Every function checks the conditions of its theorem and the domain of every argument. Where one fails, the certificate
gives no number and says which. Equation numbers are those of Kemertas and Jepson (2022).

The paper has rewards in [0, 1]. `scale` is the span of the rewards (largest minus smallest); the bounds hold for
any span, because adding a constant to all rewards changes neither metrics nor differences of values, and a factor
multiplies both. `eps` and errors of metrics are in the units of the metric, c_R times those of rewards.

The bounds on policies use 2ε for the largest distance inside a class. A partition made by radius ε has diameter
2ε only under a triangle inequality; pass eps = partition.diameter / 2 to rely on what is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .kinds import Floats
from .showing import table_html


class CertificateError(ArithmeticError):
    """Bounds that contradict each other: a fault of this package, never of its input. Please report it."""


@dataclass(frozen=True, repr=False)
class Certificate:
    """An error and where it comes from.

    Attributes:
        error: the bound; NaN where a condition failed.
        rigorous: whether the bound is proved. False: `error` is an estimate, or there is none.
        source: the theorem, or why there is none.
        failed: conditions of the theorem that do not hold.
    """

    error: float
    rigorous: bool
    source: str
    failed: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        facts = {
            "error": f"{self.error:.4g}",
            "certain": "rigorous" if self.rigorous else "no bound" if self.failed else "heuristic",
            "source": self.source,
            **({"failed": "; ".join(self.failed)} if self.failed else {}),
        }
        return table_html("Certificate", facts)

    def __repr__(self) -> str:
        return f"Certificate({self})"

    def __str__(self) -> str:
        if self.failed:
            return f"no bound from {self.source}: {'; '.join(self.failed)}"
        return f"{'rigorous' if self.rigorous else 'heuristic'} error {self.error:.3g} ({self.source})"


Condition = tuple[bool, str]
_SMALLEST = 1e-290  # numbers below lose digits when they are multiplied


def _certificate(bound: Callable[[], float], source: str, *conditions: Condition) -> Certificate:
    """The bound where all conditions hold; it is not worked out where one fails."""
    failed = tuple(text for holds, text in conditions if not holds)
    if failed:
        return Certificate(math.nan, False, source, failed)
    try:
        return Certificate(float(bound()), True, source)
    except (ZeroDivisionError, OverflowError):
        return Certificate(math.inf, True, source)  # beyond the numbers that there are: no bound, but a true one


# ---- What arguments may be. NaN fails every one of these. ----


def _not_negative(**numbers: float) -> tuple[Condition, ...]:
    return tuple((0.0 <= x < math.inf, f"needs {name} ≥ 0 (it is {x:g})") for name, x in numbers.items())


def _discount(gamma: float) -> Condition:
    return 0.0 <= gamma < 1.0, f"needs γ in [0, 1) (it is {gamma:g})"


def _weights(c_R: float, c_T: float, gamma: float) -> tuple[Condition, ...]:
    return (
        _discount(gamma),
        (_SMALLEST <= c_R < math.inf, f"needs c_R > 0, and not so small that digits are lost (it is {c_R:g})"),
        (0.0 <= c_T < 1.0, f"needs c_T in [0, 1) (it is {c_T:g})"),
        (c_T >= gamma, f"needs c_T ≥ γ ({c_T:g} < {gamma:g})"),
    )


def _paper_weights(c_R: float, c_T: float, gamma: float) -> tuple[Condition, ...]:
    return (
        _discount(gamma),
        (c_R == 1.0, f"needs c_R = 1 (it is {c_R:g})"),
        (c_T == gamma, f"needs c_T = γ (it is {c_T:g}, γ is {gamma:g})"),
    )


def _order(p: float) -> Condition:
    return 1.0 <= p < math.inf, f"needs p ≥ 1 (it is {p:g})"


def _sweeps(sweeps: float) -> Condition:
    whole = 1 <= sweeps < math.inf and sweeps == math.floor(sweeps)
    return whole, f"needs at least one sweep, a whole number n ≥ 1 (it is {sweeps:g})"


def _share(name: str, x: float) -> Condition:
    return 0.0 <= x <= 1.0, f"needs {name} in [0, 1] ({x:g})"


def _step(alpha: float) -> Condition:
    return 0.0 < alpha <= 1.0, f"needs α in (0, 1] (it is {alpha:g})"


def _metric(certified: bool) -> Condition:
    return certified, "needs a metric that bounds differences of values (the sharp Sinkhorn cost has no such theorem)"


def _finite(**arrays: Floats) -> tuple[Condition, ...]:
    shapes = {np.shape(array) for array in arrays.values()}
    return (
        (all(np.size(array) for array in arrays.values()), "needs at least one state"),
        *((bool(np.all(np.isfinite(array))), f"needs finite {name}") for name, array in arrays.items()),
        (len(shapes) == 1, f"needs {' and '.join(arrays)} of one shape (they are {', '.join(map(str, shapes))})"),
    )


# ---- Values after aggregation ----


def optimal_value_error(
    eps: float,
    *,
    gamma: float,
    c_R: float = 1.0,
    c_T: float | None = None,
    metric_error: float = 0.0,
    certified_metric: bool = True,
) -> Certificate:
    """‖V* − Ṽ*_Φ‖∞ ≤ (2ε + E)/(c_R (1−γ)) after aggregation under d~ (eq. 4), E = ‖d̂ − d~‖∞."""
    return _value_error(
        "value approximation bound for V* (eq. 4)", eps, gamma, c_R, c_T, metric_error, certified_metric
    )


def policy_value_error(
    eps: float,
    *,
    gamma: float,
    c_R: float = 1.0,
    c_T: float | None = None,
    metric_error: float = 0.0,
    certified_metric: bool = True,
) -> Certificate:
    """‖V^π − Ṽ^π_Φ‖∞ ≤ (2ε + E)/(c_R (1−γ)) after aggregation under d_π (eq. 6), E = ‖d̂ − d_π‖∞."""
    return _value_error(
        "value approximation bound for V^π (eq. 6)", eps, gamma, c_R, c_T, metric_error, certified_metric
    )


def _value_error(
    source: str, eps: float, gamma: float, c_R: float, c_T: float | None, metric_error: float, certified: bool
) -> Certificate:
    c_T = gamma if c_T is None else c_T
    return _certificate(
        lambda: (2.0 * eps + metric_error) / (c_R * (1.0 - gamma)),
        source,
        *_weights(c_R, c_T, gamma),
        *_not_negative(ε=eps, metric_error=metric_error),
        _metric(certified),
    )


def value_error_with_models(  # noqa: PLR0913 (each is a condition of the theorem, by its name)
    eps: float,
    *,
    gamma: float,
    metric_error: float,
    reward_error: float,
    model_error: float,
    c_R: float = 1.0,
    c_T: float | None = None,
    certified_metric: bool = True,
    triangle: bool = True,
) -> Certificate:
    """‖V^π − Ṽ^π_Φ‖∞ ≤ (2ε + E_m + 2c_R/(1−c_T) E_R + 2c_T/(1−c_T) E_P)/(c_R (1−γ)).

    E_m: error of the metric learned on approximate rewards and transitions; E_R: ‖R̂_π − R_π‖∞; E_P: the largest
    transport distance of P_π(s) and P̂_π(s) under d_π (the lemma that decomposes error sources). `triangle`: whether the
    transport keeps the triangle inequality (`transport.axioms.triangle`), which the lemma needs.
    """
    c_T = gamma if c_T is None else c_T

    def bound() -> float:
        parts = 2.0 * eps + metric_error + 2.0 * (c_R * reward_error + c_T * model_error) / (1.0 - c_T)
        return parts / (c_R * (1.0 - gamma))

    return _certificate(
        bound,
        "decomposition of error sources",
        *_weights(c_R, c_T, gamma),
        _metric(certified_metric),
        *_not_negative(ε=eps, metric_error=metric_error, reward_error=reward_error, model_error=model_error),
        (triangle, "needs a transport with a triangle inequality"),
    )


# ---- Metrics of two policies ----


def metric_change(
    total_variation: float, *, p: float, c_T: float, c_R: float = 1.0, scale: float = 1.0, exact: bool = True
) -> Certificate:
    """‖d_π − d_π'‖∞ ≤ 2c_R/(1−c_T)² · TV^(1/p), TV the largest total variation of π and π' (eq. 18)."""
    return _certificate(
        lambda: 2.0 * c_R * scale / (1.0 - c_T) ** 2 * math.pow(total_variation, 1.0 / p),
        "metrics of two policies (eq. 18)",
        *_two_policies(total_variation, p, c_T, c_R, scale, exact),
    )


def metric_change_tight(
    total_variation: float, *, p: float, c_T: float, c_R: float = 1.0, scale: float = 1.0, exact: bool = True
) -> Certificate:
    """‖d_π − d_π'‖∞ ≤ 2c_R/(1−c_T) (TV + c_T/(1−c_T) TV^(1/p)): the form before simplification."""

    def bound() -> float:
        parts = total_variation + c_T / (1.0 - c_T) * math.pow(total_variation, 1.0 / p)
        return 2.0 * c_R * scale / (1.0 - c_T) * parts

    source = "metrics of two policies, before simplification"
    return _certificate(bound, source, *_two_policies(total_variation, p, c_T, c_R, scale, exact))


def _two_policies(
    total_variation: float, p: float, c_T: float, c_R: float, scale: float, exact: bool
) -> tuple[Condition, ...]:
    return (
        (exact, "needs exact transport (λ = 0)"),
        _share("TV", total_variation),
        _order(p),
        (0.0 <= c_T < 1.0, f"needs c_T in [0, 1) (it is {c_T:g})"),
        *_not_negative(c_R=c_R, scale=scale),
    )


# ---- Approximate policy iteration ----


def _check(*conditions: Condition) -> None:
    for holds, text in conditions:
        if not holds:
            raise ValueError(text[0].upper() + text[1:] + ".")


def c_n(gamma: float, sweeps: int) -> float:
    """c_n = γ^n/(1−γ): the error left by n sweeps from 0, for rewards in [0, 1]."""
    _check(_discount(gamma), _sweeps(sweeps))
    return gamma**sweeps / (1.0 - gamma)


def c_bar_n(gamma: float, sweeps: int) -> float:
    """c̄_n = (1+γ) c_n, which must be below 1 for warm-started metrics."""
    return (1.0 + gamma) * c_n(gamma, sweeps)


def alpha_bar(alpha: float, *, gamma: float, sweeps: int, p: float) -> float:
    """ᾱ = 2 α^(1/p)/((1−c̄_n)(1−γ)) for a step size α; infinite where c̄_n ≥ 1."""
    _check(_step(alpha), _order(p))
    rest = 1.0 - c_bar_n(gamma, sweeps)
    return 2.0 * alpha ** (1.0 / p) / (rest * (1.0 - gamma)) if rest > 0.0 else math.inf


def _naive(from_zero: bool, alpha: float) -> tuple[Condition, ...]:
    return (
        (from_zero, "needs metrics learned from 0 at every policy (naive API)"),
        (alpha == 1.0, f"needs α = 1 (it is {alpha:.3g})"),
    )


def _loop(eps: float, delta: float, sweeps: int, **errors: float) -> tuple[Condition, ...]:
    return (_sweeps(sweeps), *_not_negative(ε=eps, δ=delta, **errors))


def _learning_error(learned: float, early_stop: float, transport_error: float, gamma: float) -> float:
    """Error of a metric after n sweeps, or after an early stop at a sweep that changed it by `early_stop`.

    Each sweep adds γ times the error of its transports to what the last one left.
    """
    return max(learned, gamma * early_stop / (1.0 - gamma)) + gamma * transport_error / (1.0 - gamma)


def api_converged(  # noqa: PLR0913 (each is a condition of the theorem, by its name)
    eps: float,
    delta: float,
    *,
    gamma: float,
    sweeps: int,
    scale: float = 1.0,
    early_stop: float = 0.0,
    transport_error: float = 0.0,
    c_R: float = 1.0,
    c_T: float | None = None,
    certified_metric: bool = True,
    from_zero: bool = True,
    alpha: float = 1.0,
) -> Certificate:
    """If naive API converges to π: ‖V^π − V*‖∞ ≤ δ/(1−γ) + 2γ(2ε + c_n)/(1−γ)² (eq. 16)."""
    c_T = gamma if c_T is None else c_T

    def bound() -> float:
        metric_error = _learning_error(scale * c_n(gamma, sweeps), early_stop, transport_error, gamma)
        return delta / (1 - gamma) + 2 * gamma * (2 * eps + metric_error) / (1 - gamma) ** 2

    return _certificate(
        bound,
        "API, if the policies converge (eq. 16)",
        *_paper_weights(c_R, c_T, gamma),
        *_loop(eps, delta, sweeps, scale=scale, early_stop=early_stop, transport_error=transport_error),
        *_naive(from_zero, alpha),
        _metric(certified_metric),
    )


def api_limit(  # noqa: PLR0913 (each is a condition of the theorem, by its name)
    eps: float,
    delta: float,
    *,
    gamma: float,
    sweeps: int,
    scale: float = 1.0,
    early_stop: float = 0.0,
    transport_error: float = 0.0,
    c_R: float = 1.0,
    c_T: float | None = None,
    certified_metric: bool = True,
    from_zero: bool = True,
    alpha: float = 1.0,
) -> Certificate:
    """Naive API: limsup ‖V^π_k − V*‖∞ ≤ δ/(1−γ)² + 2γ(2ε + c_n)/(1−γ)³ (eq. 17)."""
    c_T = gamma if c_T is None else c_T

    def bound() -> float:
        metric_error = _learning_error(scale * c_n(gamma, sweeps), early_stop, transport_error, gamma)
        return delta / (1 - gamma) ** 2 + 2 * gamma * (2 * eps + metric_error) / (1 - gamma) ** 3

    return _certificate(
        bound,
        "API in the limit (eq. 17)",
        *_paper_weights(c_R, c_T, gamma),
        *_loop(eps, delta, sweeps, scale=scale, early_stop=early_stop, transport_error=transport_error),
        *_naive(from_zero, alpha),
        _metric(certified_metric),
    )


def api_alpha_limit(  # noqa: PLR0913 (each is a condition of the theorem, by its name)
    eps: float,
    delta: float,
    alpha: float,
    *,
    gamma: float,
    sweeps: int,
    p: float = 1.0,
    scale: float = 1.0,
    early_stop: float = 0.0,
    transport_error: float = 0.0,
    exact: bool = True,
    warm: bool = True,
    c_R: float = 1.0,
    c_T: float | None = None,
) -> Certificate:
    """API(α) with warm-started metrics: limsup ≤ δ/(1−γ)² + 2γ(2ε + ᾱ c_n)/(1−γ)³ (eq. 26).

    Needs λ = 0, n > log((1−γ)/(1+γ))/log γ, and ᾱ ≤ 1 for the step size α.
    """
    c_T = gamma if c_T is None else c_T
    domain = (
        *_paper_weights(c_R, c_T, gamma),
        _step(alpha),
        _order(p),
        *_loop(eps, delta, sweeps, scale=scale, early_stop=early_stop, transport_error=transport_error),
    )
    sensible = all(holds for holds, _ in (_discount(gamma), _sweeps(sweeps), _step(alpha), _order(p)))
    bar = alpha_bar(alpha, gamma=gamma, sweeps=sweeps, p=p) if sensible else math.nan
    far_enough = sensible and c_bar_n(gamma, sweeps) < 1.0

    def bound() -> float:
        metric_error = _learning_error(bar * scale * c_n(gamma, sweeps), early_stop, transport_error, gamma)
        return delta / (1 - gamma) ** 2 + 2 * gamma * (2 * eps + metric_error) / (1 - gamma) ** 3

    return _certificate(
        bound,
        "API(α) in the limit (eq. 26)",
        *domain,
        (exact, "needs exact transport (λ = 0)"),
        (warm, "needs metrics that start from the last one"),
        (far_enough or not sensible, f"needs n > log((1−γ)/(1+γ))/log γ (n is {sweeps:g})"),
        (bar <= 1.0 or not sensible, f"needs ᾱ ≤ 1 (α = {alpha:.3g} gives {bar:.3g})"),
    )


def one_step_progress(
    error: float, alpha: float, *, gamma: float, greedy_error: float, evaluation_error: float
) -> Certificate:
    """‖V^π' − V*‖∞ ≤ (1−α+αγ)‖V^π − V*‖∞ + α (δ_GI + 2γ δ_PE)/(1−γ) for π' = απ_g + (1−α)π (eq. 19)."""

    def bound() -> float:
        loss = (greedy_error + 2.0 * gamma * evaluation_error) / (1.0 - gamma)
        return (1.0 - alpha + alpha * gamma) * error + alpha * loss

    return _certificate(
        bound,
        "one step of API(α) (eq. 19)",
        _share("α", alpha),
        _discount(gamma),
        *_not_negative(error=error, greedy_error=greedy_error, evaluation_error=evaluation_error),
    )


def api_errors_limit(*, gamma: float, greedy_error: float, evaluation_error: float) -> Certificate:
    """For any α: limsup ‖V^π_k − V*‖∞ ≤ limsup(δ_GI + 2γ δ_PE)/(1−γ)² (eq. 20)."""
    return _certificate(
        lambda: (greedy_error + 2.0 * gamma * evaluation_error) / (1.0 - gamma) ** 2,
        "API(α) from its errors, in the limit (eq. 20)",
        _discount(gamma),
        *_not_negative(greedy_error=greedy_error, evaluation_error=evaluation_error),
    )


# ---- After the fact ----


def bellman_residual(V: Floats, TV: Floats, *, gamma: float, value_error: float = 0.0) -> Certificate:
    """‖V* − V^π‖∞ ≤ max(TV − V, 0)/(1−γ) for V = V^π, known up to `value_error`.

    T is monotone and a γ-contraction, and TV^π ≥ V^π.
    """

    def bound() -> float:
        rise = max(float(np.max(TV - V)), 0.0)
        return (rise + (1.0 + gamma) * value_error) / (1.0 - gamma)

    return _certificate(
        bound,
        "Bellman residual of V^π",
        *_finite(V=V, TV=TV),
        _discount(gamma),
        *_not_negative(value_error=value_error),
    )


def greedy_residual(V: Floats, TV: Floats, *, gamma: float, greedy_error: float = 0.0) -> Certificate:
    """‖V* − V^g‖∞ ≤ (δ + γ span(TV − V))/(1−γ) for a policy g with T_g V ≥ TV − δ, any V."""

    def bound() -> float:
        gap = TV - V
        return (greedy_error + gamma * float(np.max(gap) - np.min(gap))) / (1.0 - gamma)

    return _certificate(
        bound,
        "span of the Bellman residual, for a greedy policy",
        *_finite(V=V, TV=TV),
        _discount(gamma),
        *_not_negative(δ=greedy_error),
    )


def evaluation_residual(V: Floats, T_pi_V: Floats, *, gamma: float) -> Certificate:
    """‖V^π − V‖∞ ≤ ‖T_π V − V‖∞/(1−γ): the error of an (abstract) value function, after the fact."""
    return _certificate(
        lambda: float(np.max(np.abs(T_pi_V - V))) / (1.0 - gamma),
        "Bellman residual of an approximate value function",
        *_finite(V=V, T_pi_V=T_pi_V),
        _discount(gamma),
    )


def trivial(*, gamma: float, scale: float, value_error: float = 0.0) -> Certificate:
    """‖V* − V^π‖∞ ≤ span(R)/(1−γ): all values lie in an interval of this length, up to `value_error`."""
    return _certificate(
        lambda: scale / (1.0 - gamma) + value_error,
        "range of all values",
        _discount(gamma),
        *_not_negative(scale=scale, value_error=value_error),
    )


def best(*certificates: Certificate) -> Certificate:
    """The smallest rigorous bound; without one, the first certificate."""
    if not certificates:
        raise ValueError("best needs at least one certificate.")
    rigorous = [c for c in certificates if c.rigorous]
    return min(rigorous, key=lambda c: c.error) if rigorous else certificates[0]
