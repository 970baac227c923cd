"""Plain NumPy and SciPy, slow and obvious: the law that the fast kernels obey.

Distributions μ, ν and ground distances d are dense here; nothing is compressed, restarted or threaded.
"""

from __future__ import annotations

import numpy as np

from ..kinds import Floats
from ..transport import Exact, Independent, KLBall, Sinkhorn, Transport


def exact(d: Floats, mu: Floats, nu: Floats, p: float = 1.0) -> float:
    """W_p(d)(μ, ν) by linear programming."""
    from scipy.optimize import linprog

    i, j = np.flatnonzero(mu), np.flatnonzero(nu)
    C = d[np.ix_(i, j)] ** p
    n, m = C.shape
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    # One equation follows from the others; dropping it keeps the system consistent under rounding.
    answer = linprog(
        C.reshape(-1),
        A_eq=np.vstack([rows, columns])[:-1],
        b_eq=np.concatenate([mu[i], nu[j]])[:-1],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.fun is None:
        raise ArithmeticError(f"the linear program failed: {answer.message}")
    return float(max(answer.fun, 0.0) ** (1.0 / p))


def entropic_plan(d: Floats, mu: Floats, nu: Floats, reg: float, p: float = 1.0, iterations: int = 100_000) -> Floats:
    """argmin ⟨ω, d^p⟩ + λ KL(ω ‖ μ⊗ν) by Sinkhorn's iteration in the log domain [S, S]."""
    i, j = np.flatnonzero(mu), np.flatnonzero(nu)
    C, a, b = d[np.ix_(i, j)] ** p, mu[i], nu[j]
    f, g = np.zeros(len(i)), np.zeros(len(j))
    for _ in range(iterations):
        f = -reg * _log_sum_exp((g - C) / reg + np.log(b), axis=1)
        g_new = -reg * _log_sum_exp((f[:, None] - C) / reg + np.log(a)[:, None], axis=0)
        change, g = np.abs(g_new - g).max(), g_new
        if change <= 1e-14 * max(reg, C.max()):
            break
    plan = np.zeros_like(d)
    plan[np.ix_(i, j)] = a[:, None] * b[None, :] * np.exp((f[:, None] + g[None, :] - C) / reg)
    return plan


def _log_sum_exp(values: Floats, axis: int) -> Floats:
    top = values.max(axis=axis, keepdims=True)
    return np.asarray(np.log(np.exp(values - top).sum(axis=axis)) + np.squeeze(top, axis=axis))


def relative_entropy(plan: Floats, mu: Floats, nu: Floats) -> float:
    """KL(ω ‖ μ⊗ν)."""
    product = np.outer(mu, nu)
    inside = plan > 0.0
    return float(np.sum(plan[inside] * np.log(plan[inside] / product[inside])))


def sinkhorn(d: Floats, mu: Floats, nu: Floats, reg: float, p: float = 1.0, cost: str = "sharp") -> float:
    """The sharp cost ⟨ω*, d^p⟩^(1/p) or the value (⟨ω*, d^p⟩ + λ KL)^(1/p)."""
    plan = entropic_plan(d, mu, nu, reg, p)
    total = float(np.sum(plan * d**p))
    if cost == "value":
        total += reg * relative_entropy(plan, mu, nu)
    return float(max(total, 0.0) ** (1.0 / p))


def kl_ball(d: Floats, mu: Floats, nu: Floats, radius: float, p: float = 1.0) -> float:
    """min ‖d‖_{p,ω} over couplings with KL(ω ‖ μ⊗ν) ≤ radius, by bisection on log λ."""
    scale = max(float(d.max()) ** p, 1e-300)
    low, high = np.log(1e-3 * scale), np.log(1e6 * scale)
    if radius == 0.0:
        return independent(d, mu, nu, p)
    if relative_entropy(entropic_plan(d, mu, nu, float(np.exp(low)), p), mu, nu) <= radius:
        return exact(d, mu, nu, p)  # the limit of small λ, to 1e-3 of the scale
    for _ in range(60):
        middle = 0.5 * (low + high)
        kl = relative_entropy(entropic_plan(d, mu, nu, float(np.exp(middle)), p), mu, nu)
        low, high = (middle, high) if kl > radius else (low, middle)
    return sinkhorn(d, mu, nu, float(np.exp(high)), p)


def independent(d: Floats, mu: Floats, nu: Floats, p: float = 1.0) -> float:
    """(Σ μ_i ν_j d_ij^p)^(1/p)."""
    return float((mu @ d**p @ nu) ** (1.0 / p))


def transport(settings: Transport, d: Floats, mu: Floats, nu: Floats) -> float:
    """W for a transport's settings."""
    if isinstance(settings, Sinkhorn):
        return sinkhorn(d, mu, nu, settings.reg, settings.p, settings.cost)
    if isinstance(settings, KLBall):
        return kl_ball(d, mu, nu, settings.radius, settings.p)
    if isinstance(settings, Independent):
        return independent(d, mu, nu, settings.p)
    if isinstance(settings, Exact):
        return exact(d, mu, nu, settings.p)
    raise TypeError(f"there is no reference for {type(settings).__name__}.")


def operator(
    settings: Transport,
    d: Floats,
    choices: list[list[tuple[str, float, Floats]]],
    match: str,
    c_R: float,
    c_T: float,
    largest: float,
) -> Floats:
    """F(d) [S, S]; choices[s] lists (label, reward, distribution) of state s."""
    n = len(choices)
    new = np.zeros((n, n))

    def compare(x: tuple[str, float, Floats], y: tuple[str, float, Floats]) -> float:
        return c_R * abs(x[1] - y[1]) + c_T * transport(settings, d, x[2], y[2])

    for s in range(n):
        for t in range(s, n):
            if match == "hausdorff":
                table = np.array([[compare(x, y) for y in choices[t]] for x in choices[s]])
                new[s, t] = max(table.min(axis=1).max(), table.min(axis=0).max())
            elif {x[0] for x in choices[s]} != {y[0] for y in choices[t]}:
                new[s, t] = largest
            else:
                new[s, t] = max(compare(x, y) for x in choices[s] for y in choices[t] if x[0] == y[0])
            new[t, s] = new[s, t]
    zero = settings.axioms.zero_diagonal
    if zero:
        np.fill_diagonal(new, 0.0)
    return new
