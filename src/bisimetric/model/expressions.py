"""Labels from expressions over the variables of the states, such as "x=4 & (y<2 | !busy)".

Variables are read from the names of the states, as Storm and PRISM write them ("x=4 & y=1 & !busy"). An expression has
comparisons (= != < <= > >=), + − * of numbers and variables, & | ! and parentheses; other labels are written in quotes,
true and false as words. It is evaluated for all states at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from ..kinds import Bools, Floats
from .distributions import ModelError

Column = Floats | Bools

_TOKEN = re.compile(r'\s*(?:(\d+\.?\d*(?:[eE][-+]?\d+)?)|([A-Za-z_]\w*)|"([^"]*)"|(<=|>=|!=|==|[=<>&|!()+*-]))')
_LONGEST, _DEEPEST = 10_000, 100
_COMPARE = {
    "=": np.equal,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def variables(names: Sequence[str]) -> dict[str, Column]:
    """The variables of the states by name, numbers or booleans [S], from names such as "x=1 & y=0 & !z"."""
    columns: dict[str, list[float | bool]] = {}
    for state, name in enumerate(names):
        for part in name.split("&"):
            word = part.strip()
            key, equals, value = (x.strip() for x in word.partition("="))
            if not equals:
                key, value = (word[1:].strip(), "false") if word.startswith("!") else (word, "true")
            if not re.fullmatch(r"[A-Za-z_]\w*", key):
                raise ModelError(
                    f"the name of state {state} ({name[:60]!r}) does not give its variables, as x=1 & y=0 would; "
                    "expressions need them."
                )
            columns.setdefault(key, []).append(_value(value, name))
        if any(len(column) != state + 1 for column in columns.values()):
            raise ModelError(f"states have different variables; state {state} is named {name[:60]!r}.")
    return {key: np.array(column) for key, column in columns.items()}


def _value(text: str, name: str) -> float | bool:
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        raise ModelError(f"a state is named {name[:60]!r}, where {text[:30]!r} is no number.") from None


def holds(text: str, known: Mapping[str, Column], labels: Mapping[str, Column], n_states: int) -> Bools:
    """Where an expression holds [S]."""
    if len(text) > _LONGEST:
        raise ModelError(f"an expression may have {_LONGEST} characters at most; this one has {len(text)}.")
    parser = _Parser(text, known, labels, n_states)
    value = parser.either(0)
    if parser.at < len(parser.tokens):
        raise parser.error(f"cannot read it from {parser.tokens[parser.at][1]!r} on")
    return parser.truth(value)


class _Parser:
    """Reads an expression from left to right and works it out as it goes."""

    def __init__(self, text: str, known: Mapping[str, Column], labels: Mapping[str, Column], n_states: int) -> None:
        self.text, self.known, self.labels, self.n_states = text, known, labels, n_states
        self.tokens: list[tuple[str, str]] = []
        self.at = place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise self.error(f"cannot read {text[place:].strip()[:20]!r}")
            kind = ("number", "name", "label", "sign")[next(k for k, x in enumerate(match.groups()) if x is not None)]
            self.tokens.append((kind, next(x for x in match.groups() if x is not None)))
            place = match.end()
        if not self.tokens:
            raise self.error("it is empty")

    def error(self, reason: str) -> ModelError:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "…"
        return ModelError(f"expression {shown!r}: {reason}.")

    def truth(self, value: Column) -> Bools:
        if value.dtype != np.bool_:
            raise self.error("a number stands where something true or false is needed")
        return np.asarray(value, np.bool_)

    def number(self, value: Column) -> Floats:
        if value.dtype == np.bool_:
            raise self.error("something true or false stands where a number is needed")
        return np.asarray(value, np.float64)

    def sign(self, *signs: str) -> str | None:
        """The next token where it is one of these signs, which is then read."""
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "sign" and self.tokens[self.at][1] in signs:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return None

    def either(self, depth: int) -> Column:
        if depth > _DEEPEST:
            raise self.error("its parentheses are nested too deeply")
        value = self.both(depth)
        while self.sign("|"):
            value = self.truth(value) | self.truth(self.both(depth))
        return value

    def both(self, depth: int) -> Column:
        value = self.comparison(depth)
        while self.sign("&"):
            value = self.truth(value) & self.truth(self.comparison(depth))
        return value

    def comparison(self, depth: int) -> Column:
        if self.sign("!"):
            return ~self.truth(self.comparison(depth + 1) if depth < _DEEPEST else self.either(depth + 1))
        value = self.sum(depth)
        sign = self.sign(*_COMPARE)
        if sign is None:
            return value
        other = self.sum(depth)
        if (value.dtype == np.bool_) != (other.dtype == np.bool_):
            raise self.error(f"{sign} compares a number with something true or false")
        return np.asarray(_COMPARE[sign](value, other))

    def sum(self, depth: int) -> Column:
        value = self.product(depth)
        while (sign := self.sign("+", "-")) is not None:
            other = self.number(self.product(depth))
            value = self.number(value) + other if sign == "+" else self.number(value) - other
        return value

    def product(self, depth: int) -> Column:
        value = self.atom(depth)
        while self.sign("*"):
            value = self.number(value) * self.number(self.atom(depth))
        return value

    def atom(self, depth: int) -> Column:
        if self.at >= len(self.tokens):
            raise self.error("it ends too early")
        if self.sign("("):
            value = self.either(depth + 1)
            if not self.sign(")"):
                raise self.error("a parenthesis is not closed")
            return value
        if self.sign("-"):
            if depth > _DEEPEST:
                raise self.error("it is nested too deeply")
            return -self.number(self.atom(depth + 1))
        kind, word = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return np.full(self.n_states, float(word))
        if kind == "name" and word in ("true", "false"):
            return np.full(self.n_states, word == "true")
        table = self.known if kind == "name" else self.labels
        if kind == "sign" or word not in table:
            what = "variables" if kind == "name" else "labels"
            listed = ", ".join(list(table)[:12]) or "none"
            raise self.error(f"unknown {word!r}; the model has the {what} {listed}")
        return table[word]
