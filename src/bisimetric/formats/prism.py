"""PRISM's explicit files: transitions (.tra), labels (.lab), state rewards (.srew), transition rewards (.trew)."""

from __future__ import annotations

import glob
import re
from array import array
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .. import atomic
from ..model import MDP, Distributions
from .text import ParseError, check_names, index, number, read_text, rewards_to_write


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, words) of the lines that say something."""
    lines = []
    for k, line in enumerate(read_text(path).split("\n"), 1):
        words = line.split("#", 1)[0].split()
        if words:
            lines.append((k, words))
    if not lines:
        raise ParseError(path, 0, "is empty.")
    return lines


def read_prism(path: Path, gamma: float) -> MDP:
    """Read model.tra with what is beside it: model.lab, model.srew, model.trew (and model1.srew, …).

    MDPs have three numbers in their first line, chains two. Choices are labelled by position.
    """
    (top, header), *body = _lines(path)
    if len(header) not in (2, 3):
        raise ParseError(path, top, "the first line must be STATES CHOICES TRANSITIONS, or STATES TRANSITIONS.")
    is_mdp = len(header) == 3
    n_states, n_choices, announced = (index(header[k], path, top, "a count") for k in (0, -2 if is_mdp else 0, -1))
    if announced != len(body):
        raise ParseError(path, top, f"announces {announced} transitions and has {len(body)}.")
    if n_states < 1 or n_states > len(body):
        raise ParseError(path, top, f"announces {n_states} states, which {len(body)} transitions cannot serve.")
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
    found = len(set(zip(source, choice, strict=True)))
    if is_mdp and found != n_choices:
        raise ParseError(path, top, f"announces {n_choices} choices and has {found}.")
    return _build(path, gamma, n_states, np.array(source), np.array(choice), np.array(target), np.array(probs), names)


def _build(
    path: Path, gamma: float, n_states: int, source: NDArray[Any], choice: NDArray[Any], target: NDArray[Any],
    probs: NDArray[Any], names: dict[tuple[int, int], str],
) -> MDP:  # fmt: skip
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
    first = next(iter(models.values()), np.zeros(len(keys))).copy()
    return MDP(Distributions.from_matrix(matrix), first, choice_ptr, gamma, position.astype(np.int64),
               tuple(str(k) for k in range(width)), None, None, _labels(path, n_states), models, actions)  # fmt: skip


def _labels(path: Path, n_states: int) -> dict[str, NDArray[np.bool_]]:
    beside = path.with_suffix(".lab")
    if not beside.exists():
        return {}
    (line, _), *body = _lines(beside)
    header = read_text(beside).split("\n")[line - 1]
    found = {int(k): name for k, name in re.findall(r'(\d+)="([^"]*)"', header)}
    if not found:
        raise ParseError(beside, line, 'the first line must name the labels, as in 0="init".')
    labels = {name: np.zeros(n_states, np.bool_) for name in found.values()}
    for number_of_line, words in body:
        state = index(words[0].rstrip(":"), beside, number_of_line, "a state")
        for word in words[1:]:
            label = index(word, beside, number_of_line, "a label")
            if state >= n_states or label not in found:
                raise ParseError(beside, number_of_line, f"state {state} or label {label} is out of range.")
            labels[found[label]][state] = True
    return labels


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


def _reward_models(path: Path, n_states: int, choice_ptr: NDArray[np.int64], matrix: Any) -> dict[str, Any]:
    """Rewards beside the transitions; model.srew and model.trew make one reward model, model2.srew another."""
    models: dict[str, Any] = {}
    counts = np.diff(choice_ptr)
    for file in _reward_files(path):
        ending = file.suffix
        (line, header), *body = _lines(file)
        if index(header[0], file, line, "the number of states") != n_states:
            raise ParseError(file, line, f"is for {header[0]} states, the model has {n_states}.")
        total = models.setdefault(_reward_name(path, file), np.zeros(int(choice_ptr[-1])))
        for k, words in body:
            value = number(words[-1], file, k, "a reward")
            where = [index(word, file, k, "a state or choice") for word in words[:-1]]
            if not where or where[0] >= n_states:
                raise ParseError(file, k, "a state is missing or out of range.")
            if ending == ".srew":
                total[choice_ptr[where[0]] : choice_ptr[where[0] + 1]] += value
                continue
            c = where[1] if len(where) == 3 else 0
            if len(where) not in (2, 3) or c >= counts[where[0]] or where[-1] >= n_states:
                raise ParseError(file, k, "a state or choice is missing or out of range.")
            chosen = choice_ptr[where[0]] + c
            total[chosen] += value * matrix[[chosen], [where[-1]]][0]
    return models


def write_prism(mdp: MDP, path: Path) -> None:
    """Write model.tra, model.lab and, for each reward model, its .trew file. Each file is whole or absent."""
    check_names(filter(None, mdp.action_names or ()), " #", "the action", path)
    check_names(mdp.state_labels, '"', "the label", path)
    models = rewards_to_write(mdp)
    check_names(models, "", "the reward model", path)
    rows, owner = mdp.rows, mdp.state_of_choice
    position = np.arange(mdp.n_choices) - np.repeat(mdp.choice_ptr[:-1], np.diff(mdp.choice_ptr))

    def transitions(stream: IO[bytes], value: Any, counts: str) -> None:
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
    before, written = {*_reward_files(path), path.with_suffix(".lab")}, set()
    for k, (name, values) in enumerate(models.items(), 1):
        tag = "" if len(models) == 1 else f"-{k}"
        counts = f'# Reward structure "{name}"\n{sizes} {int(rows.sizes[values != 0.0].sum())}'
        file = path.with_name(f"{path.stem}{tag}.trew")
        atomic.write(file, partial(transitions, value=values, counts=counts))
        written.add(file)
    if mdp.state_labels:
        atomic.write(path.with_suffix(".lab"), labels)
        written.add(path.with_suffix(".lab"))
    atomic.write(path, partial(transitions, value=None, counts=f"{sizes} {rows.probs.size}"))
    for old in before - written:  # parts of the model that was overwritten, which would be read as parts of this one
        old.unlink(missing_ok=True)
