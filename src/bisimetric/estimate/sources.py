"""Where transitions come from: episodes, CSV and Parquet files, Gymnasium environments, simulators, Minari datasets.

Each source gives chunks of columns, so that a stream of any length is counted in little memory. Files have columns
s, a, r, s_next and, if episodes end, done; in any order, beside others, which are not read. Longer names are
understood too (state, action, reward, next_state, terminated). A column `truncated` is not an end.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import check_type, check_whole
from ..damage import reading
from ..kinds import Array
from ..model import ModelError
from .tally import Chunk

_CHUNK = 1 << 17  # rows that are read at once
_COLUMNS = {
    "s": ("s", "state", "observation", "obs"),
    "a": ("a", "action"),
    "r": ("r", "reward"),
    "s_next": ("s_next", "next_state", "next_observation", "next_obs", "s'"),
    "done": ("done", "terminated", "terminal"),
}
_MODEL_COLUMNS = {"idstatefrom", "idaction", "idstateto", "probability"}


class Notes:
    """What is to be said of the data once they are read."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def lines(self) -> tuple[str, ...]:
        return tuple(f"{number} {text}" for text, number in self.count.items())


# ---- files ----


def is_transitions(path: Path) -> bool:
    """Whether a file holds transitions and not a model: saved counts, or a table without probabilities (CSV, Parquet).

    A table is a model where it has the columns idstatefrom, idaction, idstateto and probability.
    """
    if path.suffix == ".parquet":
        return not _parquet_columns(path) & _MODEL_COLUMNS
    if path.suffix == ".npz":
        import zipfile

        try:
            with zipfile.ZipFile(path) as archive:
                return {"source.npy", "target.npy", "visits.npy"} <= set(archive.namelist())
        except (OSError, zipfile.BadZipFile):
            return False
    if path.suffix != ".csv":
        return False
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as stream:
            header = {word.strip().lower() for word in next(csv.reader(stream), [])}
    except OSError:
        return False
    return not header & _MODEL_COLUMNS and bool(header & {name for names in _COLUMNS.values() for name in names})


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Chunks of a .csv or .parquet file."""
    if path.suffix not in (".csv", ".parquet"):
        raise ModelError(f"{path}: transitions are read from .csv and .parquet files, and saved counts from .npz.")
    with open(path, "rb"):
        pass  # what cannot be opened is reported as such
    return _named(path, _parquet_chunks(path) if path.suffix == ".parquet" else _csv_chunks(path))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of what a file holds name the file."""
    try:
        yield
    except ModelError as error:
        if str(path) in str(error):
            raise
        raise ModelError(f"{path}: {error.message}", python=error.python, command=error.command) from None


def _named(path: Path, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Errors of reading name the file."""
    while True:
        with reading(path, "a file of transitions", ModelError):
            chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk


def _places(header: list[str], path: Path) -> dict[str, str]:
    """The name in the file of each column; `done` may be missing."""
    lowered = {word.strip().lower().lstrip("\ufeff"): word for word in header}
    found: dict[str, str] = {}
    for column, names in _COLUMNS.items():
        here = [lowered[name] for name in names if name in lowered]
        if len(here) > 1:
            raise ModelError(f"{path}: columns {' and '.join(here)} both stand for {column}; keep one.")
        if here:
            found[column] = here[0]
        elif column != "done":
            listed = ", ".join(header)[:120]
            raise ModelError(f"{path}: has no column {column} ({' or '.join(names[1:2])}); its columns are {listed}.")
    return found


def _csv_chunks(path: Path) -> Iterator[Chunk]:
    try:
        import pyarrow.csv
    except ImportError:
        yield from _plain_csv_chunks(path)
        return
    arrow_csv: Any = pyarrow.csv
    places = _places(_csv_header(path), path)
    options = arrow_csv.ReadOptions(block_size=8 << 20)
    wanted = arrow_csv.ConvertOptions(include_columns=list(places.values()))
    # Types are settled by the first block, and an entry that does not fit them is an error that names it.
    stream = arrow_csv.open_csv(path, read_options=options, convert_options=wanted)
    for number, batch in enumerate(stream):
        yield _arrow_chunk(batch, places, f"{path}: block {number + 1}")


def _csv_header(path: Path) -> list[str]:
    with open(path, encoding="utf-8-sig", newline="") as stream:
        header = next(csv.reader(stream), None)
    if not header:
        raise ModelError(f"{path}: is empty; the first line must name the columns.")
    return header


def _plain_csv_chunks(path: Path) -> Iterator[Chunk]:
    """Chunks by the csv module, some 300,000 rows a second."""
    header = _csv_header(path)
    places = _places(header, path)
    order = {column: header.index(name) for column, name in places.items()}
    with open(path, encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream)
        next(rows)
        line = 2
        while block := list(islice(rows, _CHUNK)):
            full = [row for row in block if row]
            short = next((k for k, row in enumerate(block) if row and len(row) != len(header)), None)
            if short is not None:
                raise ModelError(
                    f"{path}: line {line + short} has {len(block[short])} entries instead of {len(header)}."
                )
            columns = {name: [row[k].strip() for row in full] for name, k in order.items()}
            yield Chunk(
                _numbers_or_names(columns["s"]),
                _numbers_or_names(columns["a"]),
                _reals(columns["r"], path, line),
                _numbers_or_names(columns["s_next"]),
                None if "done" not in columns else _booleans(columns["done"], path, line),
            )
            line += len(block)


def _numbers_or_names(words: list[str]) -> Array:
    try:
        return np.array([int(word) for word in words], np.int64)
    except (ValueError, OverflowError):
        return np.array(words, dtype=str)


def _reals(words: list[str], path: Path, line: int) -> Array:
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        for k, word in enumerate(words):
            try:
                float(word)
            except ValueError:
                raise ModelError(f"{path}: line {line + k}: a reward must be a number; got {word[:40]!r}.") from None
        raise


def _booleans(words: list[str], path: Path, line: int) -> Array:
    known = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    try:
        return np.array([known[word.lower()] for word in words], np.bool_)
    except KeyError as wrong:
        raise ModelError(f"{path}: line {line}ff.: done must be true or false, 1 or 0; got {wrong}.") from None


def _parquet_columns(path: Path) -> set[str]:
    """The names of a file's columns; none where it cannot be read, which is said when it is."""
    try:
        import pyarrow.parquet
    except ImportError:
        return set()
    parquet: Any = pyarrow.parquet
    try:
        return {name.lower() for name in parquet.read_schema(path).names}
    except (OSError, ValueError):
        return set()


def _parquet_chunks(path: Path) -> Iterator[Chunk]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ModelError(f"{path}: .parquet files need pyarrow; pip install 'bisimetric[data]'.") from None
    parquet: Any = pyarrow.parquet
    with parquet.ParquetFile(path) as stream:
        places = _places(list(stream.schema_arrow.names), path)
        batches = stream.iter_batches(_CHUNK, columns=list(places.values()))
        for number, batch in enumerate(batches):
            yield _arrow_chunk(batch, places, f"{path}: batch {number + 1}")


def _arrow_chunk(batch: Any, places: dict[str, str], where: str) -> Chunk:
    columns: dict[str, Any] = {"done": None}
    for column, name in places.items():
        given = batch.column(name)
        if given.null_count:
            empty = next(k for k, x in enumerate(given.is_null().to_pylist()) if x)
            raise ModelError(f"{where}: column {name} is empty in row {empty + 1}.")
        columns[column] = given.to_numpy(zero_copy_only=False)
    return Chunk(**columns)


# ---- episodes ----


def episode_chunks(episodes: Iterable[Any], said: Notes) -> Iterator[Chunk]:
    """Chunks of episodes.

    Each is (states, actions, rewards, terminated), or a mapping with these names: T actions and rewards, T + 1 states,
    and whether the episode ended, or was only cut off. Where there are but T states (half an episode), nobody knows
    what the last action led to: it is left out, with a note, unless the episode ended with it.
    """
    for number, episode in enumerate(episodes):
        names = ("states", "actions", "rewards", "terminated")
        if isinstance(episode, dict):
            missing = [name for name in names if name not in episode]
            if missing:
                raise ModelError(f"episode {number}: has no entry {missing[0]!r}; it needs {', '.join(names)}.")
            parts = [episode[name] for name in names]
        else:
            parts = list(episode)
            if len(parts) != 4:
                raise ModelError(
                    f"episode {number}: needs (states, actions, rewards, terminated); got {len(parts)} parts."
                )
        states, actions, rewards = (np.asarray(part) for part in parts[:3])
        ended = bool(np.any(parts[3]))
        n = len(actions)
        if len(rewards) != n or len(states) not in (n, n + 1):
            raise ModelError(
                f"episode {number}: has {len(states)} states, {n} actions and {len(rewards)} rewards; T actions need T "
                "rewards and T + 1 states."
            )
        if n == 0:
            continue
        after = states[1 : n + 1]
        if len(after) < n:
            if ended:
                after = np.concatenate([after, states[:1]])
            else:
                said.count["transitions without a next state were left out (half an episode)"] += 1
                n -= 1
        done = np.zeros(n, np.bool_)
        if n:
            done[-1] = ended and len(actions) == n
            yield Chunk(states[:n], actions[:n], rewards[:n], after[:n], done)


# ---- environments ----


def env_chunks(
    env: Any, policy: Any, steps: int, seed: int, discretiser: Any, options: dict[str, Any]
) -> tuple[Iterator[Chunk], dict[str, Any]]:
    """(chunks of a walk, sizes) through a Gymnasium environment with discrete actions.

    Args:
        env: an environment, or its name. policy: None for uniform; one action for each state; probabilities [S, A]; or
            a function of the observation and a random generator. steps: transitions. seed: of environment and policy.
        discretiser: for observations that are not discrete. options: passed to gymnasium.make.
    """
    made = isinstance(env, str)
    if made:
        try:
            import gymnasium
        except ImportError:
            raise ModelError("gymnasium is not installed; pip install 'bisimetric[gym]'.") from None
        try:
            env = gymnasium.make(env, **options)
        except Exception as error:  # environments raise what they like
            raise ModelError(f"gymnasium cannot make {env!r}: {' '.join(str(error).split())}") from None
    elif options:
        raise TypeError(f"options are for environments given by name; got {', '.join(options)}.")
    if check_whole("steps", steps) < 1:
        raise ValueError(f"steps must be at least 1; got {steps}.")
    n_actions, first_action = _discrete(env.action_space, "actions", "the environment")
    sizes: dict[str, Any] = {"n_actions": n_actions}
    first_state = 0
    if discretiser is None:
        sizes["n_states"], first_state = _discrete(env.observation_space, "observations", "the environment")
    rng = np.random.default_rng(check_whole("seed", seed))
    act = _actor(policy, n_actions, discretiser, first_state)
    return _walk(env, act, steps, seed, rng, (first_state, first_action), made), sizes


def _discrete(space: Any, what: str, whose: str) -> tuple[int, int]:
    """(number of elements, first one) of a discrete space."""
    n = getattr(space, "n", None)
    if n is None or np.ndim(n) != 0:
        remedy = (
            "give a discretiser, such as Grid(low, high, bins)" if what == "observations" else "they must be discrete"
        )
        raise ModelError(f"{whose} has {what} {space}, which are not discrete; {remedy}.")
    return int(n), int(getattr(space, "start", 0))


def _actor(policy: Any, n_actions: int, discretiser: Any, first: int) -> Callable[[Any, np.random.Generator], int]:
    """A function from an observation and a generator to an action from 0."""
    if policy is None:
        return lambda _, rng: int(rng.integers(n_actions))
    if callable(policy):
        return lambda observation, rng: int(policy(observation, rng))
    table = np.asarray(policy)
    if table.ndim not in (1, 2) or (table.ndim == 2 and table.shape[1] != n_actions):
        raise ValueError(f"a policy is a function, one action a state [S], or [S, {n_actions}]; got {table.shape}.")

    def act(observation: Any, rng: np.random.Generator) -> int:
        state = int(observation) - first if discretiser is None else int(discretiser(np.asarray(observation)[None])[0])
        return int(table[state]) if table.ndim == 1 else int(rng.choice(n_actions, p=table[state]))

    return act


def _walk(
    env: Any,
    act: Callable[[Any, np.random.Generator], int],
    steps: int,
    seed: int,
    rng: np.random.Generator,
    first: tuple[int, int],
    close: bool,
) -> Iterator[Chunk]:
    observation, _ = env.reset(seed=seed)
    left = steps
    try:
        while left:
            columns: tuple[list[Any], ...] = ([], [], [], [], [])
            for _ in range(min(left, _CHUNK)):
                action = act(observation, rng)
                after, reward, terminated, truncated, _ = env.step(action + first[1])
                row = (observation, action, float(reward), after, bool(terminated))
                for column, entry in zip(columns, row, strict=True):
                    column.append(entry)
                observation = env.reset()[0] if terminated or truncated else after
            left -= len(columns[0])
            s, a, r, t, done = (np.asarray(column) for column in columns)
            yield Chunk(s - first[0], a, r, t - first[0], done) if first[0] else Chunk(s, a, r, t, done)
    finally:
        if close:
            env.close()


# ---- simulators ----


def simulator_chunks(simulator: Any, n_states: int, n_actions: int, samples: int, seed: int) -> Iterator[Chunk]:
    """Chunks of `samples` transitions from every state and action.

    Args:
        simulator: a function of states [k], actions [k] and a random generator that gives (rewards [k], next states
            [k], done [k]); or an MDP of this package with as many actions in each state, which is sampled.
    """
    from ..model import MDP

    for name, number in (("n_states", n_states), ("n_actions", n_actions), ("samples", samples)):
        if check_whole(name, number) < 1:
            raise ValueError(f"{name} must be at least 1; got {number}.")
    ask = _sampler(simulator, n_states, n_actions) if isinstance(simulator, MDP) else simulator
    if not callable(ask):
        raise TypeError(f"simulator must be a function (s, a, rng) -> (r, s_next, done); got {type(ask).__name__}.")
    rng = np.random.default_rng(check_whole("seed", seed))
    total = n_states * n_actions * samples
    for begin in range(0, total, _CHUNK):
        row = np.arange(begin, min(begin + _CHUNK, total)) // samples
        s, a = np.divmod(row, n_actions)
        r, t, done = ask(s, a, rng)
        yield Chunk(s, a, r, t, done)


def _sampler(mdp: Any, n_states: int, n_actions: int) -> Callable[..., tuple[Array, Array, None]]:
    if mdp.n_states != n_states or mdp.n_choices != n_states * n_actions:
        raise ValueError(
            f"the model has {mdp.n_states} states and {mdp.n_choices} choices, not {n_states} · {n_actions}."
        )
    rows = mdp.rows
    reach = np.cumsum(rows.probs)  # one line for all rows: row k lies between its first and last entry

    def ask(s: Array, a: Array, rng: np.random.Generator) -> tuple[Array, Array, None]:
        row = s * n_actions + a
        first, last = rows.indptr[row], rows.indptr[row + 1] - 1
        start = np.where(first > 0, reach[first - 1], 0.0)
        place = np.searchsorted(reach, start + rng.random(len(row)) * (reach[last] - start), side="right")
        return mdp.rewards[row], rows.indices[np.clip(place, first, last)].astype(np.int64), None

    return ask


# ---- Minari ----


def minari_chunks(dataset: Any, discretiser: Any, said: Notes) -> tuple[Iterator[Chunk], dict[str, Any]]:
    """(chunks, sizes) of a Minari dataset, or of its name, with discrete actions."""
    if isinstance(dataset, str):
        try:
            import minari
        except ImportError:
            raise ModelError("minari is not installed; pip install 'bisimetric[data]'.") from None
        dataset = minari.load_dataset(dataset)
    n_actions, first_action = _discrete(dataset.action_space, "actions", "the dataset")
    sizes: dict[str, Any] = {"n_actions": n_actions}
    first_state = 0
    if discretiser is None:
        sizes["n_states"], first_state = _discrete(dataset.observation_space, "observations", "the dataset")

    def episodes() -> Iterator[tuple[Any, ...]]:
        for episode in dataset.iterate_episodes():
            observations = np.asarray(episode.observations)
            if first_state:
                observations = observations - first_state
            actions = np.asarray(episode.actions) - first_action
            yield observations, actions, episode.rewards, np.any(np.asarray(episode.terminations))

    check_type("notes", said, Notes)
    return episode_chunks(episodes(), said), sizes
