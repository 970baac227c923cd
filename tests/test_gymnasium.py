"""Gymnasium's tabular environments: values agree with QuantEcon, ends of episodes, options, and clear refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import bisimetric as bm
from bisimetric.cli import run
from bisimetric.values import best_values

gymnasium = pytest.importorskip("gymnasium")


def newest(name):
    """The newest registered version of an environment."""
    versions = [int(m[1]) for key in gymnasium.registry if (m := re.fullmatch(rf"{name}-v(\d+)", key))]
    if not versions:
        pytest.skip(f"gymnasium has no {name}")
    return f"{name}-v{max(versions)}"


CASES = [
    ("FrozenLake", {}),
    ("FrozenLake", {"map_name": "8x8"}),
    ("FrozenLake", {"is_slippery": False}),
    ("CliffWalking", {}),
    ("CliffWalking", {"is_slippery": True}),
    ("Taxi", {}),
    ("Taxi", {"is_rainy": True}),
]


def quantecon_values(table, gamma):
    """V* by QuantEcon, from the table alone: ends lead to a last state without rewards."""
    quantecon = pytest.importorskip("quantecon")
    n = len(table)
    R, where, states, actions = [], [], [], []
    for s in range(n):
        for a in table[s]:
            R.append(sum(p * r for p, _, r, _ in table[s][a]))
            where += [(len(R) - 1, n if end else t, p) for p, t, _, end in table[s][a]]
            states.append(s)
            actions.append(a)
    R.append(0.0)
    where.append((len(R) - 1, n, 1.0))
    rows, columns, p = zip(*where, strict=True)
    Q = csr_matrix((p, (rows, columns)), shape=(len(R), n + 1))
    ddp = quantecon.markov.DiscreteDP(np.array(R, float), Q, gamma, [*states, n], [*actions, 0])
    return ddp.solve(method="policy_iteration").v


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_optimal_values_agree_with_quantecon(name, options):
    name = newest(name)
    try:
        env = gymnasium.make(name, **options)
    except TypeError:
        pytest.skip(f"{name} has no options {options}")
    expected = quantecon_values(env.unwrapped.P, 0.97)
    for source in (name, env, env.unwrapped):
        mdp = bm.from_gymnasium(source, 0.97, **(options if source is name else {}))
        V, error = best_values(mdp)
        assert error < 1e-8
        assert np.abs(V - expected).max() < 1e-8
    assert mdp.n_states == env.observation_space.n + 1
    env.close()


def test_ends_lead_to_a_last_state_without_rewards():
    mdp = bm.from_gymnasium(newest("FrozenLake"), 0.9)
    end = mdp.n_states - 1
    assert mdp.state_names[end] == "end"
    here = slice(mdp.choice_ptr[end], mdp.choice_ptr[end + 1])
    P = mdp.rows.matrix().toarray()
    assert np.all(P[here] == np.eye(mdp.n_states)[end])
    assert np.all(mdp.rewards[here] == 0.0)
    holes = [5, 7, 11, 12, 15]
    assert np.all(P[np.isin(mdp.state_of_choice, holes)][:, end] == 1.0)
    assert mdp.action_labels == ("0", "1", "2", "3")
    assert np.array_equal(np.diff(mdp.choice_ptr), np.full(17, 4))


def test_options_are_passed_on():
    name = newest("FrozenLake")
    sure, slippery = (bm.from_gymnasium(name, 0.9, is_slippery=flag) for flag in (False, True))
    assert sure.rows.sizes.max() == 1 < slippery.rows.sizes.max()
    assert bm.from_gymnasium(name, 0.9, map_name="8x8").n_states == 65
    assert bm.from_gymnasium(name, 0.9, desc=["SF", "FG"]).n_states == 5


def test_a_table_without_ends_has_no_extra_state():
    class Env:
        P = {0: {0: [(0.5, 1, 1.0, 0), (0.25, 0, 0.0, 0), (0.25, 0, 4.0, 0)]}, 1: {0: [(1.0, 0, 2.0, 0)]}}  # noqa: RUF012

    mdp = bm.from_gymnasium(Env(), 0.9)
    assert mdp.n_states == 2
    assert np.array_equal(mdp.rows.matrix().toarray(), [[0.5, 0.5], [1.0, 0.0]])
    assert mdp.rewards.tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("CartPole-v1", {}, "transition table"),
        ("NoSuchLake-v9", {}, "NoSuchLake"),
        ("no such name!", {}, "no such"),
        ("", {}, ""),
        ("FrozenLake-v1", {"wings": 2}, "wings"),
        ("FrozenLake-v1", {"map_name": "5x5"}, "5x5"),
    ],
)
def test_what_is_no_tabular_environment(name, options, words, capsys):
    with pytest.raises(bm.ModelError) as caught:
        bm.from_gymnasium(name, 0.9, **options)
    assert "\n" not in str(caught.value)
    assert words in str(caught.value)
    query = "&".join(f"{key}={value}" for key, value in options.items())
    assert run(["info", f"gym:{name}?{query}", "--gamma", "0.9"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_the_command_line_needs_a_discount(capsys):
    assert run(["metric", f"gym:{newest('FrozenLake')}"]) == 2
    assert "--gamma" in capsys.readouterr().err
