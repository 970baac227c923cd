"""Why states are in different classes: every formula holds in the one and not in the other, checked in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_mdp

import bisimetric as bm
from bisimetric.distinctions import Formula


def holds(mdp: bm.MDP, formula: Formula, s: int, known: dict) -> bool:
    """Whether a formula holds in a state, by the definition."""
    if (formula, s) not in known:
        known[formula, s] = plainly(mdp, formula, s, known) != formula.negated
    return known[formula, s]


def plainly(mdp: bm.MDP, formula: Formula, s: int, known: dict) -> bool:
    choices = range(mdp.choice_ptr[s], mdp.choice_ptr[s + 1])
    labels = [mdp.action_labels[mdp.action_of_choice[c]] for c in choices]
    if formula.kind == "label":
        return bool(mdp.state_labels[formula.name][s])
    if formula.kind == "action":
        return formula.name in labels
    if formula.kind == "and":
        return all(holds(mdp, part, s, known) for part in formula.parts)
    for c, label in zip(choices, labels, strict=True):
        if formula.name is not None and label != formula.name:
            continue
        passed = []
        for test in formula.tests:
            x = mdp.rewards[c]
            if test.of is not None:
                row = mdp.rows.matrix()[[c]].toarray()[0]
                x = sum(row[t] for t in np.flatnonzero(row) if holds(mdp, test.of, int(t), known))
            passed.append(x > test.threshold if test.above else x < test.threshold)
        if all(passed):
            return True
    return False


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["labels", "hausdorff"]))
def test_formulas_tell_classes_apart(seed, match):
    mdp = random_mdp(seed, 7, ragged=seed % 3 == 0)
    mdp = mdp.with_rewards(np.round(mdp.rewards)).with_labels({"goal": np.arange(7) == seed % 11})
    lumping = bm.lump(mdp, match)
    for s in range(7):
        for t in range(7):
            why = lumping.explain(s, t)
            if lumping.class_of[s] == lumping.class_of[t]:
                assert why.formula is None
                continue
            assert holds(mdp, why.formula, s, {})
            assert not holds(mdp, why.formula, t, {})
            assert why.depth == why.formula.depth


def test_depth_is_the_distance_to_the_difference():
    """Two corridors that differ at their ends: one must look all the way."""
    n = 12
    P = np.zeros((2 * n, 2 * n))
    for k in range(n - 1):
        P[k, k + 1] = P[n + k, n + k + 1] = 1.0
    P[n - 1, n - 1] = P[2 * n - 1, 2 * n - 1] = 1.0
    R = np.zeros(2 * n)
    R[n - 1] = 1.0
    mdp = bm.MDP.from_arrays(P[:, None, :], R[:, None], 0.9, axes="sas")
    why = bm.lump(mdp).explain(0, n)
    assert why.depth == n
    assert len(str(why)) < 2000
    assert "12 steps ahead" in str(why)


def test_several_rewards_and_words():
    mdp = random_mdp(2, 5, ragged=False)
    models = {"cost <i>": np.arange(10.0), "time": np.zeros(10)}
    from dataclasses import replace

    lumping = bm.lump(replace(mdp, reward_models=models), rewards="all")
    why = lumping.explain(0, 1)
    assert "reward cost <i>" in str(why)
    assert "<i>" not in why.html()
    assert why.to_dict()["formula"]
    assert "one class" in str(lumping.explain(0, 0))
    with pytest.raises(ValueError, match="no state"):
        lumping.explain(0, 99)
