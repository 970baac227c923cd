"""Certificates: the formulas of the paper, and what is said where a condition of a theorem fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from transport_blocks import distances

import bisimetric as bm
from bisimetric import certificates as c

WARM = {"gamma": 0.9, "sweeps": 40}


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (c.policy_value_error(0.1, gamma=0.9, c_T=0.8), "c_T ≥ γ (0.8 < 0.9)"),
        (c.optimal_value_error(0.1, gamma=0.9, c_T=0.8), "c_T ≥ γ (0.8 < 0.9)"),
        (c.policy_value_error(0.1, gamma=0.9, c_R=0.0), "c_R > 0"),
        (c.optimal_value_error(0.1, gamma=0.9, c_R=0.0), "c_R > 0"),
        (c.policy_value_error(0.1, gamma=0.9, certified_metric=False), "sharp Sinkhorn"),
        (c.optimal_value_error(0.1, gamma=0.9, certified_metric=False), "sharp Sinkhorn"),
        (
            c.value_error_with_models(
                0.1, gamma=0.9, metric_error=0.1, reward_error=0.1, model_error=0.1, certified_metric=False
            ),
            "sharp Sinkhorn",
        ),
        (
            c.value_error_with_models(0.1, gamma=0.9, metric_error=0, reward_error=0, model_error=0, c_T=0.5),
            "c_T ≥ γ (0.5 < 0.9)",
        ),
        (
            c.value_error_with_models(0.1, gamma=0.9, metric_error=0, reward_error=0, model_error=0, c_R=0.0),
            "c_R > 0",
        ),
        (c.metric_change(0.1, p=1.0, c_T=0.9, exact=False), "exact transport (λ = 0)"),
        (c.metric_change_tight(0.1, p=1.0, c_T=0.9, exact=False), "exact transport (λ = 0)"),
        (c.api_converged(0.1, 0.1, **WARM, certified_metric=False), "sharp Sinkhorn"),
        (c.api_converged(0.1, 0.1, **WARM, from_zero=False), "from 0 at every policy"),
        (c.api_converged(0.1, 0.1, **WARM, alpha=0.5), "α = 1 (it is 0.5)"),
        (c.api_converged(0.1, 0.1, **WARM, c_R=2.0), "c_R = 1"),
        (c.api_limit(0.1, 0.1, **WARM, certified_metric=False), "sharp Sinkhorn"),
        (c.api_limit(0.1, 0.1, **WARM, from_zero=False), "from 0 at every policy"),
        (c.api_limit(0.1, 0.1, **WARM, alpha=0.5), "α = 1 (it is 0.5)"),
        (c.api_limit(0.1, 0.1, **WARM, c_T=0.95), "c_T = γ"),
        (c.api_alpha_limit(0.1, 0.1, 1e-4, gamma=0.9, sweeps=27), "n > log((1−γ)/(1+γ))/log γ (n is 27)"),
        (c.api_alpha_limit(0.1, 0.1, 0.5, **WARM), "ᾱ ≤ 1 (α = 0.5"),
        (c.api_alpha_limit(0.1, 0.1, 1e-4, **WARM, exact=False), "exact transport (λ = 0)"),
        (c.api_alpha_limit(0.1, 0.1, 1e-4, **WARM, warm=False), "start from the last one"),
        (c.api_alpha_limit(0.1, 0.1, 1e-4, **WARM, c_T=0.95), "c_T = γ"),
        (c.one_step_progress(1.0, 1.5, gamma=0.9, greedy_error=0.1, evaluation_error=0.1), "α in [0, 1] (1.5)"),
    ],
)
def test_a_condition_that_fails_is_named(certificate, words):
    assert not certificate.rigorous
    assert math.isnan(certificate.error)
    assert any(words in text for text in certificate.failed), certificate.failed
    assert str(certificate).startswith("no bound from")
    assert words in str(certificate)


def test_all_conditions_that_fail_are_named():
    certificate = c.api_alpha_limit(0.1, 0.1, 1.0, gamma=0.9, sweeps=5, exact=False, warm=False, c_R=2.0)
    assert len(certificate.failed) == 5


def test_formulas_of_the_paper():
    gamma, eps, delta, n = 0.9, 0.1, 0.05, 40
    c_n = gamma**n / (1 - gamma)
    assert c.c_n(gamma, n) == pytest.approx(c_n)
    assert c.c_bar_n(gamma, n) == pytest.approx(1.9 * c_n)
    for certificate, wanted in (
        (c.policy_value_error(eps, gamma=gamma, c_R=2.0, metric_error=0.3), (0.2 + 0.3) / (2 * 0.1)),
        (c.optimal_value_error(eps, gamma=gamma, c_R=2.0, metric_error=0.3), (0.2 + 0.3) / (2 * 0.1)),
        (
            c.value_error_with_models(
                eps, gamma=gamma, metric_error=0.3, reward_error=0.01, model_error=0.02, c_R=2.0, c_T=0.95
            ),
            (0.2 + 0.3 + 4 / 0.05 * 0.01 + 1.9 / 0.05 * 0.02) / (2 * 0.1),
        ),
        (c.metric_change(0.04, p=2.0, c_T=0.9, c_R=3.0, scale=8.0), 2 * 3 * 8 / 0.01 * 0.2),
        (c.metric_change_tight(0.04, p=2.0, c_T=0.9, c_R=3.0, scale=8.0), 2 * 24 / 0.1 * (0.04 + 9 * 0.2)),
        (c.api_converged(eps, delta, gamma=gamma, sweeps=n), delta / 0.1 + 1.8 * (0.2 + c_n) / 0.01),
        (c.api_limit(eps, delta, gamma=gamma, sweeps=n), delta / 0.01 + 1.8 * (0.2 + c_n) / 0.001),
        (c.api_limit(eps, delta, gamma=gamma, sweeps=n, scale=8.0), delta / 0.01 + 1.8 * (0.2 + 8 * c_n) / 0.001),
        (
            c.one_step_progress(2.0, 0.3, gamma=gamma, greedy_error=0.1, evaluation_error=0.2),
            0.97 * 2.0 + 0.3 * (0.1 + 1.8 * 0.2) / 0.1,
        ),
        (c.api_errors_limit(gamma=gamma, greedy_error=0.1, evaluation_error=0.2), (0.1 + 1.8 * 0.2) / 0.01),
        (c.trivial(gamma=gamma, scale=8.0), 80.0),
    ):
        assert certificate.rigorous
        assert certificate.error == pytest.approx(wanted, rel=1e-9)
    alpha = 1e-3
    bar = 2 * alpha / ((1 - 1.9 * c_n) * 0.1)
    certificate = c.api_alpha_limit(eps, delta, alpha, gamma=gamma, sweeps=n)
    assert bar < 1.0
    assert certificate.error == pytest.approx(delta / 0.01 + 1.8 * (0.2 + bar * c_n) / 0.001, rel=1e-9)
    assert certificate.error < c.api_limit(eps, delta, gamma=gamma, sweeps=n).error


def test_an_early_stop_is_paid_for():
    """A sweep that changed d by ρ leaves an error of γρ/(1−γ), whatever the number of sweeps."""
    for bound in (c.api_converged, c.api_limit):
        late, early = (bound(0.1, 0.1, gamma=0.9, sweeps=500, early_stop=stop).error for stop in (0.0, 0.01))
        share = 2 * 0.9 * 0.09 / 0.1 ** (2 if bound is c.api_converged else 3)
        assert early - late == pytest.approx(share, rel=1e-6)
        assert bound(0.1, 0.1, gamma=0.9, sweeps=5, early_stop=1e-9) == bound(0.1, 0.1, gamma=0.9, sweeps=5)


def test_bounds_from_residuals():
    V, TV = np.array([0.0, 1.0, 5.0]), np.array([0.5, 0.9, 5.2])
    assert c.bellman_residual(V, TV, gamma=0.5).error == pytest.approx(1.0)
    assert c.bellman_residual(V, TV, gamma=0.5, value_error=0.1).error == pytest.approx(1.0 + 0.3)
    assert c.bellman_residual(V, V - 1.0, gamma=0.5).error == 0.0
    assert c.evaluation_residual(V, TV, gamma=0.5).error == pytest.approx(1.0)
    assert c.greedy_residual(V, TV, gamma=0.5).error == pytest.approx(0.6)
    assert c.greedy_residual(V, TV, gamma=0.5, greedy_error=0.2).error == pytest.approx(1.0)


def test_best_is_the_smallest_rigorous_one():
    good, better = bm.Certificate(2.0, True, "good"), bm.Certificate(1.0, True, "better")
    guess, failed = bm.Certificate(0.1, False, "guess"), bm.Certificate(math.nan, False, "failed", ("why",))
    assert c.best(guess, good, failed, better) is better
    assert c.best(failed, good) is good
    assert c.best(failed, guess) is failed


def test_text():
    assert str(bm.Certificate(0.1234, True, "theorem")) == "rigorous error 0.123 (theorem)"
    assert str(bm.Certificate(0.1234, False, "guess")) == "heuristic error 0.123 (guess)"


@pytest.mark.parametrize(
    ("settings", "rigorous"),
    [
        ({"restart_metric": True}, (True, True, False)),
        ({"restart_metric": True, "transport": bm.Sinkhorn(1.0)}, (False, False, False)),
        ({"restart_metric": True, "transport": bm.Sinkhorn(1.0, cost="value")}, (True, True, False)),
        ({"restart_metric": True, "transport": bm.Independent()}, (True, True, False)),
        ({"restart_metric": True, "step_size": bm.Constant(0.5)}, (False, False, False)),
        ({"step_size": bm.Theoretical(0.9)}, (False, False, True)),
        ({"step_size": bm.Theoretical(0.9), "transport": bm.Exact(2.0)}, (False, False, True)),
        ({"step_size": bm.Theoretical(0.9), "transport": bm.KLBall(0.1)}, (False, False, False)),
        ({"step_size": bm.Theoretical(0.9), "restart_metric": True}, (False, False, False)),
        ({"step_size": bm.Constant(1e-5), "sweeps": 27}, (False, False, False)),
        ({}, (False, False, False)),
    ],
)
def test_which_theorems_cover_a_run(settings, rigorous):
    mdp = bm.problems.chain(n_states=8, n_classes=4)
    run = bm.solve_policy(mdp, steps=2, **settings)
    assert tuple(theorem.rigorous for theorem in run.theorems) == rigorous
    assert run.certificate.rigorous
    assert run.error <= run.certificate.error + 1e-10


GOOD: dict = {
    c.optimal_value_error: {"eps": 0.1, "gamma": 0.9, "c_R": 1.0, "c_T": 0.9, "metric_error": 0.1},
    c.policy_value_error: {"eps": 0.1, "gamma": 0.9, "c_R": 1.0, "c_T": 0.9, "metric_error": 0.1},
    c.value_error_with_models: {
        "eps": 0.1,
        "gamma": 0.9,
        "metric_error": 0.1,
        "reward_error": 0.1,
        "model_error": 0.1,
        "c_R": 1.0,
        "c_T": 0.9,
        "triangle": True,
    },
    c.metric_change: {"total_variation": 0.1, "p": 2.0, "c_T": 0.9, "c_R": 1.0, "scale": 1.0},
    c.metric_change_tight: {"total_variation": 0.1, "p": 2.0, "c_T": 0.9, "c_R": 1.0, "scale": 1.0},
    c.api_converged: {
        "eps": 0.1,
        "delta": 0.1,
        "gamma": 0.9,
        "sweeps": 40,
        "scale": 1.0,
        "early_stop": 0.1,
        "transport_error": 0.1,
        "alpha": 1.0,
    },
    c.api_limit: {
        "eps": 0.1,
        "delta": 0.1,
        "gamma": 0.9,
        "sweeps": 40,
        "scale": 1.0,
        "early_stop": 0.1,
        "transport_error": 0.1,
        "alpha": 1.0,
    },
    c.api_alpha_limit: {
        "eps": 0.1,
        "delta": 0.1,
        "alpha": 1e-4,
        "gamma": 0.9,
        "sweeps": 40,
        "p": 1.0,
        "scale": 1.0,
        "early_stop": 0.1,
        "transport_error": 0.1,
    },
    c.one_step_progress: {"error": 1.0, "alpha": 0.5, "gamma": 0.9, "greedy_error": 0.1, "evaluation_error": 0.1},
    c.api_errors_limit: {"gamma": 0.9, "greedy_error": 0.1, "evaluation_error": 0.1},
    c.bellman_residual: {"V": np.zeros(2), "TV": np.ones(2), "gamma": 0.9, "value_error": 0.1},
    c.greedy_residual: {"V": np.zeros(2), "TV": np.ones(2), "gamma": 0.9, "greedy_error": 0.1},
    c.evaluation_residual: {"V": np.zeros(2), "T_pi_V": np.ones(2), "gamma": 0.9},
    c.trivial: {"gamma": 0.9, "scale": 1.0, "value_error": 0.1},
}
TOO_LARGE = {"gamma": 1.0, "c_T": 1.0, "alpha": 1.5, "total_variation": 1.5}
TOO_SMALL = {"p": 0.5, "sweeps": 0}


@pytest.mark.parametrize("bound", GOOD, ids=lambda bound: bound.__name__)
def test_every_argument_has_a_domain(bound):
    """No number, and never an error, for arguments outside; a number for those inside."""
    assert bound(**GOOD[bound]).rigorous
    for name, value in GOOD[bound].items():
        if name == "triangle":
            bad = [False]
        elif isinstance(value, np.ndarray):
            bad = [value * np.nan, value + np.inf, np.zeros(3)]
        else:
            bad = [math.nan, math.inf, -math.inf, TOO_SMALL.get(name, -0.5), TOO_LARGE.get(name, math.nan)]
        for x in bad:
            certificate = bound(**{**GOOD[bound], name: x})
            assert not certificate.rigorous, (name, x)
            assert math.isnan(certificate.error), (name, x)
            assert certificate.failed, (name, x)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (c.c_n, {"gamma": 1.0, "sweeps": 3}),
        (c.c_n, {"gamma": 0.9, "sweeps": 0}),
        (c.c_bar_n, {"gamma": math.nan, "sweeps": 3}),
        (c.alpha_bar, {"alpha": 0.0, "gamma": 0.9, "sweeps": 40, "p": 1.0}),
        (c.alpha_bar, {"alpha": 0.1, "gamma": 0.9, "sweeps": 40, "p": 0.5}),
        (c.alpha_bar, {"alpha": 0.1, "gamma": -0.1, "sweeps": 40, "p": 1.0}),
        (c.best, {}),
    ],
)
def test_numbers_outside_their_domain_are_refused(function, arguments):
    with pytest.raises(ValueError, match=r"[Nn]eeds"):
        function(**arguments)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_value_cost_keeps_the_triangle_inequality(p):
    """As its axioms say, on which `value_error_with_models` may rest: random triples under random metrics."""
    rng = np.random.default_rng(0)
    way = bm.Sinkhorn(0.7, p, cost="value")
    assert way.axioms.triangle
    for _ in range(30):
        x = rng.random((5, 2))
        d = np.sqrt(((x[:, None] - x[None, :]) ** 2).sum(axis=2))
        W = distances(way, rng.dirichlet(np.full(5, 0.5), 3), d)
        assert (W[0, 2] <= W[0, 1] + W[1, 2] + 1e-9).all()


def test_numbers_at_the_edge_of_what_there_is():
    tiny = c.optimal_value_error(0.1, gamma=0.9, c_R=5e-324)
    assert "c_R" in tiny.failed[0]
    assert "at least one state" in c.bellman_residual(np.array([]), np.array([]), gamma=0.9).failed[0]
    assert "whole number" in c.api_converged(0.1, 0.1, gamma=0.9, sweeps=2.5).failed[0]
    assert c.optimal_value_error(1e308, gamma=0.99).error == np.inf
