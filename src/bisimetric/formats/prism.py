"""PRISM's explicit files: transitions (.tra), labels (.lab), state rewards (.srew), transition rewards (.trew)."""

from __future__ import annotations

import glob
import re
from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from .. import atomic
from ..damage import Budget
from ..kinds import Bools, Floats, Ints
from ..model import MDP, Distributions
from .text import (
    ParseError,
    check_names,
    dense_labels,
    index,
    number,
    numbered_lines,
    read_text,
    rewards_to_write,
    shown,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, words) of the lines that say something, the first of which must be there."""
    found = False
    for k, line in numbered_lines(read_text(path)):
        words = line.split("#", 1)[0].split()
        if words:
            found = True
            yield k, words
    if not found:
        raise ParseError(path, 0, "is empty.")


def read_prism(path: Path, gamma: float) -> MDP:
    """Read model.tra with what is beside it: model.lab, model.srew, model.trew (and model1.srew, …).

    MDPs have three numbers in their first line, chains two. Choices are labelled by position. No reward model is
    chosen.
    """
    body = _lines(path)
    top, header = next(body)
    if len(header) not in (2, 3):
        raise ParseError(path, top, "the first line must be STATES CHOICES TRANSITIONS, or STATES TRANSITIONS.")
    is_mdp = len(header) == 3
    n_states, n_choices, announced = (index(header[k], path, top, "a count") for k in (0, -2 if is_mdp else 0, -1))
    source, choice, target, probs = array("q"), array("q"), array("q"), array("d")
    names: dict[tuple[int, int], str] = {}
    for line, words in body:
        if len(words) not in ((4, 5) if is_mdp else (3, 4)):
            raise ParseError(path, line, f"{len(words)} entries in a transition.")
        numbers = [index(word, path, line, "a state or choice") for word in words[: 3 if is_mdp else 2]]
        s, c, t = numbers if is_mdp else (numbers[0], 0, numbers[1])
        if s >= n_states or t >= n_states:
            raise ParseError(path, line, f"state {max(s, t)} is out of range ({n_states} states).")
        source.append(s)
        choice.append(c)
        target.append(t)
        probs.append(number(words[3 if is_mdp else 2], path, line, "a probability"))
        if len(words) == (5 if is_mdp else 4):
            names[(s, c)] = words[-1]
    if announced != len(source):
        raise ParseError(path, top, f"announces {announced} transitions and has {len(source)}.")
    if n_states < 1 or n_states > len(source):
        raise ParseError(path, top, f"announces {n_states} states, which {len(source)} transitions cannot serve.")
    if max(choice) >= len(source):
        raise ParseError(path, top, f"has a choice of number {max(choice)}; choices are numbered from 0.")
    found = len(set(zip(source, choice, strict=True)))
    if is_mdp and found != n_choices:
        raise ParseError(path, top, f"announces {n_choices} choices and has {found}.")
    return _build(path, gamma, n_states, np.array(source), np.array(choice), np.array(target), np.array(probs), names)


def _build(
    path: Path,
    gamma: float,
    n_states: int,
    source: Ints,
    choice: Ints,
    target: Ints,
    probs: Floats,
    names: dict[tuple[int, int], str],
) -> MDP:
    from scipy.sparse import csr_array

    width = int(choice.max()) + 1
    keys, row = np.unique(source * width + choice, return_inverse=True)
    owner, position = keys // width, keys % width
    choice_ptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n_states))]).astype(np.int64)
    expected = np.arange(len(keys)) - np.repeat(choice_ptr[:-1], np.diff(choice_ptr))
    if np.any(position != expected):
        raise ParseError(path, 0, f"the choices of state {owner[position != expected][0]} are not numbered from 0.")
    matrix = csr_array((probs, (row.reshape(-1), target)), shape=(len(keys), n_states))
    actions = tuple(names.get((int(s), int(c)), "") for s, c in zip(owner, position, strict=True)) if names else None
    models = _reward_models(path, n_states, choice_ptr, matrix)
    return MDP(
        Distributions.from_matrix(matrix),
        np.zeros(len(keys)),
        choice_ptr,
        gamma,
        position.astype(np.int64),
        tuple(str(k) for k in range(width)),
        None,
        None,
        _labels(path, n_states),
        models,
        actions,
    )


def _labels(path: Path, n_states: int) -> dict[str, Bools]:
    beside = path.with_suffix(".lab")
    if not beside.exists():
        return {}
    found: dict[int, str] | None = None
    members: dict[int, array[int]] = {}
    for line, text in numbered_lines(read_text(beside)):
        if found is None:
            if text.strip():
                found = _label_header(text, beside, line)
                members = {label: array("q") for label in found}
            continue
        words = text.split("#", 1)[0].split()
        if not words:
            continue
        state = index(words[0].rstrip(":"), beside, line, "a state")
        for word in words[1:]:
            label = index(word, beside, line, "a label")
            if state >= n_states or label not in members:
                raise ParseError(beside, line, f"state {state} or label {label} is out of range.")
            members[label].append(state)
    assert found is not None
    return dense_labels({found[label]: states for label, states in members.items()}, n_states, Budget(beside))


def _label_header(text: str, path: Path, line: int) -> dict[int, str]:
    """Numbers and names of the labels, as in 0="init" 1="deadlock"."""
    found: dict[int, str] = {}
    place = 0
    while text[place:].strip():
        equals = text.find('="', place)
        stop = text.find('"', equals + 2) if equals >= 0 else -1
        if stop < 0:
            break
        found[index(text[place:equals].strip(), path, line, "a label")] = text[equals + 2 : stop]
        place = stop + 1
    if not found or text[place:].strip():
        raise ParseError(path, line, f'the first line must name the labels, as in 0="init"; got {shown(text)}.')
    if len(set(found.values())) < len(found):
        raise ParseError(path, line, "two labels have the same name.")
    return found


def _reward_files(path: Path) -> list[Path]:
    """The .srew and .trew files of a model, by number or name; not those of another model in the folder."""
    found = []
    for ending in (".srew", ".trew"):
        for file in path.parent.glob(f"{glob.escape(path.stem)}*{ending}"):
            tag = file.stem[len(path.stem) :]
            if not tag or (re.fullmatch(r"[-_.]?\w+", tag) and not file.with_suffix(".tra").exists()):
                found.append((len(tag), tag, ending, file))
    return [file for *_, file in sorted(found)]


def _reward_name(path: Path, file: Path) -> str:
    """The name in the first line, as PRISM writes it, or what the file's name has more than the model's."""
    named = re.match(r'#\s*Reward structure:?\s+"(.*)"\s*$', read_text(file).split("\n", 1)[0])
    return named[1] if named else file.stem[len(path.stem) :].strip("-_.") or "reward"


def _reward_models(path: Path, n_states: int, choice_ptr: Ints, matrix: csr_array) -> dict[str, Floats]:
    """Rewards beside the transitions; model.srew and model.trew make one reward model, model2.srew another."""
    models: dict[str, Floats] = {}
    for file in _reward_files(path):
        total = models.setdefault(_reward_name(path, file), np.zeros(int(choice_ptr[-1])))
        where, values = _reward_entries(file, n_states, choice_ptr, transitions=file.suffix == ".trew")
        if not len(values):
            continue
        if file.suffix == ".srew":
            by_state = np.bincount(where[:, 0], weights=values, minlength=n_states)
            total += np.repeat(by_state, np.diff(choice_ptr))
        else:
            chosen = choice_ptr[where[:, 0]] + where[:, 1]
            share = np.asarray(matrix[chosen, where[:, 2]]).reshape(-1)
            total += np.bincount(chosen, weights=values * share, minlength=len(total))
    return models


def _reward_entries(file: Path, n_states: int, choice_ptr: Ints, *, transitions: bool) -> tuple[Ints, Floats]:
    """((state, choice, next state) of each line, its reward); choice and next state are 0 for rewards of states."""
    counts = np.diff(choice_ptr)
    body = _lines(file)
    line, header = next(body)
    if index(header[0], file, line, "the number of states") != n_states:
        raise ParseError(file, line, f"is for {shown(header[0])} states, the model has {n_states}.")
    where, values = array("q"), array("d")
    for k, words in body:
        values.append(number(words[-1], file, k, "a reward"))
        entry = [index(word, file, k, "a state or choice") for word in words[:-1]]
        if not entry or entry[0] >= n_states:
            raise ParseError(file, k, "a state is missing or out of range.")
        if transitions:
            choice = entry[1] if len(entry) == 3 else 0
            if len(entry) not in (2, 3) or choice >= counts[entry[0]] or entry[-1] >= n_states:
                raise ParseError(file, k, "a state or choice is missing or out of range.")
            where.extend((entry[0], choice, entry[-1]))
        else:
            where.extend((entry[0], 0, 0))
    return np.array(where, np.int64).reshape(-1, 3), np.array(values)


def write_prism(mdp: MDP, path: Path) -> None:
    """Write model.tra, model.lab and, for each reward model, its .trew file; all are written before any is moved."""
    check_names(filter(None, mdp.action_names or ()), " #", "the action", path)
    check_names(mdp.state_labels, '"', "the label", path)
    models = rewards_to_write(mdp)
    check_names(models, "", "the reward model", path)
    rows, owner = mdp.rows, mdp.state_of_choice
    position = np.arange(mdp.n_choices) - np.repeat(mdp.choice_ptr[:-1], np.diff(mdp.choice_ptr))

    def transitions(stream: IO[bytes], value: Floats | None, counts: str) -> None:
        out = [counts]
        for c in range(mdp.n_choices):
            name = f" {mdp.action_names[c]}" if mdp.action_names is not None and mdp.action_names[c] else ""
            for k in range(rows.indptr[c], rows.indptr[c + 1]):
                number_text, action = (
                    (repr(float(rows.probs[k])), name) if value is None else (repr(float(value[c])), "")
                )
                if value is None or value[c] != 0.0:
                    out.append(f"{owner[c]} {position[c]} {rows.indices[k]} {number_text}{action}")
        stream.write(("\n".join(out) + "\n").encode())

    def labels(stream: IO[bytes]) -> None:
        names = list(mdp.state_labels)
        out = [" ".join(f'{k}="{name}"' for k, name in enumerate(names))]
        for s in range(mdp.n_states):
            holds = [str(k) for k, name in enumerate(names) if mdp.state_labels[name][s]]
            if holds:
                out.append(f"{s}: {' '.join(holds)}")
        stream.write(("\n".join(out) + "\n").encode())

    sizes = f"{mdp.n_states} {mdp.n_choices}"
    before, files = {*_reward_files(path), path.with_suffix(".lab")}, dict[Path, atomic.Fill]()
    for k, (name, values) in enumerate(models.items(), 1):
        tag = "" if len(models) == 1 else f"-{k}"
        counts = f'# Reward structure "{name}"\n{sizes} {int(rows.sizes[values != 0.0].sum())}'
        files[path.with_name(f"{path.stem}{tag}.trew")] = partial(transitions, value=values, counts=counts)
    if mdp.state_labels:
        files[path.with_suffix(".lab")] = labels
    files[path] = partial(transitions, value=None, counts=f"{sizes} {rows.probs.size}")
    atomic.write_all(files)
    for old in before - set(files):  # parts of the model that was overwritten, which would be read as parts of this one
        old.unlink(missing_ok=True)
