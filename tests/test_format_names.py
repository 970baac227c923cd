"""Names and neighbours: what a format cannot hold is refused, never changed or lost without a word."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from model_equality import same_extras
from model_files import DRN, back, reread

import bisimetric as bm

ODD_NAMES = ["two words", "a-b", "_a", "a.b", "naïve", 'a"b', "a#b", "a\nb", "__NOLABEL__", "[a]", "{a}", "a/b", ""]


def small(n, **extras):
    base = bm.MDP.from_arrays(np.eye(n)[:, None], np.arange(n) / 2.0, 0.75, axes="sas")
    return dataclasses.replace(base, **extras)


def test_models_in_one_folder_do_not_mix(tmp_path):
    """model2.trew belongs to model2.tra where that is there; nothing is left of what was overwritten."""
    bm.write(small(2, state_labels={"x": np.array([True, False])}), tmp_path / "model.tra")
    bm.write(small(3), tmp_path / "model2.tra")
    assert list(reread(tmp_path / "model.tra", 0.9).reward_models) == ["reward"]


def test_nothing_is_left_of_what_was_overwritten(tmp_path):
    labelled = small(2, state_labels={"x": np.array([True, False])}, reward_models={"a": np.ones(2), "b": np.ones(2)})
    bm.write(labelled, tmp_path / "model.tra")
    bm.write(small(2), tmp_path / "model.tra")
    again = reread(tmp_path / "model.tra", 0.9)
    assert again.state_labels == {}
    assert again.rewards.tolist() == [0.0, 0.5]


@pytest.mark.parametrize("name", ["a[1]", "a b", "a.b", "a*"])
def test_rewards_are_found_whatever_the_file_is_called(tmp_path, name):
    bm.write(small(2), tmp_path / f"{name}.tra")
    assert reread(tmp_path / f"{name}.tra", 0.9).rewards.tolist() == [0.0, 0.5]


@pytest.mark.parametrize("ending", [".npz", ".drn", ".tra"])
@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("what", ["label", "action", "reward", "state"])
def test_odd_names_survive_or_are_refused(tmp_path, ending, name, what):
    if (what, ending) == ("state", ".tra") or (what == "action" and name in ("", "__NOLABEL__")):
        pytest.skip("the format has no such names, or these stand for no name")
    extras = {
        "label": {"state_labels": {name: np.array([False, True])}},
        "action": {"action_names": ("x", name)},
        "reward": {"reward_models": {name: np.array([1.0, 2.0])}, "rewards": np.array([1.0, 2.0])},
        "state": {"state_names": ("x", name)},
    }[what]
    mdp = small(2, **extras)
    try:
        bm.write(mdp, tmp_path / f"model{ending}")
    except bm.ModelError:
        assert list(tmp_path.iterdir()) == []
        return
    again = reread(tmp_path / f"model{ending}", 0.75)
    same_extras(mdp, again, rewards=what == "reward")
    assert what != "state" or again.state_names == mdp.state_names


def test_the_rewards_in_use_are_written(tmp_path):
    """A file has the rewards that the model uses first, also where they are none of its reward models."""
    two = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}
    base = small(2, rewards=two["a"].copy(), reward_models=two)
    for mdp in (base, base.with_reward("b"), base.with_rewards([-1.0, -2.0])):
        for ending in (".npz", ".drn", ".csv"):
            assert back(mdp, tmp_path, ending).rewards.tolist() == mdp.rewards.tolist(), ending
    one = dataclasses.replace(base.with_reward(None), reward_models={"a": two["a"]})
    for mdp, ending in ((base.with_reward(None), ".drn"), (one, ".drn"), (one, ".npz")):  # none is in use
        bm.write(mdp, tmp_path / f"none{ending}")
        if ending == ".npz":
            assert not bm.read(tmp_path / "none.npz").rewards.any()
        else:
            with pytest.raises(bm.ModelError, match="2 reward models"):
                bm.read(tmp_path / "none.drn", 0.9)


def test_choices_that_a_table_cannot_tell_apart_are_refused(tmp_path):
    twice = bm.MDP.from_choices([[1.0], [1.0]], [0.0, 1.0], [0, 2], 0.9, ["a", "a"])
    with pytest.raises(bm.ModelError):
        bm.write(twice, tmp_path / "model.csv")
    odd = bm.MDP.from_choices([[1.0], [1.0]], [0.0, 1.0], [0, 2], 0.9, ["²", "3"])
    assert sorted(back(odd, tmp_path, ".csv").rewards.tolist()) == [0.0, 1.0]  # choices are in the order of labels


def test_labels_with_spaces_as_storm_writes_them(tmp_path):
    path = tmp_path / "model.drn"
    path.write_text(DRN.replace("[0, 1] init", '[0, 1] "two words" init'))
    assert sorted(reread(path, 0.9).state_labels) == ["done", "init", "two words"]
