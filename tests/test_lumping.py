"""Exact bisimulation classes: counts of real models, a naive refinement, the metric, and the way back."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import bisimetric as bm
from bisimetric.values import best_values, policy_values

MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
MATCHES = ("labels", "hausdorff")
SPLITS = {
    10: [(1.0,), (0.3, 0.7), (0.1, 0.2, 0.7), (0.7, 0.2, 0.1)],
    7: [(0.7,), (0.2, 0.5), (0.1, 0.6)],
    5: [(0.5,), (0.2, 0.3), (0.1, 0.4)],
    3: [(0.3,), (0.1, 0.2), (0.1 + 0.2,)],
}
REWARDS = ((0.0,), (0.3, 0.1 + 0.2), (1.0,), (-0.5,))


@st.composite
def models(draw, *, unique_labels=True, most_classes=4):
    """MDPs with bisimilar and nearly bisimilar states: copies whose mass is split otherwise and whose choices move."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    k = draw(st.integers(1, most_classes), label="classes")
    copies = rng.integers(1, 4, size=k)
    members = np.split(rng.permutation(copies.sum()), np.cumsum(copies)[:-1])
    plans = []
    for _ in range(k):
        choices = []
        for _ in range(rng.integers(1, 4)):
            masses = [(10,), (3, 7), (5, 5)][rng.integers(3)]
            targets = [int(rng.integers(k)) for _ in masses]
            choices.append((masses, targets, int(rng.integers(len(REWARDS)))))
        plans.append(choices)
    n, shuffle = int(copies.sum()), draw(st.booleans(), label="choices moved")
    owner = np.empty(n, np.int64)
    for i, states in enumerate(members):
        owner[states] = i
    rows, rewards, labels, pointers = [], [], [], [0]
    for s in range(n):
        plan = [(choice, a) for a, choice in enumerate(plans[owner[s]])]
        if shuffle:
            plan = [plan[i] for i in rng.permutation(len(plan))]
        if rng.random() < 0.3:
            plan.append((plan[0][0], plan[0][1] if not unique_labels else 3))  # the same choice again
        for (masses, targets, reward), label in plan:
            row = np.zeros(n)
            for mass, target in zip(masses, targets, strict=True):
                ways = SPLITS[mass]
                for part in ways[rng.integers(len(ways))]:
                    row[rng.choice(members[target])] += part
            rows.append(row)
            rewards.append(rng.choice(REWARDS[reward]))
            labels.append("abcd"[label])
        pointers.append(len(rows))
    named = labels if draw(st.booleans(), label="named") else None
    mdp = bm.MDP.from_choices(np.array(rows), np.array(rewards), pointers, 0.8, named)
    return with_labels(mdp, x=rng.random(n) < 0.15) if draw(st.booleans(), label="labels") else mdp


def with_labels(mdp, **labels):
    return dataclasses.replace(mdp, state_labels={name: np.array(v, bool) for name, v in labels.items()})


def naive(mdp, match, names=()):
    """Classes by signatures in exact fractions, as sets of states."""
    P = mdp.rows.matrix().toarray()
    exact = [[Fraction(float(p)).limit_denominator(1000) for p in row] for row in P]
    reward = [Fraction(float(r)).limit_denominator(1000) for r in mdp.rewards]
    of = [tuple(bool(mdp.state_labels[name][s]) for name in names) for s in range(mdp.n_states)]
    while True:
        signatures = []
        for s in range(mdp.n_states):
            choices = set()
            for c in range(mdp.choice_ptr[s], mdp.choice_ptr[s + 1]):
                mass = {}
                for t, p in enumerate(exact[c]):
                    if p:
                        mass[of[t]] = mass.get(of[t], 0) + p
                label = int(mdp.action_of_choice[c]) if match == "labels" else None
                choices.add((label, reward[c], frozenset(mass.items())))
            signatures.append((of[s], frozenset(choices)))
        numbers = {signature: i for i, signature in enumerate(dict.fromkeys(signatures))}
        if len(numbers) == len(set(of)):
            return as_sets(of)
        of = [numbers[signature] for signature in signatures]


def as_sets(labels):
    classes = {}
    for s, label in enumerate(labels):
        classes.setdefault(label, set()).add(s)
    return {frozenset(states) for states in classes.values()}


def permuted(mdp, rng):
    """The same model with its states, and the choices of each, in another order; and the new place of each state."""
    order = rng.permutation(mdp.n_states)  # order[new] = old
    place = np.argsort(order)
    chosen = [rng.permutation(np.arange(mdp.choice_ptr[s], mdp.choice_ptr[s + 1])) for s in order]
    flat = np.concatenate(chosen)
    P = mdp.rows.matrix().toarray()[flat][:, order]
    names = [mdp.action_labels[mdp.action_of_choice[c]] for c in flat]
    pointers = np.concatenate([[0], np.cumsum([len(c) for c in chosen])])
    other = bm.MDP.from_choices(P, mdp.rewards[flat], pointers, mdp.gamma, names)
    return with_labels(other, **{name: holds[order] for name, holds in mdp.state_labels.items()}), place


def shared_cases():
    if not (MODELS / "expected.json").exists():
        return [pytest.param(None, None, None, None, marks=pytest.mark.skip(reason=f"{MODELS} is not there"))]
    expected = json.loads((MODELS / "expected.json").read_text())
    return [
        pytest.param(f"{name}.{ending}", match, reward, count, id=f"{name}-{ending}-{match}-{reward}")
        for name, facts in expected.items()
        for ending in ("drn", "umb")
        for match, counts in facts["classes"].items()
        for reward, count in counts.items()
    ]


@pytest.mark.parametrize(("file", "match", "reward", "count"), shared_cases())
def test_class_counts_of_real_models(file, match, reward, count):
    mdp = bm.read(MODELS / file, 0.9)
    rewards = {"none": None, "all": "all"}.get(reward, [reward])
    lumping = bm.lump(mdp, match, rewards=rewards)
    assert lumping.n_classes == count == lumping.quotient.n_states
    assert bm.lump(lumping.quotient, match, rewards=rewards).n_classes == count


@pytest.mark.parametrize("match", MATCHES)
@given(models(unique_labels=False), st.integers(0, 99))
def test_agrees_with_a_naive_refinement_in_any_order(match, mdp, seed):
    lumping = bm.lump(mdp, match)
    classes = as_sets(lumping.class_of)
    assert classes == naive(mdp, match, tuple(mdp.state_labels))
    assert as_sets(bm.lump(mdp, match, respect=()).class_of) == naive(mdp, match)
    other, place = permuted(mdp, np.random.default_rng(seed))
    assert as_sets(bm.lump(other, match).class_of) == {frozenset(place[list(states)].tolist()) for states in classes}
    again = bm.lump(lumping.quotient, match)
    assert again.n_classes == again.n_states == lumping.n_classes
    assert np.array_equal(lumping.class_of[lumping.medoids], np.arange(lumping.n_classes))


@pytest.mark.parametrize("match", MATCHES)
@given(models(most_classes=3))
def test_classes_are_the_states_at_distance_zero(match, mdp):
    assume(mdp.reward_span == 0.0 or mdp.reward_span > 1e-9)  # else all distances are as small as that rounding
    lumping = bm.lump(mdp, match)
    d = bm.solve_metric(mdp, match=match, tol=1e-8, lump=False).distance
    same = lumping.class_of[:, None] == lumping.class_of[None, :]
    assert d[same].max() <= 1e-8
    assert not (~same).any() or d[~same].min() > 1e-5


@pytest.mark.parametrize("match", MATCHES)
@given(models())
def test_lumped_metric_is_the_metric(match, mdp):
    for model, setting in ((mdp, {"match": match}), (mdp.under(mdp.uniform_policy()), {})):
        plain, lumped = (bm.solve_metric(model, tol=1e-7, lump=lump, **setting) for lump in (False, True))
        assert plain.converged
        assert lumped.converged
        assert lumped.distance.shape == plain.distance.shape
        assert np.abs(plain.distance - lumped.distance).max() <= plain.error + lumped.error
        lower, upper = lumped.bracket()
        assert np.all(lower <= plain.distance + plain.error)
        assert np.all(plain.distance - plain.error <= upper)


@pytest.mark.parametrize("match", MATCHES)
@given(models(unique_labels=False), st.integers(0, 99))
def test_quotient_has_the_same_values_and_policies(match, mdp, seed):
    lumping = bm.lump(mdp, match)
    small = lumping.quotient
    best, _ = best_values(mdp)
    assert np.abs(lumping.lift(best_values(small)[0]) - best).max() < 1e-9
    rng = np.random.default_rng(seed)
    policy = np.concatenate([rng.dirichlet(np.ones(k)) for k in np.diff(small.choice_ptr)])
    lifted = mdp.check_policy(lumping.lift_policy(policy))
    value = policy_values(mdp.under(lifted), np.zeros(mdp.n_states))[0]
    assert np.abs(lumping.lift(policy_values(small.under(policy), np.zeros(small.n_states))[0]) - value).max() < 1e-9


@pytest.mark.parametrize("lump", [True, None])
@given(mdp=models())
def test_policies_found_on_classes_are_certified_on_states(lump, mdp):
    certified_run(mdp, lump=lump)


@given(models(unique_labels=False))
def test_choices_that_are_there_twice_do_not_stop_policy_iteration(mdp):
    """Where the uniform policy tells bisimilar states apart, lumping is left out; it must never fail."""
    certified_run(mdp)


def test_every_state_has_its_only_choice_twice():
    P = np.array([[0.0, 1.0]] * 4)
    certified_run(bm.MDP.from_choices(P, np.ones(4), [0, 2, 4], 0.9, ["a"] * 4))


def certified_run(mdp, **setting):
    run = bm.solve_policy(mdp, steps=6, aggregation=bm.EpsilonCover(0.2), **setting)
    value = policy_values(mdp.under(mdp.check_policy(run.policy)), np.zeros(mdp.n_states))[0]
    best, error = best_values(mdp)
    assert np.abs(run.value - value).max() < 1e-9
    assert np.abs(best - value).max() <= run.certificate.error + error + 1e-12
    assert np.abs(run.optimal_value - best).max() < 1e-9
    assert run.distance.shape == (mdp.n_states, mdp.n_states)


def twins(**labels):
    """Two states alike but for their labels, and a third one that earns."""
    P = np.array([[0, 0, 1.0], [0, 0, 1.0], [0, 0, 1.0]])[:, None]
    return with_labels(bm.MDP.from_arrays(P, [0.0, 0.0, 1.0], 0.5, axes="sas"), **labels)


@pytest.mark.parametrize("match", MATCHES)
def test_labels_of_states(match):
    mdp = twins(goal=[1, 0, 0], init=[1, 0, 0], deadlock=[0, 1, 0])
    assert bm.lump(mdp, match).n_classes == 3
    assert as_sets(bm.lump(mdp, match, respect=()).class_of) == {frozenset({0, 1}), frozenset({2})}
    assert bm.lump(mdp, match, respect=("init",)).n_classes == 3
    assert bm.lump(mdp, match, respect=["deadlock"]).n_classes == 3
    assert bm.lump(twins(init=[1, 0, 0], deadlock=[0, 1, 0]), match).n_classes == 2
    assert set(bm.lump(mdp, match).quotient.state_labels) == {"goal", "init", "deadlock"}
    for lump in (False, True):
        d = bm.solve_metric(mdp, match=match, lump=lump, tol=1e-9)
        assert d.distance[0, 1] == d.distance[0, 2] == d.largest == 2.0
        assert d.distance[1, 2] < 2.0
        assert bm.solve_metric(mdp, match=match, respect=(), lump=lump).distance[0, 1] == 0.0
    with pytest.raises(bm.ModelError, match=r"no label 'x' to respect.*goal"):
        bm.lump(mdp, match, respect=("x",))
    with pytest.raises(bm.ModelError, match="no label 'x'"):
        bm.solve_metric(mdp, match=match, respect=("x",))


def test_rewards_to_respect():
    mdp = dataclasses.replace(twins(), reward_models={"a": np.array([0.0, 1, 1]), "b": np.zeros(3)})
    counts = {"current": 2, None: 1, "none": 1, "all": 2, "a": 2, "b": 1, ("a", "b"): 2, (): 1}
    assert {key: bm.lump(mdp, rewards=key).n_classes for key in counts} == counts
    assert as_sets(bm.lump(mdp, rewards="a").class_of) == {frozenset({0}), frozenset({1, 2})}
    with pytest.raises(bm.ModelError, match=r"no reward model 'c'.*a, b"):
        bm.lump(mdp, rewards="c")


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("seed", range(3))
def test_classes_of_the_papers_first_problem(match, seed):
    mdp = bm.problems.chain(n_states=60, n_classes=12, seed=seed)
    assert np.array_equal(bm.lump(mdp, match).class_of, bm.Partition.from_classes(mdp.classes).class_of)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_line(reverse):
    n = 3000
    target = np.minimum(np.arange(n) + 1, n - 1)
    order = np.arange(n)[::-1] if reverse else np.arange(n)
    from scipy.sparse import csr_array

    P = csr_array((np.ones(n), (order, order[target])), shape=(n, n))
    rewards = np.zeros(n)
    assert bm.lump(bm.MDP.from_choices(P, rewards, np.arange(n + 1), 0.9)).n_classes == 1
    rewards[order[-1]] = 1.0
    assert bm.lump(bm.MDP.from_choices(P, rewards, np.arange(n + 1), 0.9)).n_classes == n


def test_settings_that_make_no_sense():
    mdp = twins()
    for setting, words in [
        ({"match": "chain"}, "match"),
        ({"tol": 0.0}, "tol"),
        ({"tol": 0.1}, "tol"),
        ({"tol": float("nan")}, "tol"),
        ({"tol": -1.0}, "tol"),
    ]:
        with pytest.raises(ValueError, match=words):
            bm.lump(mdp, **setting)
    for transport in (bm.Sinkhorn(0.5), bm.Independent()):
        with pytest.raises(ValueError, match="exact for Exact"):
            bm.solve_metric(mdp, transport, match="labels", lump=True)
    with pytest.raises(ValueError, match="exact for Exact"):
        bm.solve_policy(mdp, transport=bm.Sinkhorn(0.5), lump=True)


@pytest.mark.parametrize("tol", [1e-17, 1e-25, 1e-300])
def test_a_tolerance_finer_than_the_arithmetic_is_refused_or_right(tol):
    P = np.array([[0.25, 0.75, 0], [0.5, 0.5, 0], [0.0, 0.0, 1.0]])[:, None]
    mdp = bm.MDP.from_arrays(P, [0.0, 1.0, 0.25], 0.5, axes="sas")
    with contextlib.suppress(ValueError):
        assert bm.lump(mdp, tol=tol).n_classes == 3
