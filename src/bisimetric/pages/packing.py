"""A subject as the data of a page: arrays in base64, names, curves; never more than a page may hold.

Distances of landmarks are kept as whole numbers of 16 bits, in units of the largest one over 65535, and shown to four
digits. Up to `MOST_DRAWN` states are drawn; of more, a sample that is the same each time, which the page says.
"""

from __future__ import annotations

import base64
import math

import numpy as np

from ..kinds import Array, Facts, Floats, Ints
from ..metric.operator import comparison_of
from ..model import MDP
from ..policy.run import Step
from ..showing import short
from ..transport import KLBall, Sinkhorn
from .coordinates import board_of
from .layout import Layout, laid_out
from .subjects import Subject, curves_of

MOST_DRAWN = 5000
_MOST_OF_MODEL = 4_000_000  # characters that a page carries for its explanations
_MOST_STEPS = 2000  # of a run whose numbers are on the page
_LONGEST_NAME, _MOST_NAME_BYTES = 200, 1_000_000
_FULL = 65535


def packed(subject: Subject, board: object = None, most: int = MOST_DRAWN) -> Facts:
    """The data of a page, ready for JSON."""
    layout = laid_out(subject.d)
    drawn = _sample(subject, most)
    point = np.arange(subject.n_states) if subject.of_state is None else subject.of_state
    places = board_of(subject.names, board, subject.n_states)  # type: ignore[arg-type]
    top = float(layout.between.max(initial=0.0))
    notes = [*subject.notes]
    if len(drawn) < subject.n_states:
        notes.append(f"{len(drawn)} of {subject.n_states} states are drawn: a sample")
    reach = float(layout.reach.max(initial=0.0))
    if reach > 0.0:
        notes.append(
            f"distances are those of {len(layout.landmarks)} landmarks; each state is within {reach:.4g} of one"
        )
    data: Facts = {
        "kind": subject.kind,
        "facts": [[name, value] for name, value in subject.facts.items()],
        "notes": notes,
        "n": subject.n_states,
        "states": _ints(drawn, np.uint32),
        "names": _names(subject, drawn),
        "place": _floats(layout.place[point[drawn]]),
        "stress": layout.stress,
        "columns": [_column(name, np.asarray(values)[drawn]) for name, values in subject.columns.items()],
        "landmark": _ints(layout.nearest[point], np.uint16),
        "reach": _floats(layout.reach[point] / (top or 1.0)) if reach > 0.0 else None,  # in units of the largest
        "own": _floats(np.diagonal(subject.d)[point] / (top or 1.0)) if np.diagonal(subject.d).any() else None,
        "K": len(layout.landmarks),
        "top": _finite(top),
        "between": _ints(_upper(layout.between, top), np.uint16),
        "order": _ints(layout.order, np.uint16),
        "merges": [[int(a), int(b), _finite(h)] for a, b, h in layout.merges],
        "loss": _loss(subject, reach),
        "model": _model(subject, notes),
        "board": None if places is None else _ints(places[drawn], np.int16),
        "history": curves_of(_thinned(subject, notes)) if subject.history else None,
        "distinctions": dict(subject.distinctions),
        "class_of_point": None if subject.kind != "lumping" else _ints(point[drawn], np.uint32),
    }
    return data


def _sample(subject: Subject, most: int) -> Ints:
    n = subject.n_states
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _names(subject: Subject, drawn: Ints) -> list[str] | None:
    if subject.names is None:
        return None
    longest = max(20, min(_LONGEST_NAME, _MOST_NAME_BYTES // max(len(drawn), 1)))
    return [short(subject.names[s], longest) for s in drawn]


def _thinned(subject: Subject, notes: list[str]) -> list[Step]:
    """The steps of a run, or as many as a page may hold, evenly, with the last one."""
    history = subject.history
    if len(history) <= _MOST_STEPS:
        return list(history)
    notes.append(f"{_MOST_STEPS} of {len(history)} steps are shown")
    return [history[k] for k in np.linspace(0, len(history) - 1, _MOST_STEPS).astype(int)]


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _base64(array: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _ints(values: Array, dtype: type[np.integer]) -> str:
    return _base64(np.asarray(values).astype(np.dtype(dtype).newbyteorder("<")))


def _floats(values: Floats) -> str:
    """In single precision; what that cannot hold is brought to its limits."""
    largest = float(np.finfo(np.float32).max)
    return _base64(np.clip(values, -largest, largest).astype("<f4"))


def _upper(between: Floats, top: float) -> Ints:
    """Pairs k < m, row by row, in units of the largest distance."""
    k, m = np.triu_indices(len(between), 1)
    if top == 0.0:
        return np.zeros(len(k), np.int64)
    return np.rint(between[k, m] / top * _FULL).astype(np.int64)


def _column(name: str, values: Array) -> Facts:
    if values.dtype.kind in "fiu":
        return {"name": name, "numbers": [_finite(float(x)) for x in np.asarray(values, np.float64)]}
    words, inverse = np.unique(values.astype(str), return_inverse=True)
    order = np.argsort([_numeric(word) for word in words], kind="stable") if len(words) else np.arange(0)
    rank = np.empty(len(words), np.int64)
    rank[order] = np.arange(len(words))
    return {
        "name": name,
        "words": [short(str(words[k]), 60) for k in order],
        "which": _ints(rank[inverse.reshape(-1)], np.uint32),
    }


def _numeric(word: str) -> float:
    return float(word) if word.isdigit() and len(word) < 16 else math.inf


def _loss(subject: Subject, reach: float) -> Facts:
    """The certified loss as a line: at diameter 0, and a unit of diameter more; or why there is none."""
    if not (subject.question and subject.question.transport.axioms.triangle) and reach > 0.0:
        return {"failed": "needs a triangle inequality between landmarks and states"}
    at, unit = subject.loss(2.0 * reach), subject.loss(2.0 * reach + 1.0)
    if at.failed or not math.isfinite(at.error):
        return {"failed": "; ".join(at.failed) or "no bound"}
    return {"at": at.error, "slope": unit.error - at.error, "source": at.source}


def _model(subject: Subject, notes: list[str]) -> Facts | None:
    """What explanations on the page need: rows, rewards, names of actions, and how they are compared."""
    model, question = subject.model, subject.question
    if model is None or question is None:
        notes.append("without its model the page cannot explain distances; give --model (in Python: model=)")
        return None
    if 4 * (4 * model.rows.probs.size + 5 * len(model.rows) + 2 * model.n_states) > _MOST_OF_MODEL:
        notes.append("the model is too large to be on this page; bisimetric explain explains single pairs")
        return None
    if isinstance(question.transport, KLBall):
        notes.append("plans of KLBall are not worked out on pages; bisimetric explain explains single pairs")
        return None
    comparison = comparison_of(model, question)
    transport = question.transport
    actions = _actions(model) if isinstance(model, MDP) and question.match != "chain" else {}
    return {
        "match": question.match,
        "c_R": comparison.c_R,
        "c_T": comparison.c_T,
        "largest": comparison.largest,
        "p": transport.order,
        "transport": type(transport).__name__,
        "reg": transport.reg if isinstance(transport, Sinkhorn) else 0.0,
        "value": isinstance(transport, Sinkhorn) and transport.cost == "value",
        "diagonal": transport.with_diagonal and getattr(transport, "diagonal", "kept") != "zero",
        "pointers": _ints(comparison.row_pointers, np.uint32),
        "apart": _ints(comparison.apart, np.uint32),
        "indptr": _ints(comparison.rows.indptr, np.uint32),
        "indices": _ints(comparison.rows.indices, np.uint32),
        "probs": _base64(comparison.rows.probs.astype("<f8")),
        "rewards": _base64(comparison.rewards.astype("<f8")),
        **actions,
    }


def _actions(model: MDP) -> Facts:
    names = [short(model.action_name(c), 60) for c in range(model.n_choices)]
    words = sorted(set(names))
    number = {word: k for k, word in enumerate(words)}
    return {
        "actions": words,
        "action": _ints(np.array([number[name] for name in names]), np.uint32),
        "label": _ints(model.action_of_choice, np.uint32),
    }


__all__ = ["MOST_DRAWN", "Layout", "packed"]
