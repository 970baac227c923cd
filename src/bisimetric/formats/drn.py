"""DRN, Storm's explicit text format: MDPs and DTMCs, several reward models, labels, action names."""

from __future__ import annotations

import re
from array import array
from pathlib import Path
from typing import IO

import numpy as np

from .. import atomic
from ..model import MDP, Distributions
from .text import ParseError, check_names, index, number, read_text, rewards_to_write

_UNNAMED = "__NOLABEL__"


class _Reader:
    """Collects what the lines say; arrays grow with what is there, not with what is announced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rewards: list[str] = []
        self.announced: dict[str, int] = {}
        self.choice_ptr, self.indptr = array("q", [0]), array("q", [0])
        self.indices, self.probs = array("q"), array("d")
        self.labels: dict[str, array[int]] = {}
        self.actions: list[str] = []
        self.state_rewards: list[array[float]] = []
        self.choice_rewards: list[array[float]] = []
        self.names: list[str] = []
        self.states = 0
        self.farthest = (-1, 0)  # largest successor, and its line

    def start(self, names: list[str]) -> None:
        self.rewards = names
        self.state_rewards = [array("d") for _ in names]
        self.choice_rewards = [array("d") for _ in names]

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
            return [0.0] * len(self.rewards), rest
        inside, bracket, after = rest[1:].partition("]")
        if not bracket:
            raise ParseError(self.path, line, "a bracket is not closed.")
        values = [number(x.strip(), self.path, line, "a reward") for x in inside.split(",")] if inside.strip() else []
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
        for column, value in zip(self.state_rewards, values, strict=True):
            column.append(value)
        for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', names):  # Storm quotes names with spaces
            self.labels.setdefault(quoted or plain, array("q")).append(self.states)
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
            raise ParseError(self.path, line, f"cannot read {extra!r} after the action.")
        for column, value in zip(self.choice_rewards, values, strict=True):
            column.append(value)
        self.actions.append("" if word == _UNNAMED else word)

    def build(self, gamma: float) -> MDP:
        self.close_state()
        n = self.states
        if n == 0:
            raise ParseError(self.path, 0, "has no states.")
        for what, count in (("states", n), ("choices", len(self.actions))):
            if self.announced.get(what, count) != count:
                raise ParseError(self.path, 0, f"announces {self.announced[what]} {what} and has {count}.")
        indices = np.frombuffer(self.indices, np.int64) if self.indices else np.empty(0, np.int64)
        if self.farthest[0] >= n:
            raise ParseError(
                self.path, self.farthest[1], f"a transition leads to state {self.farthest[0]}, of {n} states."
            )
        choice_ptr = np.array(self.choice_ptr, np.int64)
        counts = np.diff(choice_ptr)
        from scipy.sparse import csr_array

        probs = np.array(self.probs, np.float64)
        rows = Distributions.from_matrix(
            csr_array((probs, indices, np.array(self.indptr)), shape=(len(self.actions), n))
        )
        models = {
            name: np.repeat(np.array(self.state_rewards[k]), counts) + np.array(self.choice_rewards[k])
            for k, name in enumerate(self.rewards)
        }
        labels = {}
        for name, members in self.labels.items():
            labels[name] = np.zeros(n, np.bool_)
            labels[name][np.array(members)] = True
        position = np.arange(len(self.actions)) - np.repeat(choice_ptr[:-1], counts)
        first = next(iter(models.values()), np.zeros(len(self.actions))).copy()
        return MDP(rows, first, choice_ptr, gamma, position, tuple(str(k) for k in range(int(counts.max()))),
                   tuple(self.names) if len(self.names) == n else None, None, labels, models,
                   tuple(self.actions))  # fmt: skip


def read_drn(path: Path, gamma: float) -> MDP:
    """Read a DRN file (types MDP and DTMC). DRN has no discount, so it must be given.

    Choices are labelled by position; their action names are kept beside. The first reward model is chosen.
    """
    reader = _Reader(path)
    lines = read_text(path).split("\n")
    k, in_model = 0, False
    while k < len(lines):
        line = lines[k].strip()
        k += 1
        if line.startswith("//[") and in_model and line.endswith("]"):
            reader.name(line[3:-1])
        if not line or line.startswith("//"):
            continue
        if in_model:
            _model_line(reader, line, k)
        elif line.startswith("@type:"):
            kind = line.partition(":")[2].strip().upper()
            if kind not in ("MDP", "DTMC"):
                raise ParseError(path, k, f"models of type {kind} are not supported; MDP and DTMC are.")
        elif line.startswith("@value_type:"):
            if line.partition(":")[2].strip() not in ("double", "rational"):
                raise ParseError(path, k, "only values of type double and rational can be read.")
        elif line in ("@parameters", "@reward_models", "@nr_states", "@nr_choices"):
            value = lines[k].strip() if k < len(lines) else ""
            k += 1
            if line == "@parameters" and value:
                raise ParseError(path, k, f"parametric models are not supported (parameters {value}).")
            if line == "@reward_models":
                reader.start(value.split())
            elif line.startswith("@nr_"):
                reader.announced[line[4:]] = index(value, path, k, line)
        elif line == "@model":
            in_model = True
        elif not line.startswith("@"):
            raise ParseError(path, k, f"cannot read {line[:40]!r}; is this a DRN file?")
    if not in_model:
        raise ParseError(path, 0, "is not a DRN file (it has no @model).")
    return reader.build(gamma)


def _model_line(reader: _Reader, line: str, number_of_line: int) -> None:
    if line[0].isdigit():
        target, colon, probability = line.partition(":")
        if not colon:
            raise ParseError(reader.path, number_of_line, "a transition is written STATE : PROBABILITY.")
        if not reader.actions or len(reader.actions) < len(reader.indptr):
            raise ParseError(reader.path, number_of_line, "a transition before any action.")
        reader.indices.append(index(target.strip(), reader.path, number_of_line, "a state"))
        reader.farthest = max(reader.farthest, (reader.indices[-1], number_of_line))
        reader.probs.append(number(probability.strip(), reader.path, number_of_line, "a probability"))
    elif line.startswith("action "):
        reader.action(line[7:].strip(), number_of_line)
    elif line.startswith("state "):
        reader.state(line[6:].strip(), number_of_line)
    else:
        raise ParseError(reader.path, number_of_line, f"cannot read {line[:40]!r}.")


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
            "// Exported by bisimetric", "@type: MDP", "@value_type: double", "@parameters", "", "@reward_models",
            " ".join(models), "@nr_states", str(mdp.n_states), "@nr_choices", str(mdp.n_choices), "@model",
        ]  # fmt: skip
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
