"""Step sizes: values, limits, and the theorem's choice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bisimetric as bm
from bisimetric import certificates

SETTING = {"gamma": 0.9, "sweeps": 28, "p": 1.0}
gammas = st.floats(0.05, 0.995)


@given(st.floats(1e-9, 1.0), st.integers(1, 10**6))
def test_constant(alpha, k):
    assert bm.Constant(alpha)(k, **SETTING) == alpha


def test_default_is_a_whole_step():
    assert bm.Constant()(3, **SETTING) == 1.0


@given(st.floats(0.01, 5.0), st.floats(1e-6, 1.0), st.integers(1, 10**6))
def test_power_decay(power, floor, k):
    alpha = bm.PowerDecay(power, floor)
    assert alpha(1, **SETTING) == 1.0
    assert alpha(k, **SETTING) == pytest.approx(max(floor, k**-power), rel=1e-12)
    assert floor <= alpha(k + 1, **SETTING) <= alpha(k, **SETTING) <= 1.0


def test_power_decay_of_the_paper():
    alpha = bm.PowerDecay(0.8, floor=2**-6)
    assert bm.PowerDecay() == alpha
    assert alpha(10, **SETTING) == pytest.approx(10**-0.8)
    assert alpha(181, **SETTING) > 2**-6 == alpha(182, **SETTING) == alpha(10**9, **SETTING)


def needed(gamma: float) -> int:
    """The smallest n with (1+γ)γ^n/(1−γ) < 1, by counting."""
    n = 0
    while (1.0 + gamma) * gamma**n / (1.0 - gamma) >= 1.0:
        n += 1
    return n


@settings(max_examples=200)
@given(gammas, st.floats(1e-3, 1.0), st.integers(0, 60), st.sampled_from([1.0, 1.5, 2.0]))
def test_theoretical_is_the_theorem(gamma, alpha_bar, extra, p):
    n = needed(gamma) + extra
    c_bar = (1.0 + gamma) * gamma**n / (1.0 - gamma)
    wanted = (alpha_bar * (1.0 - c_bar) * (1.0 - gamma) / 2.0) ** p
    alpha = bm.Theoretical(alpha_bar)(7, gamma=gamma, sweeps=n, p=p)
    assert alpha == pytest.approx(wanted, rel=1e-9)
    assert 0.0 < alpha < 1.0
    back = certificates.alpha_bar(alpha, gamma=gamma, sweeps=n, p=p)
    assert back == pytest.approx(alpha_bar, rel=1e-9)
    assert back <= alpha_bar
    assert certificates.api_alpha_limit(0.1, 0.1, alpha, gamma=gamma, sweeps=n, p=p).rigorous


@settings(max_examples=200)
@given(gammas)
def test_theoretical_refuses_too_few_sweeps_and_names_enough(gamma):
    n = needed(gamma)
    for few in range(1, n):
        with pytest.raises(ValueError, match=f"too few.*use sweeps = {n} or more"):
            bm.Theoretical()(1, gamma=gamma, sweeps=few, p=1.0)
        assert certificates.alpha_bar(0.1, gamma=gamma, sweeps=few, p=1.0) == math.inf
    assert bm.Theoretical()(1, gamma=gamma, sweeps=max(n, 1), p=1.0) > 0.0


def test_theoretical_of_the_paper():
    """γ = 0.9 needs 28 sweeps; c̄_28 is about 0.994 and α about 2.8e-4 (paper-notes, decision 14)."""
    with pytest.raises(ValueError, match=r"27 sweeps a step are too few.* gamma = 0.9; use sweeps = 28 or more"):
        bm.Theoretical()(1, gamma=0.9, sweeps=27, p=1.0)
    assert certificates.c_bar_n(0.9, 28) == pytest.approx(0.994, abs=5e-4)
    assert bm.Theoretical()(1, **SETTING) == pytest.approx(2.8e-4, abs=5e-6)


def test_a_run_refuses_too_few_sweeps_before_it_begins():
    seen = []
    mdp = bm.problems.chain(n_states=4, n_classes=2)
    with pytest.raises(ValueError, match="use sweeps = 28"):
        bm.solve_policy(mdp, step_size=bm.Theoretical(), sweeps=27, on_progress=seen.append)
    assert seen == []


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.0 + 1e-12, np.nan, np.inf])
def test_step_sizes_must_be_in_range(bad):
    for make, name in ((bm.Constant, "alpha"), (bm.Theoretical, "alpha_bar"), (lambda x: bm.PowerDecay(1, x), "floor")):
        with pytest.raises(ValueError, match=rf"{name} must be in \(0, 1\]; got {bad}"):
            make(bad)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_power_must_be_positive(bad):
    with pytest.raises(ValueError, match=f"power must be positive; got {bad}"):
        bm.PowerDecay(bad)


def test_frozen():
    for schedule in (bm.Constant(), bm.PowerDecay(), bm.Theoretical()):
        with pytest.raises(AttributeError):
            schedule.alpha = schedule.floor = schedule.alpha_bar = 0.5
