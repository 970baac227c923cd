"""Counting transitions: every source gives the same counts, and what cannot be counted is refused by name."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bisimetric as bm
from bisimetric.estimate import sources, tally


def transitions(seed=0, n=400, S=6, A=3, ends=True):
    rng = np.random.default_rng(seed)
    s, a, t = rng.integers(S, size=n), rng.integers(A, size=n), rng.integers(S, size=n)
    done = rng.random(n) < 0.1 if ends else np.zeros(n, bool)
    return s, a, (s * A + a) / (S * A), t, done


def table(counts):
    """Counts as a dense array [S, A, S + 1], the end last."""
    dense = np.zeros((counts.n_rows, counts.n_states + 1), np.int64)
    dense[counts.source, counts.target] = counts.number
    return dense.reshape(counts.n_states, counts.n_actions, -1)


def plain_table(s, a, t, done, S, A):
    dense = np.zeros((S, A, S + 1), np.int64)
    for k in range(len(s)):
        dense[s[k], a[k], S if done[k] else t[k]] += 1
    return dense


def same(one, other):
    assert (one.n_states, one.n_actions) == (other.n_states, other.n_actions)
    np.testing.assert_array_equal(table(one), table(other))
    np.testing.assert_array_equal(one.visits, other.visits)
    np.testing.assert_allclose(one.reward_sum, other.reward_sum)
    np.testing.assert_array_equal(one.reward_low, other.reward_low)
    np.testing.assert_array_equal(one.reward_high, other.reward_high)
    assert (one.state_names, one.action_names) == (other.state_names, other.action_names)


# ---- counts ----


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.integers(0, 60))
def test_counts_are_those_of_a_plain_loop(seed, S, A, n):
    rng = np.random.default_rng(seed)
    s, a, t, done = rng.integers(S, size=n), rng.integers(A, size=n), rng.integers(S, size=n), rng.random(n) < 0.3
    r = rng.integers(3, size=n).astype(float)
    counts = bm.Counts.from_transitions(s, a, r, t, done, n_states=S, n_actions=A)
    np.testing.assert_array_equal(table(counts), plain_table(s, a, t, done, S, A))
    for k, row in enumerate(counts.row):
        mine = r[s * A + a == row]
        assert counts.visits[k] == len(mine)
        assert (counts.reward_sum[k], counts.reward_low[k], counts.reward_high[k]) == (
            mine.sum(),
            mine.min(),
            mine.max(),
        )


@pytest.mark.parametrize("dense", [0, 10**9])
@pytest.mark.parametrize("block", [7, 10**6])
def test_ways_of_counting_agree(dense, block, monkeypatch):
    """By sorting or in an array of all keys, in small blocks or in one; sizes declared, or found on the way."""
    data = transitions(n=3000)
    expected = bm.Counts.from_transitions(*data)
    monkeypatch.setattr(tally, "_DENSE", dense)
    monkeypatch.setattr(tally, "_BLOCK", block)
    monkeypatch.setattr(tally, "_PATIENCE", 50)
    same(bm.Counts.from_transitions(*data), expected)
    order = np.argsort(data[0], kind="stable")  # small states first: the sizes grow
    pieces = [tuple(column[order][k : k + 500] for column in data) for k in range(0, 3000, 500)]
    same(bm.Counts.from_stream(pieces), expected)


def test_extended_and_merged_counts_are_those_of_all():
    s, a, r, t, done = transitions()
    whole = bm.Counts.from_transitions(s, a, r, t, done)
    first, rest = slice(0, 150), slice(150, None)
    one = bm.Counts.from_transitions(s[first], a[first], r[first], t[first], done[first], design="fixed")
    other = bm.Counts.from_transitions(s[rest], a[rest], r[rest], t[rest], done[rest])
    same(one.extend(s[rest], a[rest], r[rest], t[rest], done[rest]), whole)
    same(one + other, whole)
    assert (one + other).design == one.extend([], [], [], []).design == "adaptive"
    assert one.design == "fixed"


def test_names_are_kept_and_merged_by_name():
    one = bm.Counts.from_transitions(["b", "a"], ["go", "go"], [0.0, 1.0], ["a", "c"])
    other = bm.Counts.from_transitions(["c", "a"], ["stay", "go"], [2.0, 1.0], ["c", "b"])
    both = one.merge(other)
    assert set(both.state_names) == {"a", "b", "c"}
    assert set(both.action_names) == {"go", "stay"}
    a, go = both.state_names.index("a"), both.action_names.index("go")
    seen = table(both)[a, go]
    assert {name: seen[k] for k, name in enumerate(both.state_names)} == {"a": 0, "b": 1, "c": 1}
    model = both.model(0.9, unseen="sink")
    assert set(model.state_names) == {"a", "b", "c", "unseen"}
    with pytest.raises(bm.ModelError, match="names"):
        one.merge(bm.Counts.from_transitions([0], [0], [0.0], [1]))


def test_next_states_of_ended_episodes_do_not_matter():
    for states in (np.array([0, 1]), np.array(["x", "y"])):
        after = np.array([99, 0]) if states.dtype.kind == "i" else np.array(["nowhere", "x"])
        counts = bm.Counts.from_transitions(states, [0, 0], [1.0, 0.0], after, [True, False])
        assert counts.n_states == 2
        assert table(counts)[0, 0].tolist() == [0, 0, 1]
    all_ended = bm.Counts.from_transitions(["x"], [0], [1.0], ["y"], [True])
    assert all_ended.n_states == 1


def test_saved_counts_come_back(tmp_path):
    counts = bm.Counts.from_transitions(*transitions(), design="fixed")
    counts.save(tmp_path / "c.npz")
    back = bm.Counts.read(tmp_path / "c.npz")
    same(back, counts)
    assert back.design == "fixed"
    same(pickle.loads(pickle.dumps(counts)), counts)
    assert "400 transitions" in repr(counts)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("number", np.array([-1, 2])),
        ("visits", np.array([5])),
        ("target", np.array([0, 99])),
        ("source", np.array([1, 0])),
        ("reward_sum", np.array([np.nan])),
        ("row", np.array([7])),
        ("reward_low", np.array([np.nan])),
        ("reward_low", np.array([2.0])),
    ],
)
def test_damaged_counts_are_refused(entry, value, tmp_path):
    from bisimetric.archives import read_arrays, save_arrays
    from bisimetric.damage import DamagedFileError

    path = tmp_path / "c.npz"
    bm.Counts.from_transitions([0, 0], [0, 0], [0.0, 1.0], [0, 1]).save(path)
    arrays = read_arrays(path)
    save_arrays(path, {**arrays, entry: value})
    with pytest.raises(DamagedFileError, match=r"c\.npz"):
        bm.Counts.load(path)


# ---- sources ----


def write_csv(path, data, names=("s", "a", "r", "s_next", "done"), order=None):
    columns = [np.asarray(column).tolist() for column in data]
    order = range(len(names)) if order is None else order
    lines = [",".join(names[k] for k in order)]
    lines += [",".join(str(columns[k][i]).lower() for k in order) for i in range(len(columns[0]))]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(params=["csv module", "pyarrow"])
def reader(request, monkeypatch):
    if request.param == "pyarrow":
        pytest.importorskip("pyarrow")
    else:
        monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
        monkeypatch.setitem(sys.modules, "pyarrow", None)


@pytest.mark.usefixtures("reader")
def test_csv_files_in_any_order_of_columns(tmp_path):
    data = transitions()
    expected = bm.Counts.from_transitions(*data)
    write_csv(tmp_path / "one.csv", data)
    same(bm.Counts.read(tmp_path / "one.csv"), expected)
    names = ("State", "action", "reward", "next_state", "terminated")
    write_csv(tmp_path / "two.csv", data, names, (3, 0, 4, 2, 1))
    same(bm.Counts.read(tmp_path / "two.csv"), expected)
    named = (np.char.add("room ", data[0].astype(str)), data[1], data[2], np.char.add("room ", data[3].astype(str)))
    write_csv(tmp_path / "three.csv", (*named, data[4]))
    assert bm.Counts.read(tmp_path / "three.csv").state_names is not None


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("s,a,r,s_next\n", "no samples"),
        ("s,a,s_next\n0,0,1\n", "no column r"),
        ("s,state,a,r,s_next\n0,0,0,0,1\n", "both stand for s"),
        ("s,a,r,s_next\n0,0,high,1\n", "high"),
        ("s,a,r,s_next\n0,0,nan,1\n", " r"),
        ("s,a,r,s_next\n0,0,1.0,-1\n", "from 0"),
        ("s,a,r,s_next,done\n0,0,1.0,1,maybe\n", "done"),
        ("s,a,r,s_next\n0,0,1.0\n", "bad.csv"),
    ],
)
def test_bad_csv_files_are_one_error_with_their_name(text, words, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(bm.ModelError) as error:
        bm.Counts.read(path).confidence(0.1)
    assert words in str(error.value) or words == "no samples"
    if words == "no samples":
        assert bm.Counts.read(path).n_samples == 0


def test_parquet_files(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    data = transitions()
    names = ["s", "a", "r", "s_next", "done"]
    parquet.write_table(arrow.table(dict(zip(names, map(arrow.array, data), strict=True))), tmp_path / "t.parquet")
    same(bm.Counts.read(tmp_path / "t.parquet"), bm.Counts.from_transitions(*data))


def test_a_model_is_no_data(tmp_path):
    bm.write(bm.problems.chain(n_states=4, n_classes=2), tmp_path / "model.csv")
    bm.write(bm.problems.chain(n_states=4, n_classes=2), tmp_path / "model.npz")
    assert not sources.is_transitions(tmp_path / "model.csv")
    assert not sources.is_transitions(tmp_path / "model.npz")
    write_csv(tmp_path / "data.csv", transitions())
    bm.Counts.from_transitions(*transitions()).save(tmp_path / "counts.npz")
    assert sources.is_transitions(tmp_path / "data.csv")
    assert sources.is_transitions(tmp_path / "counts.npz")
    with pytest.raises(bm.ModelError, match="has no column s"):
        bm.Counts.read(tmp_path / "model.csv")


def test_episodes_whole_cut_off_and_half():
    whole = ([0, 1, 2], ["l", "r"], [0.0, 1.0], True)
    cut = {"states": [0, 1, 0], "actions": ["l", "l"], "rewards": [0.0, 0.0], "terminated": False}
    half = ([0, 1], ["l", "r"], [0.0, 0.0], False)
    counts = bm.Counts.from_episodes([whole, cut, half])
    assert counts.n_samples == 5
    assert any("1 transitions without a next state" in note for note in counts.notes)
    ended = bm.Counts.from_episodes([([0, 1], ["l", "r"], [0.0, 0.0], True)])
    assert (ended.n_samples, ended.ends, ended.notes) == (2, True, ())
    with pytest.raises(bm.ModelError, match="episode 0: has 4 states"):
        bm.Counts.from_episodes([([0, 1, 2, 3], [0], [0.0], True)])


def test_a_walk_through_an_environment_is_the_same_for_a_seed():
    pytest.importorskip("gymnasium")
    one = bm.Counts.from_env("FrozenLake-v1", steps=500, seed=3, is_slippery=True)
    same(one, bm.Counts.from_env("FrozenLake-v1", steps=500, seed=3))
    assert (one.n_states, one.n_actions, one.n_samples, one.ends) == (16, 4, 500, True)
    left = bm.Counts.from_env("FrozenLake-v1", np.zeros(16, int), steps=50, seed=0)
    assert set(left.row % 4) == {0}
    drawn = bm.Counts.from_env("FrozenLake-v1", lambda _, rng: rng.integers(2), steps=50, seed=0)
    assert set(drawn.row % 4) <= {0, 1}
    with pytest.raises(bm.ModelError, match="give a discretiser"):
        bm.Counts.from_env("MountainCar-v0", steps=5, seed=0)
    with pytest.raises(bm.ModelError, match="not discrete"):
        bm.Counts.from_env("Pendulum-v1", steps=5, seed=0)


def test_continuous_observations_are_counted_in_cells():
    pytest.importorskip("gymnasium")
    grid = bm.Grid([-1.2, -0.07], [0.6, 0.07], (6, 4))
    counts = bm.Counts.from_env("MountainCar-v0", steps=300, seed=0, discretiser=grid)
    assert counts.n_states == 24
    assert any("heuristic" in note for note in counts.notes)
    assert any("heuristic" in note for note in counts.bracket(0.1, gamma=0.5, exact_rewards=True).notes)
    rng = np.random.default_rng(0)
    cells = bm.KMeans.fit(rng.normal(size=(200, 2)), 5, seed=0)
    points = rng.normal(size=(50, 2))
    nearest = ((points[:, None] - cells.centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(cells(points), nearest)
    assert grid(np.array([[-9.0, 0.0], [9.0, 9.0]])).tolist() == [2, 23]


def test_a_simulator_is_asked_equally_often():
    mdp = bm.problems.garnet(n_states=5, n_actions=2, branching=2)
    counts = bm.Counts.from_simulator(mdp, n_states=5, n_actions=2, samples=200, seed=1)
    assert (counts.visits == 200).all()
    assert counts.design == "fixed"
    rows = mdp.rows.matrix().toarray()
    seen = table(counts).reshape(10, -1)[:, :5] / 200
    assert (seen[rows == 0.0] == 0.0).all()
    assert np.abs(seen - rows).max() < 0.2

    def ask(s, a, rng):
        return np.ones(len(s)), (s + a) % 3, s == 2

    own = bm.Counts.from_simulator(ask, n_states=3, n_actions=2, samples=4, seed=0)
    assert table(own)[0, 1].tolist() == [0, 4, 0, 0]
    assert table(own)[2, 0].tolist() == [0, 0, 0, 4]


def test_minari_datasets():
    class Space:
        def __init__(self, n):
            self.n, self.start = n, 0

    class Episode:
        observations, actions, rewards = np.array([0, 1, 2]), np.array([0, 1]), np.array([0.0, 1.0])
        terminations = np.array([False, True])

    class Dataset:
        action_space, observation_space = Space(2), Space(3)

        def iterate_episodes(self):
            return iter([Episode(), Episode()])

    counts = bm.Counts.from_minari(Dataset())
    assert (counts.n_samples, counts.n_states, counts.n_actions, counts.ends) == (4, 3, 2, True)
    Dataset.action_space = "Box(-1.0, 1.0, (1,), float32)"
    with pytest.raises(bm.ModelError, match=r"actions .* not discrete"):
        bm.Counts.from_minari(Dataset())


def test_a_dataset_of_minari_itself(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    spaces = pytest.importorskip("gymnasium").spaces
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    walk = {"observations": [0, 4, 8], "actions": [1, 1], "rewards": [0.0, 0.5], "infos": {}}
    cut = {"terminations": [False, False], "truncations": [False, True]}
    episodes = [EpisodeBuffer(id=k, **walk, **cut) for k in range(3)]
    about = {"algorithm_name": "none", "code_permalink": "none", "author": "none", "author_email": "none"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what nobody says of a dataset for tests
        minari.create_dataset_from_buffers(
            "lake/test-v0",
            episodes,
            observation_space=spaces.Discrete(16),
            action_space=spaces.Discrete(4),
            description="none",
            **about,
        )
        counts = bm.Counts.from_minari("lake/test-v0")
    assert (counts.n_samples, counts.n_states, counts.n_actions, counts.ends) == (6, 16, 4, True)
    assert counts.target.tolist() == [4, 8]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0], [0], [np.nan], [1]), "entry 0 is nan"),
        (([0, 1], [0], [0.0], [1]), "s: 2, a: 1"),
        (([0.5], [0], [0.0], [1]), "neither a whole number nor a name"),
        (([-1], [0], [0.0], [1]), "numbered from 0; got -1"),
        (([0], [0], [0.0], [1], [2]), "done"),
        (([0], [0], ["x"], [1]), "rewards must be numbers; got 'x'"),
        ((["a"], [0], [0.0], [1]), "names"),
        (([[0.0, 1.0]], [0], [0.0], [[0.0, 1.0]]), "discretiser"),
        ((0, 0, 0.0, 1), "one value"),
    ],
)
def test_bad_transitions_are_named(arguments, words):
    with pytest.raises(bm.ModelError) as error:
        bm.Counts.from_transitions(*arguments)
    assert words in str(error.value)


def test_states_and_actions_beyond_those_declared_are_named():
    with pytest.raises(bm.ModelError, match="state 7 is out of range: 3 states were declared"):
        bm.Counts.from_transitions([0], [0], [0.0], [7], n_states=3)
    with pytest.raises(bm.ModelError, match="action 2 is out of range"):
        bm.Counts.from_transitions([0], [2], [0.0], [1], n_actions=2)
    with pytest.raises(bm.ModelError, match="one state more"):
        bm.Counts.from_transitions(["a"], [0], [0.0], ["b"], n_states=1)


def test_a_billion_declared_states_are_counted_but_make_no_model():
    tracemalloc.start()
    counts = bm.Counts.from_transitions([0, 10**9 - 1], [0, 1], [0.0, 1.0], [5, 6], n_states=10**9, n_actions=2)
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()
    assert counts.n_samples == 2
    for what in (lambda: counts.model(0.9), lambda: counts.confidence(0.1, exact_rewards=True)):
        with pytest.raises(bm.ModelError, match="more than a model can have"):
            what()
    with pytest.raises(bm.ModelError, match="told apart"):
        bm.Counts.from_transitions([0], [0], [0.0], [0], n_states=10**12)


def test_what_was_never_tried_is_absent_or_the_worst_never_uniform():
    counts = bm.Counts.from_transitions([0, 0, 1], [0, 0, 1], [1.0, 1.0, 0.5], [1, 0, 0], n_actions=2)
    absent = counts.model(0.9)
    assert np.diff(absent.choice_ptr).tolist() == [1, 1]
    sink = counts.model(0.9, unseen="sink")
    assert sink.n_states == 3
    assert sink.rows.matrix()[[1]].toarray()[0].tolist() == [0.0, 0.0, 1.0]
    assert sink.rewards[1] == 0.5
    unleft = bm.Counts.from_transitions([0], [0], [0.0], [1])
    with pytest.raises(bm.ModelError, match="state 1 was never left"):
        unleft.model(0.9)
    assert unleft.model(0.9, unseen="sink").n_states == 3
    with pytest.raises(ValueError, match="unseen must be"):
        counts.model(0.9, unseen="uniform")
    with pytest.raises(bm.ModelError, match="Give gamma"):
        counts.model(None)


# ---- how many there are ----


def test_what_was_never_met_is_not_impossible():
    """Sizes that were only seen depend on the data, so nothing is certified of them."""
    data = ([0] * 5, [0] * 5, [1.0] * 5, [0] * 5)
    seen = bm.Counts.from_transitions(*data)
    assert seen.declared == (False, False)
    assert seen.model(0.9).n_states == 1
    asks = {
        "confidence": lambda c: c.confidence(0.05, reward_range=(0, 1)),
        "certify": lambda c: c.certify("uniform", 0.05, gamma=0.9, reward_range=(0, 1)),
        "bracket": lambda c: c.bracket(0.05, gamma=0.9, reward_range=(0, 1)),
        "pool": lambda c: c.pool(0.05, gamma=0.9, reward_range=(0, 1)),
        "decomposition": lambda c: c.decomposition(0.05, gamma=0.9, reward_range=(0, 1)),
        "solve": lambda c: bm.solve_policy(c, gamma=0.9, reward_range=(0, 1), steps=2),
    }
    for ask in asks.values():
        with pytest.raises(
            bm.ModelError, match=r"states and actions there are was not declared.*n_states=1, n_actions=1"
        ):
            ask(seen)
        with pytest.raises(bm.ModelError, match="how many actions there are"):
            ask(seen.declare(n_states=2))
    known = seen.declare(n_states=2, n_actions=1)
    assert known.declared == (True, True)
    assert known.certify("uniform", 0.05, gamma=0.9, reward_range=(0, 1)).lower[0] < 9.0
    same(known, bm.Counts.from_transitions(*data, n_states=2, n_actions=1))
    with pytest.raises(ValueError, match="at least 2"):
        known.declare(n_states=1)


def test_without_data_nothing_is_certified():
    counts = bm.Counts.from_transitions([], [], [], [], n_states=3, n_actions=2)
    data = counts.certify("uniform", 0.05, gamma=0.9, reward_range=(0.0, 1.0))
    assert data.certificate.error == pytest.approx(10.0, rel=1e-6)
    made = bm.solve_policy(counts, gamma=0.9, reward_range=(0.0, 1.0), target=0.1, steps=2)
    assert made.status is bm.Status.DATA
    ended = bm.Counts.from_transitions([], [], [], [], [], n_states=3, n_actions=2)
    assert ended.certify("uniform", 0.05, gamma=0.9, reward_range=(0.0, 1.0)).certificate.error > 9.9


def test_declarations_live_on():
    names = {"n_states": 4, "n_actions": 2}
    one = bm.Counts.from_transitions(["a", "b"], ["go", "go"], [0.0, 1.0], ["b", "a"], **names)
    assert one.state_names == ("a", "b", "state 2", "state 3")
    other = bm.Counts.from_transitions(["c", "d"], ["stay", "go"], [0.0, 1.0], ["d", "a"], **names)
    both = one + other
    assert both.state_names == ("a", "b", "c", "d")
    assert both.action_names == ("go", "stay")
    assert both.declared == (True, True)
    assert one.extend(["e"], ["go"], [0.5], ["a"]).state_names == ("a", "b", "e", "state 3")
    with pytest.raises(bm.ModelError, match="5 states in all, more than the 4"):
        both + bm.Counts.from_transitions(["e"], ["go"], [0.0], ["a"])
    free = bm.Counts.from_transitions([0], [0], [0.0], [1])
    assert free.extend([5], [0], [0.0], [1]).n_states == 6
    assert free.extend([5], [0], [0.0], [1]).declared == (False, False)
    limited = bm.Counts.from_transitions([0], [0], [0.0], [1], n_states=3, n_actions=1)
    assert (free + limited).declared == (True, True)
    assert (free + limited).n_states == (limited + free).n_states == 3
    with pytest.raises(bm.ModelError, match="declared"):
        limited + bm.Counts.from_transitions([7], [0], [0.0], [1])
    empty = bm.Counts.from_transitions([], [], [], [], n_states=5, n_actions=1)
    assert (limited + empty).n_states == 5


def test_declarations_are_kept(tmp_path):
    made = bm.Counts.from_transitions(["a"], [0], [0.0], ["b"], n_states=3)
    made.save(tmp_path / "c.npz")
    back = bm.Counts.load(tmp_path / "c.npz")
    assert back.declared == (True, False)
    same(back, made)


@pytest.mark.parametrize("state", [np.inf, 1e19, np.uint64(2**63 + 5)])
def test_states_that_are_no_numbers_to_count_with(state):
    with pytest.raises(bm.ModelError, match=r"s: entry 1 is"):
        bm.Counts.from_transitions(np.array([0, state], type(state)), [0, 0], [0.0, 0.0], [0, 0])


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_whatever_stands_after_an_end(nothing):
    counts = bm.Counts.from_transitions(["a", "b"], [0, 0], [0.0, 1.0], np.array(["b", nothing], object), [False, True])
    assert counts.target.tolist() == [1, 2]
    grid = bm.Grid([0.0], [1.0], 4)
    observed = bm.Counts.from_transitions(
        np.array([[0.1], [0.9]]), [0, 0], [0.0, 1.0], np.array([[0.9], [np.nan]]), [False, True], discretiser=grid
    )
    assert observed.target.tolist() == [3, 4]


def test_rewards_whose_sum_overflows():
    with pytest.raises(bm.ModelError, match="sum overflows"):
        bm.Counts.from_transitions([0, 0], [0, 0], [1.5e308, 1.5e308], [0, 0])
