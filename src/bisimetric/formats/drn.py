"""DRN, Storm's explicit text format: MDPs and DTMCs, several reward models, labels, action names."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from .. import atomic
from ..damage import Budget
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

_UNNAMED = "__NOLABEL__"
_LONGEST_LINE = 1 << 20


class _Rewards:
    """Rewards of states or of choices, kept only where they are given."""

    def __init__(self) -> None:
        self.owners, self.values = array("q"), array("d")

    def add(self, owner: int, values: list[float]) -> None:
        if any(values):
            self.owners.append(owner)
            self.values.extend(values)

    def dense(self, n_models: int, count: int) -> NDArray[np.float64]:
        """[models, owners]."""
        table = np.zeros((n_models, count))
        if len(self.owners):
            owners = np.array(self.owners)
            np.add.at(table.T, owners, np.array(self.values).reshape(len(owners), n_models))
        return table


class _Reader:
    """Collects what the lines say; arrays grow with what is there, not with what is announced."""

    def __init__(self, path: Path) -> None:
        self.path, self.budget = path, Budget(path)
        self.rewards: list[str] = []
        self.reward_line = ""
        self.rewards_known = False  # how many reward models there are, as a bracket has shown
        self.announced: dict[str, int] = {}
        self.choice_ptr, self.indptr = array("q", [0]), array("q", [0])
        self.indices, self.probs = array("q"), array("d")
        self.labels: dict[str, array[int]] = {}
        self.actions: list[str] = []
        self.state_rewards, self.choice_rewards = _Rewards(), _Rewards()
        self.names: list[str] = []
        self.states = 0
        self.farthest = (-1, 0)  # largest successor, and its line

    def start(self, line: str) -> None:
        """Take the line that names the reward models."""
        self.reward_line, self.rewards = line, line.split()

    def close_choice(self) -> None:
        if len(self.actions) >= len(self.indptr):
            self.indptr.append(len(self.indices))

    def close_state(self) -> None:
        self.close_choice()
        if self.states >= len(self.choice_ptr):
            self.choice_ptr.append(len(self.actions))

    def bracketed(self, rest: str, line: int) -> tuple[list[float], str]:
        """The rewards in [ … ] at the start of rest, and what follows."""
        if not rest.startswith("["):
            return [], rest
        inside, bracket, after = rest[1:].partition("]")
        if not bracket:
            raise ParseError(self.path, line, "a bracket is not closed.")
        values = [number(x.strip(), self.path, line, "a reward") for x in inside.split(",")] if inside.strip() else []
        if not self.rewards_known:
            if len(values) == len(self.rewards) + 1:
                self.rewards = _with_unnamed(self.reward_line)
            self.rewards_known = True
        if len(values) != len(self.rewards):
            raise ParseError(self.path, line, f"{len(values)} rewards for {len(self.rewards)} reward models.")
        return values, after.strip()

    def state(self, rest: str, line: int) -> None:
        self.close_state()
        word, _, after = rest.partition(" ")
        if index(word, self.path, line, "a state") != self.states:
            raise ParseError(self.path, line, f"state {word} where state {self.states} was expected.")
        values, names = self.bracketed(after.strip(), line)
        if names.startswith("{"):
            raise ParseError(self.path, line, "observations (POMDPs) are not supported.")
        self.state_rewards.add(self.states, values)
        for name in _label_names(names):
            self.labels.setdefault(name, array("q")).append(self.states)
        self.states += 1

    def name(self, text: str) -> None:
        """The valuation that Storm writes behind a state, as its name."""
        if self.states == len(self.names) + 1:
            self.names.append(text.replace("\t&", " &"))

    def action(self, rest: str, line: int) -> None:
        if self.states == 0:
            raise ParseError(self.path, line, "an action before any state.")
        self.close_choice()
        word, _, after = rest.partition(" ")
        values, extra = self.bracketed(after.strip(), line)
        if extra:
            raise ParseError(self.path, line, f"cannot read {shown(extra)} after the action.")
        self.choice_rewards.add(len(self.actions), values)
        self.actions.append("" if word == _UNNAMED else word)

    def transition(self, text: str, line: int) -> None:
        target, colon, probability = text.partition(":")
        if not colon:
            raise ParseError(self.path, line, "a transition is written STATE : PROBABILITY.")
        if not self.actions or len(self.actions) < len(self.indptr):
            raise ParseError(self.path, line, "a transition before any action.")
        self.indices.append(index(target.strip(), self.path, line, "a state"))
        self.farthest = max(self.farthest, (self.indices[-1], line))
        self.probs.append(number(probability.strip(), self.path, line, "a probability"))

    def line(self, text: str, line: int) -> None:
        """A line of the model itself."""
        if text[0].isdigit():
            self.transition(text, line)
        elif text.startswith("action "):
            self.action(text[7:].strip(), line)
        elif text.startswith("state "):
            self.state(text[6:].strip(), line)
        else:
            raise ParseError(self.path, line, f"cannot read {shown(text)}.")

    def build(self, gamma: float) -> MDP:
        self.close_state()
        n, n_choices, n_models = self.states, len(self.actions), len(self.rewards)
        if n == 0:
            raise ParseError(self.path, 0, "has no states.")
        for what, count in (("states", n), ("choices", n_choices)):
            if self.announced.get(what, count) != count:
                raise ParseError(self.path, 0, f"announces {self.announced[what]} {what} and has {count}.")
        if len(set(self.rewards)) < n_models:
            raise ParseError(self.path, 0, "two reward models have the same name.")
        indices = np.frombuffer(self.indices, np.int64) if self.indices else np.empty(0, np.int64)
        if self.farthest[0] >= n:
            raise ParseError(
                self.path, self.farthest[1], f"a transition leads to state {self.farthest[0]}, of {n} states."
            )
        from scipy.sparse import csr_array

        choice_ptr = np.array(self.choice_ptr, np.int64)
        counts = np.diff(choice_ptr)
        matrix = csr_array((np.array(self.probs, np.float64), indices, np.array(self.indptr)), shape=(n_choices, n))
        self.budget.take(16 * n_models * n_choices, f"{n_models} reward models of {n_choices} choices")
        table = np.repeat(self.state_rewards.dense(n_models, n), counts, axis=1)
        table += self.choice_rewards.dense(n_models, n_choices)
        labels = dense_labels(dict(self.labels), n, self.budget)
        position = np.arange(n_choices) - np.repeat(choice_ptr[:-1], counts)
        return MDP(
            Distributions.from_matrix(matrix),
            np.zeros(n_choices),
            choice_ptr,
            gamma,
            position,
            tuple(str(k) for k in range(int(counts.max()))),
            tuple(self.names) if len(self.names) == n else None,
            None,
            labels,
            {name: table[k].copy() for k, name in enumerate(self.rewards)},
            tuple(self.actions),
        )


def _with_unnamed(line: str) -> list[str]:
    """Names of reward models where one of them has none, as for an unnamed block of rewards in PRISM's language.

    Storm writes each name with a space behind it, so the place of the empty one is where a space is too many.
    """
    names, words = line.split(), line.split(" ")
    place = next((k for k, word in enumerate(words[:-1]) if not word), len(names))
    unnamed = "reward"
    while unnamed in names:
        unnamed += "_"
    return [*names[:place], unnamed, *names[place:]]


def _label_names(text: str) -> Iterator[str]:
    """Names behind a state: words, or whatever is in quotes, as Storm writes names with spaces."""
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        stop = text.find('"', place + 1) if text[place] == '"' else -1
        if stop > 0:
            yield text[place + 1 : stop]
            place = stop + 1
            continue
        match = re.compile(r"\S+").match(text, place)
        assert match is not None
        yield match[0]
        place = match.end()


def read_drn(path: Path, gamma: float) -> MDP:
    """Read a DRN file (types MDP and DTMC). DRN has no discount, so it must be given.

    Choices are labelled by position; their action names are kept beside. No reward model is chosen.
    """
    reader = _Reader(path)
    section, in_model = "", False
    for k, raw in numbered_lines(read_text(path)):
        if len(raw) > _LONGEST_LINE:
            raise ParseError(path, k, f"a line has {len(raw)} characters.")
        line = raw.strip()
        if section:  # the line after the name of a section
            _section_line(reader, section, raw, k)
            section = ""
            continue
        if line.startswith("//[") and in_model and line.endswith("]"):
            reader.name(line[3:-1])
        if not line or line.startswith("//"):
            continue
        if in_model:
            reader.line(line, k)
        elif line.startswith("@type:"):
            kind = line.partition(":")[2].strip().upper()
            if kind not in ("MDP", "DTMC"):
                raise ParseError(path, k, f"models of type {shown(kind)} are not supported; MDP and DTMC are.")
        elif line.startswith("@value_type:"):
            if line.partition(":")[2].strip() not in ("double", "rational"):
                raise ParseError(path, k, "only values of type double and rational can be read.")
        elif line in ("@parameters", "@reward_models", "@nr_states", "@nr_choices"):
            section = line
        elif line == "@model":
            in_model = True
        elif not line.startswith("@"):
            raise ParseError(path, k, f"cannot read {shown(line)}; is this a DRN file?")
    if not in_model:
        raise ParseError(path, 0, "is not a DRN file (it has no @model).")
    return reader.build(gamma)


def _section_line(reader: _Reader, section: str, raw: str, line: int) -> None:
    value = raw.strip()
    if section == "@parameters" and value:
        raise ParseError(reader.path, line, f"parametric models are not supported (parameters {shown(value)}).")
    if section == "@reward_models":
        reader.start(raw)
    elif section.startswith("@nr_"):
        reader.announced[section[4:]] = index(value, reader.path, line, section)


def write_drn(mdp: MDP, path: Path) -> None:
    """Write a DRN file; rewards are written on the choices."""
    models = rewards_to_write(mdp)
    check_names(models, " ", "the reward model", path)
    check_names(mdp.state_labels, '"', "the label", path)
    check_names(filter(None, mdp.action_names or ()), " ", "the action", path)
    check_names(filter(None, mdp.state_names or ()), "", "the state", path)
    quoted = {name: name if re.fullmatch(r"\w\S*", name) else f'"{name}"' for name in mdp.state_labels}

    def fill(stream: IO[bytes]) -> None:
        out = [
            "// Exported by bisimetric",
            "@type: MDP",
            "@value_type: double",
            "@parameters",
            "",
            "@reward_models",
            " ".join(models),
            "@nr_states",
            str(mdp.n_states),
            "@nr_choices",
            str(mdp.n_choices),
            "@model",
        ]
        for s in range(mdp.n_states):
            names = [quoted[name] for name, holds in mdp.state_labels.items() if holds[s]]
            out.append(" ".join([f"state {s}", "[" + ", ".join("0" for _ in models) + "]", *names]))
            if mdp.state_names is not None:
                out.append(f"//[{mdp.state_names[s]}]")
            for c in range(mdp.choice_ptr[s], mdp.choice_ptr[s + 1]):
                values = ", ".join(repr(float(other[c])) for other in models.values())
                name = (mdp.action_names[c] if mdp.action_names is not None else "") or _UNNAMED
                out.append(f"\taction {name} [{values}]")
                for k in range(mdp.rows.indptr[c], mdp.rows.indptr[c + 1]):
                    out.append(f"\t\t{mdp.rows.indices[k]} : {float(mdp.rows.probs[k])!r}")
            if len(out) > 10000:
                stream.write(("\n".join(out) + "\n").encode())
                out.clear()
        stream.write(("\n".join(out) + "\n").encode())

    atomic.write(path, fill)
