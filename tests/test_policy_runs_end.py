"""How a run of policy iteration ends, what watches it, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from policy_runs import NOISY, chain, same

import bisimetric as bm


def test_stops_after_its_steps():
    run = bm.solve_policy(chain(), steps=4, **NOISY)
    assert run.status is bm.Status.STEPS
    assert len(run.history) == 4


def test_stops_where_nothing_changes():
    mdp = chain()
    run = bm.solve_policy(mdp, steps=100)
    assert run.status is bm.Status.SETTLED
    assert len(run.history) < 10
    longer = bm.solve_policy(mdp, steps=1, policy=run.policy)
    assert np.array_equal(longer.policy, run.policy)


@pytest.mark.parametrize("p", [1.0, 4.0])
def test_a_small_step_is_not_the_end(p):
    """A policy that moves slowly has not settled: it is far from the greedy one (p = 4 has α = 6e-15)."""
    run = bm.solve_policy(chain(), transport=bm.Exact(p), step_size=bm.Theoretical(), steps=6)
    assert run.error > 1.0
    assert run.status is bm.Status.STEPS


def test_stops_at_the_target():
    run = bm.solve_policy(chain(), target=0.5, steps=100)
    assert run.status is bm.Status.TARGET
    assert run.history[-1].bound <= 0.5 < run.history[-2].bound


@pytest.mark.parametrize("seed", range(4))
def test_a_policy_that_ends_at_the_target_meets_it(seed):
    """The bound that ends the run is the bound of the policy that is returned."""
    run = bm.solve_policy(chain(), greedy_noise=(0.05, 0.5), target=3.0, steps=60, seed=seed)
    assert run.status is bm.Status.TARGET
    assert run.certificate.error <= 3.0


def test_a_target_does_not_change_what_the_theorems_say():
    """The step size of the run is 1, which no theorem on warm starts covers, however the run ends."""
    run = bm.solve_policy(chain(), step_size=bm.Constant(1.0), target=0.5, steps=100)
    assert run.status is bm.Status.TARGET
    assert not run.theorems[2].rigorous, run.theorems[2]
    assert any("ᾱ ≤ 1" in text for text in run.theorems[2].failed)


def test_an_unmet_target_ends_by_steps():
    run = bm.solve_policy(chain(), target=1e-300, steps=3, **NOISY)
    assert run.status is bm.Status.STEPS


def test_observers_see_each_step_once_and_cannot_change_it():
    seen: list[bm.Step] = []

    def meddle(step: bm.Step) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            step.alpha = 0.0
        seen.append(step)

    watched = bm.solve_policy(chain(), steps=7, on_progress=meddle, **NOISY)
    assert seen == list(watched.history)
    same(watched, bm.solve_policy(chain(), steps=7, **NOISY))


def test_results_are_frozen():
    run = bm.solve_policy(chain(), steps=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.policy = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.history[0].error = 0.0


def test_an_interrupt_between_steps_keeps_what_was_done():
    def stop(step: bm.Step) -> None:
        if step.k == 3:
            raise KeyboardInterrupt

    run = bm.solve_policy(chain(), steps=9, on_progress=stop, **NOISY)
    assert run.status is bm.Status.INTERRUPTED
    whole = bm.solve_policy(chain(), steps=4, **NOISY)
    same(dataclasses.replace(run, status=whole.status), whole)


def test_an_interrupt_inside_a_step_leaves_no_part_of_it():
    """Policy, distance and partition that are returned belong to the same, last whole step."""

    class Stop(bm.EpsilonCover):
        def __call__(self, distance):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return super().__call__(distance)

    calls: list[int] = []
    run = bm.solve_policy(chain(), aggregation=Stop(0.1), steps=9, sweeps=2, **NOISY)
    assert run.status is bm.Status.INTERRUPTED
    whole = bm.solve_policy(chain(), aggregation=bm.EpsilonCover(0.1), steps=3, sweeps=2, lump=False, **NOISY)
    assert len(run.history) == 3
    assert np.array_equal(run.policy, whole.policy)
    assert run.partition == whole.partition
    assert np.array_equal(run.distance, whole.distance)


def test_an_interrupt_in_the_first_step_returns_the_first_policy():
    def stop(distance):
        raise KeyboardInterrupt

    mdp = chain()
    run = bm.solve_policy(mdp, aggregation=stop, steps=9)
    assert (run.status, run.history, run.theorems) == (bm.Status.INTERRUPTED, (), ())
    assert np.array_equal(run.policy, mdp.uniform_policy())
    assert 0.0 < run.error <= run.certificate.error


@pytest.mark.parametrize("shape", [(40,), (20, 2)])
def test_a_given_first_policy(shape):
    mdp = chain()
    policy = np.random.default_rng(0).dirichlet([1.0, 1.0], size=20).reshape(shape)
    run = bm.solve_policy(mdp, policy=policy, steps=1, step_size=bm.Constant(0.25))
    V = np.linalg.solve(np.eye(20) - 0.9 * mdp.under(policy).rows.matrix().toarray(), mdp.under(policy).rewards)
    assert run.history[0].error == pytest.approx(np.abs(run.optimal_value - V).max(), abs=1e-10)
    moved = run.policy - 0.75 * policy.reshape(-1)  # what is left is α times the greedy policy
    assert np.allclose(np.sort(moved.reshape(20, 2), axis=1), [0.0, 0.25])


def test_without_the_optimum():
    run = bm.solve_policy(chain(), steps=3, optimum=False, **NOISY)
    assert run.error is run.optimal_value is None
    assert {step.error for step in run.history} == {None}
    assert np.isnan(run.curve("error")).all()
    same(run, dataclasses.replace(run))
    full = bm.solve_policy(chain(), steps=3, **NOISY)
    assert np.array_equal(run.policy, full.policy)
    assert run.certificate == full.certificate


def test_curves():
    run = bm.solve_policy(chain(), steps=5, **NOISY)
    assert run.curve("alpha").tolist() == [step.alpha for step in run.history]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"sweeps": 0}, r"sweeps must be at least 1; got 0"),
        ({"steps": 0}, "steps must be at least 1; got 0"),
        ({"early_stop": -1e-3}, "early_stop must not be negative"),
        ({"target": 0.0}, "target must be positive"),
        ({"target": float("nan")}, "target must be positive"),
        ({"greedy_noise": (0.1, 0.05)}, r"greedy_noise must be \(low, high\)"),
        ({"greedy_noise": (0.1, 0.1)}, r"greedy_noise must be \(low, high\)"),
        ({"greedy_noise": (-0.1, 0.1)}, r"greedy_noise must be \(low, high\)"),
        ({"greedy_noise": (float("nan"), 0.1)}, r"greedy_noise must be \(low, high\)"),
        ({"policy": np.ones(40)}, "must sum to 1; state 0 sums to 2"),
        ({"policy": np.ones(3)}, "one probability per choice"),
        ({"policy": np.tile([1.5, -0.5], 20)}, "not negative"),
        ({"aggregation": bm.KMedoids(21), "lump": False}, "k = 21 classes cannot be made of 20 states"),
        ({"step_size": bm.Theoretical(), "sweeps": 5}, "use sweeps = 28"),
        ({"device": "tpu"}, 'device must be "cpu"'),
        ({"dtype": "float16"}, "dtype must be"),
    ],
)
def test_bad_input(setting, message):
    with pytest.raises(ValueError, match=message):
        bm.solve_policy(chain(), **setting)
