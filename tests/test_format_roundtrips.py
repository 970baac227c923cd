"""Round trips through every format, and what each can hold; foreign arrays; hand-made UMB archives.

.npz holds all of a model. .drn has no discount, no names of labels (choices are labelled by position) and no classes.
.tra has in addition no names of states, and its rewards are those of transitions: exact where the sums are. .csv has
one reward model, numbers for actions, and no labels or names.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_equality import assert_same, same_extras
from model_files import CSV, DRN, LAB, SREW, TRA, TREW, back, reread
from umb_archives import archive, umb_members

import bisimetric as bm

MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
WORDS = st.text("abcxyz_019äλ", min_size=1, max_size=6).map(lambda text: "n" + text)


@st.composite
def models(draw, *, dyadic=False, actions=True):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    n = draw(st.integers(1, 6), label="states")
    counts = rng.integers(1, 4, size=n)
    total = int(counts.sum())
    if dyadic:
        P, R = rng.multinomial(8, np.full(n, 1 / n), size=total) / 8.0, rng.integers(-8, 8, size=(3, total)) / 4.0
    else:
        P, R = rng.dirichlet(np.full(n, 0.5), size=total), rng.normal(size=(3, total)) * 10.0 ** rng.integers(-9, 9)
        P = np.where(P < 1e-3, 0.0, P)
        P /= P.sum(axis=1, keepdims=True)
    names = sorted(draw(st.lists(WORDS, max_size=3, unique=True), label="rewards"))
    labels = draw(st.lists(WORDS, max_size=3, unique=True), label="labels")
    rewards = dict(zip(names, R, strict=False))
    base = bm.MDP.from_choices(P, R[0], np.concatenate([[0], np.cumsum(counts)]), 0.75)
    return dataclasses.replace(
        base,
        state_names=tuple(f"x={s} & y" for s in range(n)) if draw(st.booleans(), label="named states") else None,
        action_names=tuple(draw(st.lists(WORDS, min_size=total, max_size=total))) if actions else None,
        state_labels={name: rng.random(n) < 0.5 for name in labels},
        reward_models=rewards,
    )


@given(models())
def test_npz_holds_everything(tmp_path_factory, mdp):
    path = tmp_path_factory.mktemp("m") / "model.npz"
    bm.write(mdp, path)
    again = reread(path)
    assert_same(mdp, again)
    same_extras(mdp, again)
    assert list(mdp.state_labels) == list(again.state_labels)
    assert reread(path, 0.5).gamma == 0.5


@given(models())
def test_drn_is_exact(tmp_path_factory, mdp):
    again = back(mdp, tmp_path_factory.mktemp("m"), ".drn")
    assert_same(mdp, again)
    same_extras(mdp, again, rewards=bool(mdp.reward_models))
    if not mdp.reward_models:  # written under a name of its own
        assert list(again.reward_models) == ["reward"]


@given(models(dyadic=True))
def test_prism_files_are_exact_where_sums_are(tmp_path_factory, mdp):
    again = back(mdp, tmp_path_factory.mktemp("m"), ".tra")
    assert_same(dataclasses.replace(mdp, state_names=None), again)
    same_extras(mdp, again, rewards=False)
    for name, values in mdp.reward_models.items():
        assert np.array_equal(again.reward_models[name], values)


@given(models(dyadic=True))
def test_csv_is_exact_where_sums_are(tmp_path_factory, mdp):
    again = back(mdp, tmp_path_factory.mktemp("m"), ".csv")
    assert_same(dataclasses.replace(mdp, state_names=None), again)
    assert (again.state_labels, again.action_names, list(again.reward_models)) == ({}, None, ["reward"])


@pytest.mark.parametrize("ending", [".tra", ".csv"])
@given(mdp=models())
def test_rewards_of_transitions_are_right_up_to_rounding(tmp_path_factory, ending, mdp):
    again = back(mdp, tmp_path_factory.mktemp("m"), ending)
    assert again.rows.probs.tobytes() == mdp.rows.probs.tobytes()
    assert again.rows.indices.tobytes() == mdp.rows.indices.tobytes()
    assert again.choice_ptr.tobytes() == mdp.choice_ptr.tobytes()
    np.testing.assert_allclose(again.rewards, mdp.rewards, rtol=1e-14)


def test_endings_of_lines_comments_and_blank_lines(tmp_path):
    plain = {}
    for ending, text in ((".drn", DRN), (".tra", TRA), (".csv", CSV)):
        path = tmp_path / f"model{ending}"
        path.write_text(text)
        plain[ending] = reread(path, 0.9)
        comment = {".drn": "// x\n", ".tra": "# x\n", ".csv": "# x\n"}[ending]
        head, rest = text.split("\n", 1) if ending != ".drn" else ("", text)
        spaced = f"{head}\n" + "".join(
            f"{line}\n\n{comment}" if not line.startswith("@") and line else f"{line}\n" for line in rest.splitlines()
        )
        if ending == ".drn":
            spaced = text.replace("state 1", f"\n\n{comment}state 1").replace("\t\t1 : 1", f"\t\t1 : 1\n\n{comment}")
        for changed in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), text.rstrip("\n"), spaced):
            path.write_bytes(changed.encode())
            assert_same(reread(path, 0.9), plain[ending])
    for mdp in plain.values():
        assert np.array_equal(mdp.rows.matrix().toarray(), [[0.5, 0.5], [0, 1], [0, 1]])
    assert plain[".drn"].rewards.tolist() == [1.0, 0.0, 0.25]
    assert plain[".drn"].reward_models["q"].tolist() == [3.0, 1.0, 1 / 3]
    assert plain[".drn"].action_names == ("a", "b", "")
    assert plain[".drn"].state_names == ("x=0", "x=1")
    assert list(plain[".drn"].state_labels) == ["init", "done"]
    assert plain[".csv"].rewards.tolist() == [1.0, 0.0, 0.5]


def test_files_beside_transitions(tmp_path):
    for name, text in (("m.tra", TRA), ("m.lab", LAB), ("m.srew", SREW), ("m.trew", TREW), ("m1.srew", "2 1\n0 7\n")):
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode())
    mdp = reread(tmp_path / "m.tra", 0.9)
    assert {name: values.tolist() for name, values in mdp.reward_models.items()} == {
        "reward": [2.0, 0.0, 0.5],
        "1": [7.0, 7.0, 0.0],
    }
    assert {name: holds.tolist() for name, holds in mdp.state_labels.items()} == {
        "init": [True, False],
        "done": [False, True],
    }
    assert bm.read(tmp_path / "m.tra", 0.9, reward="1").rewards.tolist() == [7.0, 7.0, 0.0]
    assert bm.read(tmp_path / "m.tra", 0.9, reward=None).rewards.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(bm.ModelError, match=r"no reward model 'x'.*1"):
        bm.read(tmp_path / "m.tra", 0.9, reward="x")


@pytest.mark.parametrize("ending", [".drn", ".umb", ".tra", ".csv"])
def test_a_discount_is_needed(tmp_path, ending):
    path = tmp_path / f"model{ending}"
    path.write_text("")
    with pytest.raises(bm.ModelError, match="have no discount"):
        reread(path)


@pytest.mark.parametrize("name", ["coin2", "csma2_2", "zeroconf"])
def test_umb_and_drn_agree(name, tmp_path):
    if not MODELS.exists():
        pytest.skip(f"{MODELS} is not there")
    drn, umb = (reread(MODELS / f"{name}.{ending}", 0.9) for ending in ("drn", "umb"))
    assert np.abs(drn.rows.probs - umb.rows.probs).max() < 1e-10  # Storm prints about ten digits
    assert_same(dataclasses.replace(drn, rows=umb.rows), umb)
    same_extras(drn, umb)
    assert drn.state_names is not None
    bm.write(umb, tmp_path / "again.drn")
    assert_same(reread(tmp_path / "again.drn", 0.9), umb)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_umb_made_by_hand(mode, prefix, tmp_path):
    path = tmp_path / "model.umb"
    path.write_bytes(archive({prefix + name: content for name, content in umb_members().items()}, mode))
    mdp = reread(path, 0.9)
    assert np.array_equal(mdp.rows.matrix().toarray(), [[0.25, 0.75], [0, 1], [0, 1]])
    assert mdp.choice_ptr.tolist() == [0, 2, 3]
    assert mdp.rewards.tolist() == [10 + 1 + 1.0, 10 + 2 + 0.5, 20 + 3]
    assert list(mdp.reward_models) == ["r"]
    assert mdp.action_names == ("a", "b", "")
    assert mdp.state_names == ("x=5 & up", "x=12 & !up")
    assert {name: holds.tolist() for name, holds in mdp.state_labels.items()} == {
        "done": [False, True],
        "init": [True, False],
    }


@given(st.integers(0, 10**6))
def test_mdptoolbox_both_ways(seed):
    rng = np.random.default_rng(seed)
    P, R = rng.dirichlet(np.ones(3), size=(2, 3)), rng.random((3, 2))
    mdp = bm.from_mdptoolbox(P, R, 0.9)
    again_P, again_R = bm.to_mdptoolbox(mdp)
    assert np.array_equal(np.stack([p.toarray() for p in again_P]), P)
    assert np.array_equal(again_R, R)
    assert_same(bm.from_mdptoolbox(again_P, again_R, 0.9), mdp)
    with pytest.raises(bm.ModelError, match="same number of actions"):
        bm.to_mdptoolbox(bm.MDP.from_choices([[1, 0], [0, 1], [0, 1.0]], [0, 0, 1], [0, 2, 3], 0.9))


def test_quantecon_both_ways():
    quantecon = pytest.importorskip("quantecon")
    from bisimetric.values import best_values

    rng = np.random.default_rng(0)
    R, Q = rng.random((4, 3)), rng.dirichlet(np.ones(4), size=(4, 3))
    R[2, 1] = -np.inf
    ddp = quantecon.markov.DiscreteDP(R, Q, 0.9)
    mdp = bm.from_quantecon(ddp)
    assert np.diff(mdp.choice_ptr).tolist() == [3, 3, 2, 3]
    expected = ddp.solve(method="policy_iteration").v
    assert np.abs(best_values(mdp)[0] - expected).max() < 1e-10
    pairs = bm.to_quantecon(mdp)
    assert np.abs(pairs.solve(method="policy_iteration").v - expected).max() < 1e-10
    assert_same(bm.from_quantecon(pairs), mdp)


LARGE = {"coin4_k4": 43136, "csma3_2": 36850, "egl_5_4": 74750, "nand_perr_0.020": 154942, "nand_perr_0.022": 154942}


@pytest.mark.parametrize("name", LARGE)
def test_large_models_are_read(name):
    path = MODELS / "large" / f"{name}.umb"
    if not path.exists():
        pytest.skip("the shared models are not here")
    mdp = bm.read(path, gamma=0.95, reward=None)
    assert mdp.n_states == LARGE[name]
    assert mdp.state_names is not None
    assert len(set(mdp.state_names)) == mdp.n_states


def test_states_of_many_variables_have_names(tmp_path):
    """Ninety variables a state, in a file of some bytes a state: names cost what their letters do."""
    n, members = 30_000, umb_members()
    index = json.loads(members["index.json"])
    sizes = {"#states": n, "#choices": n, "#choice-actions": 0, "#branches": n}
    index["transition-system"] |= sizes
    index["annotations"] = {}
    variables = [{"name": f"v{k}", "type": {"type": "bool", "size": 1}} for k in range(88)]
    variables += [{"name": "x", "type": {"type": "uint", "size": 16}}]
    index["valuations"]["states"]["classes"] = [{"variables": variables}]
    ones, numbers = np.ones(n), np.arange(n, dtype="<u8")
    bits = np.zeros((n, 13), np.uint8)
    bits[:, 11:] = np.arange(n, dtype="<u2").view(np.uint8).reshape(n, 2)
    bits[7, 0] = 1
    kept = {
        "index.json": json.dumps(index).encode(),
        "state-to-choices.bin": np.arange(n + 1, dtype="<u8").tobytes(),
        "state-is-initial.bin": np.eye(1, -(-n // 64), dtype="<u8").tobytes(),
        "choice-to-branches.bin": np.arange(n + 1, dtype="<u8").tobytes(),
        "branch-to-target.bin": numbers.tobytes(),
        "branch-to-probability.bin": ones.astype("<f8").tobytes(),
        "valuations/states/valuations.bin": bits.tobytes(),
    }
    (tmp_path / "m.umb").write_bytes(archive(kept, "w:xz"))
    mdp = bm.read(tmp_path / "m.umb", gamma=0.9)
    assert mdp.name_of(7).startswith("v0 & !v1 & ")
    assert mdp.name_of(29_999).endswith("!v87 & x=29999")
