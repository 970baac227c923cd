"""Explanations of distances: they add up, they agree with the plain reference, and they refuse what is not so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import choices_of, random_chain, random_mdp

import bisimetric as bm
from bisimetric.backends import reference
from bisimetric.backends.plans import plan_of, transport_cost
from bisimetric.cli import run
from bisimetric.metric.explanation import Cause, Explanation

TRANSPORTS = [bm.Exact(), bm.Exact(2), bm.Independent(), bm.Sinkhorn(0.3, cost="value"), bm.KLBall(0.3)]


def check_sums(cause: Cause, scale: float) -> None:
    """Every pair that was looked into is the sum of its parts."""
    if cause.looked_into:
        parts = cause.reward_share + cause.reason_share + cause.entropy_share + cause.cut_share
        parts += sum(child.share for child in cause.causes)
        assert parts == pytest.approx(cause.share, rel=1e-9, abs=1e-12 * scale)
    for child in cause.causes:
        assert child.share <= cause.share * (1 + 1e-9)
        check_sums(child, scale)


def check(explanation: Explanation, solution: bm.MetricSolution, model: bm.Chain | bm.MDP) -> None:
    q = solution.question
    s, t = explanation.cause.states
    assert explanation.distance == solution.distance[s, t]
    assert abs(explanation.total - explanation.distance) <= explanation.allowed
    assert explanation.allowed < 3 * solution.error + 1e-9 * solution.largest
    check_sums(explanation.cause, solution.largest)
    own = sum(c.reward_share + c.reason_share + c.entropy_share for _, c in explanation.cause.walk() if c.looked_into)
    assert own + explanation.remainder == pytest.approx(explanation.total, rel=1e-8, abs=1e-12 * solution.largest)
    whole = sum(origin.share for origin in explanation.origins) + explanation.origins_remainder
    assert whole == pytest.approx(explanation.total, rel=1e-8, abs=1e-12 * solution.largest)
    if isinstance(q.transport, bm.KLBall):  # its reference takes minutes; the certificate has been checked above
        return
    F = reference.operator(
        q.transport, solution.distance, choices_of(model), q.match, q.reward_weight, q.transition_weight,
        solution.largest,
    )  # fmt: skip
    assert explanation.total == pytest.approx(F[s, t], rel=2e-6, abs=2e-6 * solution.largest)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
def test_shares_add_up_for_chains(transport):
    model = random_chain(3, 7)
    solution = bm.solve_metric(model, transport, tol=1e-7)
    for s, t in ((0, 1), (6, 3)):
        check(solution.explain(s, t, depth=3), solution, model)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["labels", "hausdorff"]), st.sampled_from([1.0, 2.0]))
def test_shares_add_up_for_choices(seed, match, p):
    model = random_mdp(seed, 5, ragged=seed % 2 == 0)
    solution = bm.solve_metric(model, bm.Exact(p), match=match, tol=1e-7)
    check(solution.explain(seed % 5, (seed // 5) % 5, depth=2, remainder=0.0), solution, model)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.sampled_from([1e-150, 1.0, 1e150]))
def test_plans_are_couplings_of_least_cost(seed, n, m, scale):
    rng = np.random.default_rng(seed)
    a, b, C = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m)), rng.integers(0, 5, (n, m)) / 4.0
    plan = plan_of(bm.Exact(), scale * C, a, b)
    assert plan.min() >= 0.0
    assert plan.sum(axis=1) == pytest.approx(a, abs=1e-14)
    assert plan.sum(axis=0) == pytest.approx(b, abs=1e-14)
    d = np.zeros((n + m, n + m))
    d[:n, n:] = C
    best = reference.exact(d, np.concatenate([a, np.zeros(m)]), np.concatenate([np.zeros(n), b]))
    assert transport_cost(bm.Exact(), scale * C, plan, a, b)[0] == pytest.approx(
        scale * best, rel=1e-9, abs=1e-9 * scale
    )


def test_origins_are_the_visits_of_coupled_walks():
    """Two deterministic walks: visits are powers of the discount."""
    P = np.zeros((6, 6))
    for s, t in ((0, 1), (1, 2), (2, 2), (3, 4), (4, 5), (5, 5)):
        P[s, t] = 1.0
    chain = bm.Chain.from_arrays(P, [0.0, 1.0, 0.0, 0.0, 0.0, 0.5], 0.5)
    solution = bm.solve_metric(chain, tol=1e-12)
    why = solution.explain(0, 3, depth=9, remainder=0.0)
    found = {origin.states: origin.share for origin in why.origins}
    assert found[1, 4] == pytest.approx(0.5)
    assert found[2, 5] == pytest.approx(0.5 * 0.25 / (1 - 0.5))
    assert why.distance == pytest.approx(0.75)


def test_labels_and_actions_are_reasons():
    mdp = random_mdp(1, 5).with_labels({"goal": [True, False, False, False, False]})
    solution = bm.solve_metric(mdp, match="hausdorff")
    assert "goal holds in the first only" in str(solution.explain(0, 1))
    assert solution.explain(2, 2).cause.reason == "the same state"
    plain = bm.solve_metric(random_mdp(1, 5), match="labels")
    apart = [(s, t) for s in range(5) for t in range(5) if plain.distance[s, t] == plain.largest]
    assert apart
    assert "actions differ" in plain.explain(*apart[0]).cause.reason


def test_undiscounted_chains_are_explained():
    chain = random_chain(5, 6)
    chain = bm.Chain.from_arrays(chain.rows.matrix(), np.zeros(6), 0.5, state_labels={"goal": np.arange(6) < 2})
    solution = bm.solve_metric(chain, transition_weight=1, tol=1e-6)
    why = solution.explain(3, 5, depth=4)
    check_sums(why.cause, 1.0)
    assert abs(why.total - why.distance) <= why.allowed
    assert all("labels differ" in origin.what for origin in why.origins)


def test_hard_numbers():
    """Masses of 1e-17, rewards of 1e±150, a discount near 1, one state, all distances 0."""
    P = np.array([[1.0 - 1e-9, 1e-9, 0.0], [1e-17, 1.0, 0.0], [0.5, 0.0, 0.5]])
    for scale in (1e-150, 1e150):
        chain = bm.Chain.from_arrays(P, scale * np.array([0.0, 1.0, 0.5]), 0.9)
        solution = bm.solve_metric(chain, tol=1e-6 * scale)
        why = solution.explain(0, 2, depth=4)
        check_sums(why.cause, scale)
        assert abs(why.total - why.distance) <= why.allowed
    near = bm.solve_metric(bm.Chain.from_arrays(P, [0.0, 1.0, 0.5], 0.99999), tol=1e-4)
    check_sums(near.explain(0, 1, depth=6).cause, near.largest)
    one = bm.solve_metric(bm.Chain.from_arrays([[1.0]], [0.0], 0.9))
    assert one.explain(0, 0).total == 0.0
    flat = bm.solve_metric(bm.Chain.from_arrays(P, np.zeros(3), 0.9))
    assert flat.explain(0, 2).remainder == 0.0
    assert "d(0, 2) = 0" in str(flat.explain(0, 2))


def test_names_are_text():
    names = ["<script>alert(1)</script>", "a\nb\x1b[31m", "same", "same", "x" * 10_000]
    P = np.random.default_rng(0).dirichlet(np.ones(5), (5, 2))
    mdp = bm.MDP.from_arrays(P, np.arange(5.0), 0.9, axes="sas", state_names=names, labels=["<b>", "ok"])
    solution = bm.solve_metric(mdp, match="labels")
    why = solution.explain(0, "x" * 10_000)
    assert "<script>" not in why.html()
    assert "<b>" not in why.html().replace("<b>d(", "")
    assert "\x1b" not in str(solution.explain(1, 0))
    assert len(str(why).splitlines()[0]) < 300
    json.dumps(why.to_dict())
    with pytest.raises(ValueError, match=r"2 states are called 'same'; say which by number: #2, #3"):
        solution.explain("same", 0)
    assert solution.explain("#2", 0).cause.states == (2, 0)


def test_what_is_refused(tmp_path):
    model = random_chain(3, 7)
    solution = bm.solve_metric(model)
    for bad, match in (((0, 7), "no state 7"), ((0, "zzz"), "no state 'zzz'"), ((-1, 0), "no state -1")):
        with pytest.raises(ValueError, match=match):
            solution.explain(*bad)
    with pytest.raises(ValueError, match="depth and width"):
        solution.explain(0, 1, depth=0)
    with pytest.raises(ValueError, match="remainder"):
        solution.explain(0, 1, remainder=2.0)
    solution.save(tmp_path / "d.npz")
    loaded = bm.MetricSolution.load(tmp_path / "d.npz")
    with pytest.raises(ValueError, match="without its model"):
        loaded.explain(0, 1)
    assert loaded.explain(0, 1, model=model).total == solution.explain(0, 1).total
    with pytest.raises(ValueError, match="not those of this model"):
        loaded.explain(0, 1, model=random_chain(4, 7))
    with pytest.raises(ValueError, match="has 6 states"):
        loaded.explain(0, 1, model=random_chain(4, 6))


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["explain", "problem:gridworld", "0", "room 0 row 1 column 2", "--match", "labels", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cause"]["states"] == [0, 7]
    assert abs(facts["total"] - facts["distance"]) <= facts["allowed"]
    assert run(["explain", "problem:gridworld?copies=2", "0", "1", "--classes", "-o", "why.html"]) == 0
    assert "different classes" in (tmp_path / "why.html").read_text()
    assert run(["metric", "problem:gridworld", "-o", "d.npz"]) == 0
    assert run(["explain", "problem:gridworld", "0", "1", "--metric", "d.npz", "-o", "why.txt"]) == 0
    capsys.readouterr()
    for bad in (
        ["explain", "problem:gridworld", "0", "nowhere"],
        ["explain", "problem:gridworld", "0", "1", "-o", "why.pdf"],
        ["explain", "problem:gridworld", "0", "1", "--match", "labels", "--policy", "uniform"],
        ["explain", "problem:gridworld?copies=2", "0", "1", "--metric", "d.npz"],
        ["explain", "problem:gridworld", "0", "1", "--metric", "missing.npz"],
    ):
        assert run(bad) == 2, bad
        assert len(capsys.readouterr().err.splitlines()) == 1
