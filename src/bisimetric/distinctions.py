"""Why two states are in different classes of an exact lumping: a formula that holds in one and not in the other.

Formulas are those of probabilistic modal logic (Larsen and Skou 1991; Desharnais, Edalat and Panangaden 2002), with
rewards:

    φ ::= label | can take a | some choice [named a] whose tests hold | ¬φ | φ ∧ φ
    test ::= reward > r | reward < r | P(φ) > q | P(φ) < q

They are found as by Cleaveland (1990) and Rady and van Breugel (2023): refine all states in rounds, first by labels and
actions, then by rewards and by the probabilities of reaching the classes of the last round. The first round that tells
the two apart is the depth of the formula, and no formula of less depth tells them apart. A choice of one that the other
cannot match gives the tests, and the classes that it reaches are told apart by formulas of less depth, in the same way.
Thresholds stand midway between the two numbers that differ. Every formula is evaluated on the model before it is given.

Cost: O(m) a round, where m is the number of transitions; formulas are shared, so they are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .kinds import Array, Bools, Facts, Floats, Ints
from .lumping import Lumping, reward_columns
from .model import MDP
from .showing import escaped, name_html, short, state_number


@dataclass(frozen=True)
class Test:
    """What a choice must do: its reward, or the mass that it puts on states where `of` holds, is above or below."""

    above: bool
    threshold: float
    reward: str | None = None  # its name, where the test is about a reward
    of: Formula | None = None


@dataclass(frozen=True, eq=False)
class Formula:
    """A property of states. Parts are shared: equal ones are the same object.

    Attributes: kind ("label", "action": can take it, "choice": some choice passes all tests, "and"); name (of the label
    or the action); tests; parts; negated.
    """

    kind: str
    name: str | None = None
    tests: tuple[Test, ...] = ()
    parts: tuple[Formula, ...] = ()
    negated: bool = False

    @property
    def below(self) -> tuple[Formula, ...]:
        """The formulas that it is made of."""
        return (*(test.of for test in self.tests if test.of is not None), *self.parts)

    @cached_property
    def depth(self) -> int:
        """How many steps ahead it looks."""
        return max((part.depth for part in self.below), default=0) + (self.kind == "choice")

    def lines(self) -> list[str]:
        """The formula, and below it those that it names, each once."""
        order: dict[Formula, str] = {}

        def visit(formula: Formula) -> None:
            for part in formula.below:
                visit(part) if part not in order else None
            if formula.kind in ("choice", "and") and formula is not self:
                order.setdefault(formula, f"φ{sum(name != '' for name in order.values()) + 1}")
            else:
                order.setdefault(formula, "")

        visit(self)
        named = [f"{name} = {formula.text(order)}" for formula, name in order.items() if name]
        return [self.text(order), *reversed(named)]

    def text(self, names: Mapping[Formula, str]) -> str:
        """One formula in words, its parts by name where they have one."""
        sign = "not " if self.negated else ""
        if self.kind == "label":
            return f"{sign}{short(self.name or '', 30)}"
        if self.kind == "action":
            return f"{sign}can take {short(self.name or '', 30)}"
        parts = [names.get(part) or part.text(names) for part in self.below]
        if self.kind == "and":
            return " and ".join(parts)
        who = "some choice" if self.name is None else short(self.name, 30)
        tests, of = [], iter(parts)
        for test in self.tests:
            reward = f"reward {short(test.reward, 30)}".strip() if test.reward is not None else ""
            what = reward or f"P({next(of)})"
            tests.append(f"{what} {'>' if test.above else '<'} {test.threshold:.6g}")
        return f"{sign}⟨{who}: {', '.join(tests)}⟩"


@dataclass(frozen=True)
class Distinction:
    """Why two states are not bisimilar.

    Attributes: states, names; formula (it holds in the first and not in the second); first (what differs first, in
    words); depth (how many steps ahead one must look); None and 0 where the two are in one class.
    """

    states: tuple[int, int]
    names: tuple[str, str]
    formula: Formula | None
    first: str
    depth: int

    def text(self) -> str:
        """The distinction in lines of plain text."""
        s, t = (short(name) for name in self.names)
        if self.formula is None:
            return f"{s} and {t} are in one class: {self.first}"
        formula, *parts = self.formula.lines()
        lines = [f"{s} and {t} are in different classes: {self.first}"]
        lines += [f"holds in {s} only ({_steps(self.depth)}): {formula}"]
        return "\n".join(lines + [f"  where {part}" for part in parts])

    __str__ = text

    def __repr__(self) -> str:
        return f"Distinction({short(self.names[0], 20)}, {short(self.names[1], 20)}: {self.first})"

    def to_dict(self) -> Facts:
        """All of it in plain types."""
        return {
            "states": list(self.states),
            "names": list(self.names),
            "same_class": self.formula is None,
            "first": self.first,
            "depth": self.depth,
            "formula": None if self.formula is None else self.formula.lines(),
        }

    def html(self) -> str:
        """The distinction as a piece of HTML."""
        s, t = (name_html(name) for name in self.names)
        if self.formula is None:
            return f"<div class='bisimetric'><p>{s} and {t} are in one class: {escaped(self.first)}</p></div>"
        code = "<br>".join(escaped(line) for line in self.formula.lines())
        return (
            f"<div class='bisimetric'><p>{s} and {t} are in different classes: {escaped(self.first)}.</p>"
            f"<p>Holds in {s} only ({_steps(self.depth)}):</p><p><code>{code}</code></p></div>"
        )

    _repr_html_ = html


def _steps(depth: int) -> str:
    return "at once" if depth == 0 else "one step ahead" if depth == 1 else f"{depth} steps ahead"


def distinguish(lumping: Lumping, s: int | str, t: int | str) -> Distinction:
    """Say why two states are, or are not, in one class of an exact lumping.

    Args:
        lumping: made by `lump`. s, t: states of its model, by number or by name.
    """
    mdp = lumping.model
    pair = (state_number(s, mdp.n_states, mdp.state_names), state_number(t, mdp.n_states, mdp.state_names))
    names = (mdp.name_of(pair[0]), mdp.name_of(pair[1]))
    if lumping.class_of[pair[0]] == lumping.class_of[pair[1]]:
        return Distinction(pair, names, None, "no formula tells them apart", 0)
    rounds = Rounds(lumping, pair)
    formula = rounds.formula(*pair)
    holds = rounds.holds(formula)
    if not holds[pair[0]] or holds[pair[1]]:
        raise ArithmeticError(
            f"states {short(names[0])} and {short(names[1])} differ by about the tolerance of the lumping "
            f"({lumping.tol:g}); no formula can be given. Lump with another tol."
        )
    return Distinction(pair, names, formula, _first(formula), formula.depth)


def _first(formula: Formula) -> str:
    """The first difference, in words."""
    if formula.kind == "label":
        return f"{short(formula.name or '', 30)} holds in one of them"
    if formula.kind == "action":
        return f"one of them has the action {short(formula.name or '', 30)}"
    about = {"reward" if test.of is None else "next states" for test in formula.tests}
    who = "a choice that the other has not" if formula.name is None else f"action {short(formula.name, 30)}"
    return f"{who} differs in its {' and its '.join(sorted(about, reverse=True))}"


class Rounds:
    """The refinement in rounds, until a pair is told apart, and the formulas that tell its classes apart."""

    def __init__(self, lumping: Lumping, pair: tuple[int, int]) -> None:
        self.mdp: MDP = lumping.model
        self.tol, self.by_label = lumping.tol, lumping.match == "labels"
        self.respected = lumping.respected
        self.rewards = reward_columns(self.mdp, lumping.rewards)
        self.sizes = [float(np.abs(values).max()) or 1.0 for _, values in self.rewards]
        self.blocks: list[Ints] = [self._first_blocks()]
        self._known: dict[tuple[int, int, int], Formula] = {}
        self._both: dict[tuple[Formula, ...], Formula] = {}
        self._holds: dict[Formula, Bools] = {}
        while self.blocks[-1][pair[0]] == self.blocks[-1][pair[1]]:
            finer = self._refined(self.blocks[-1])
            if finer.max() == self.blocks[-1].max():
                raise ArithmeticError(
                    f"the classes of states {pair[0]} and {pair[1]} differ by the rounding of the lumping alone; lump "
                    "with another tol."
                )
            self.blocks.append(finer)

    # ---- the rounds ----

    def _first_blocks(self) -> Ints:
        keys = [self.mdp.state_labels[name].astype(np.int64) for name in self.respected]
        if self.by_label:
            offers = np.zeros((self.mdp.n_states, len(self.mdp.action_labels)), np.int64)
            offers[self.mdp.state_of_choice, self.mdp.action_of_choice] = 1
            keys += list(offers.T)
        if not keys:
            return np.zeros(self.mdp.n_states, np.int64)
        return _numbered(np.stack(keys, axis=1))

    @cached_property
    def _first_choices(self) -> Ints:
        """Numbers of choices by their rewards, and labels where these count [N]."""
        keys = [np.floor(v / (self.tol * size) + 0.5) for (_, v), size in zip(self.rewards, self.sizes, strict=True)]
        keys.append(self.mdp.action_of_choice.astype(np.float64) if self.by_label else np.zeros(self.mdp.n_choices))
        return _numbered(np.stack(keys, axis=1))

    def _masses(self, holds: Bools | Floats) -> Floats:
        """Mass that each choice puts on a set of states [N]."""
        return np.asarray(self.mdp.rows.matrix() @ np.asarray(holds, np.float64))

    def _refined(self, blocks: Ints) -> Ints:
        from scipy.sparse import csr_array

        n = self.mdp.n_states
        to_block = csr_array((np.ones(n), blocks, np.arange(n + 1)), shape=(n, int(blocks.max()) + 1))
        reached = (self.mdp.rows.matrix() @ to_block).tocsr()
        reached.sort_indices()
        weights = np.floor(reached.data / self.tol + 0.5).astype(np.int64)
        choices = np.empty(self.mdp.n_choices, np.int64)
        known: dict[tuple[int, bytes, bytes], int] = {}
        for c in range(self.mdp.n_choices):
            own = slice(reached.indptr[c], reached.indptr[c + 1])
            there = weights[own] > 0
            key = (
                int(self._first_choices[c]),
                reached.indices[own][there].tobytes(),
                weights[own][there].tobytes(),
            )
            choices[c] = known.setdefault(key, len(known))
        sets: dict[tuple[int, bytes], int] = {}
        pointers = self.mdp.choice_ptr
        return np.array(
            [
                sets.setdefault(
                    (int(blocks[s]), np.unique(choices[pointers[s] : pointers[s + 1]]).tobytes()), len(sets)
                )
                for s in range(n)
            ],
            np.int64,
        )

    # ---- formulas ----

    def formula(self, s: int, t: int) -> Formula:
        """A formula of least depth that holds in s and not in t."""
        level = next(k for k, blocks in enumerate(self.blocks) if blocks[s] != blocks[t])
        key = (level, int(self.blocks[level][s]), int(self.blocks[level][t]))
        if key not in self._known:
            self._known[key] = self._at_once(s, t) if level == 0 else self._ahead(s, t, self.blocks[level - 1])
        return self._known[key]

    def _at_once(self, s: int, t: int) -> Formula:
        for name in self.respected:
            holds = self.mdp.state_labels[name]
            if holds[s] != holds[t]:
                return Formula("label", name, negated=not holds[s])
        mine, theirs = (
            {int(a) for a in self.mdp.action_of_choice[slice(*self.mdp.choice_ptr[[k, k + 1]])]} for k in (s, t)
        )
        a = min(mine ^ theirs)
        return Formula("action", self.mdp.action_labels[a], negated=a not in mine)

    def _ahead(self, s: int, t: int, blocks: Ints) -> Formula:
        """A choice of one that no choice of the other matches."""
        for one, two, negated in ((s, t, False), (t, s, True)):
            for c in range(*self.mdp.choice_ptr[[one, one + 1]]):
                others = [
                    o
                    for o in range(*self.mdp.choice_ptr[[two, two + 1]])
                    if not self.by_label or self.mdp.action_of_choice[o] == self.mdp.action_of_choice[c]
                ]
                tests = [self._test(c, o, blocks) for o in others]
                if all(test is not None for test in tests):
                    name = self.mdp.action_labels[self.mdp.action_of_choice[c]] if self.by_label else None
                    chosen = _strictest([test for test in tests if test is not None])
                    return Formula("choice", name, chosen, negated=negated)
        raise ArithmeticError("the two states differ by the rounding of the lumping alone; lump with another tol.")

    def _test(self, c: int, o: int, blocks: Ints) -> Test | None:
        """What choice c does and choice o does not; None where they agree. Rewards first, then the largest gap."""
        for (name, values), size in zip(self.rewards, self.sizes, strict=True):
            x, y = float(values[c]), float(values[o])
            if np.floor(x / (self.tol * size) + 0.5) != np.floor(y / (self.tol * size) + 0.5):
                return Test(x > y, 0.5 * x + 0.5 * y, reward=name)
        rows = self.mdp.rows
        parts = [slice(*rows.indptr[[k, k + 1]]) for k in (c, o)]
        width = int(blocks.max()) + 1
        masses = [np.bincount(blocks[rows.indices[own]], weights=rows.probs[own], minlength=width) for own in parts]
        differ = np.floor(masses[0] / self.tol + 0.5) != np.floor(masses[1] / self.tol + 0.5)
        if not differ.any():
            return None
        gap = np.where(differ, np.abs(masses[0] - masses[1]), -1.0)
        block = int(gap.argmax())
        reached = np.unique(np.concatenate([rows.indices[own] for own in parts]))
        inside = int(next(x for x in np.flatnonzero(blocks == block)))
        outside: dict[int, int] = {}
        for x in reached:
            outside.setdefault(int(blocks[x]), int(x))
        told: list[Formula] = []
        for b, other in sorted(outside.items()):
            if b != block and all(self.holds(formula)[other] for formula in told):
                told.append(self.formula(inside, other))
        of = told[0] if len(told) == 1 else self._both.setdefault(tuple(told), Formula("and", parts=tuple(told)))
        x, y = float(masses[0][block]), float(masses[1][block])
        return Test(x > y, 0.5 * (x + y), of=of)

    # ---- what holds where ----

    def holds(self, formula: Formula) -> Bools:
        """The states in which a formula holds [S]."""
        if formula not in self._holds:
            self._holds[formula] = self._evaluate(formula)
        return self._holds[formula]

    def _evaluate(self, formula: Formula) -> Bools:
        n = self.mdp.n_states
        if formula.kind == "label":
            found = self.mdp.state_labels[formula.name or ""].copy()
        elif formula.kind == "and":
            found = np.ones(n, np.bool_)
            for part in formula.parts:
                found &= self.holds(part)
        else:
            passes = np.ones(self.mdp.n_choices, np.bool_)
            if formula.name is not None:
                passes &= self.mdp.action_of_choice == self.mdp.action_labels.index(formula.name)
            for test in formula.tests:
                numbers = (
                    dict(self.rewards)[test.reward or ""] if test.of is None else self._masses(self.holds(test.of))
                )
                passes &= numbers > test.threshold if test.above else numbers < test.threshold
            found = np.zeros(n, np.bool_)
            found[self.mdp.state_of_choice[passes]] = True
        return ~found if formula.negated else found


def _strictest(tests: list[Test]) -> tuple[Test, ...]:
    """Of tests of one number the strictest one for each side."""
    kept: dict[tuple[str | None, Formula | None, bool], Test] = {}
    for test in tests:
        key = (test.reward, test.of, test.above)
        if key not in kept or (test.threshold > kept[key].threshold) == test.above:
            kept[key] = test
    return tuple(kept.values())


def _numbered(keys: Array) -> Ints:
    """Numbers that are equal where rows are."""
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    return np.asarray(inverse.reshape(-1), np.int64)
