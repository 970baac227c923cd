"""What a solve gives: distances, their error, a bracket around the exact metric, and what a restart needs.

Around the *exact* metric there is a bracket from any d (`MetricSolution.bracket`): if A ≤ F(d) ≤ B, then
A − c_T/(1−c_T)·max(d − A, 0) ≤ d~ ≤ B + c_T/(1−c_T)·max(B − d, 0), because F is monotone. A comes from dual potentials,
B from feasible plans. Also d~ ≥ c_R |V(s) − V(t)| for the values under discount c_T.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import transport as transports
from ..archives import read_arrays, save_arrays
from ..certificates import Certificate, CertificateError
from ..damage import DamagedFileError, reading
from ..lumping import Lumping, expanded
from ..model import MDP, Chain
from ..operators import MetricOperator, metric_operator
from ..status import Status
from ..transport import Transport
from ..values import value_ranges

FORMAT, VERSION = "bisimetric-metric", 2
_ROUNDING = 16.0  # units of round-off granted to one sweep


@dataclass(frozen=True)
class Progress:
    """What a progress callback sees after each sweep."""

    sweep: int
    error: float
    tol: float
    change: float
    seconds: float


@dataclass(frozen=True)
class Question:
    """What was asked: everything that the answer depends on but the model's numbers.

    Attributes: transport; match ("chain", "labels", "hausdorff"); reward_weight, transition_weight (c_R, c_T); reward
    (name of the reward model, if it has one); gamma; respected (labels of states that keep states apart); tol; device,
    dtype; remember (whether solvers keep their state of each pair).
    """

    transport: Transport
    match: str
    reward_weight: float
    transition_weight: float
    reward: str | None
    gamma: float
    respected: tuple[str, ...]
    tol: float
    device: str
    dtype: str
    remember: bool

    def describe(self) -> dict[str, Any]:
        """The question in plain types."""
        way = self.transport
        plain = {"kind": type(way).__name__, **{f.name: getattr(way, f.name) for f in dataclasses.fields(way)}}
        return {**dataclasses.asdict(self), "transport": plain, "respected": list(self.respected)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Question:
        """The question that `describe` described."""
        settings = dict(plain["transport"])
        kind = getattr(transports, settings.pop("kind"))
        fields = {**plain, "transport": kind(**settings), "respected": tuple(plain["respected"])}
        return cls(**fields)


@dataclass(frozen=True, eq=False, repr=False)
class MetricSolution:
    """A bisimulation metric with its error. It can be pickled, copied, saved and loaded.

    Attributes:
        distance: d [S, S], symmetric, read-only.
        status: how the solve ended; status.value says so in words, status.advice what to do.
        certificate: the error of `distance` as a fixed point, and the theorem that gives it.
        sweeps, iterations, seconds: work done (iterations: pivots or scalings, over all pairs).
        kept_bytes: memory of the state kept for a restart.
        largest: the largest possible distance.
        notes: what one should know about the answer, if anything.
        question: what was asked.
        restart: what solve_metric(start=solution) goes on from.
    """

    status: Status
    certificate: Certificate
    sweeps: int
    iterations: int
    seconds: float
    kept_bytes: int
    largest: float
    notes: tuple[str, ...]
    question: Question
    restart: Restart = field(repr=False)

    @cached_property
    def distance(self) -> NDArray[Any]:
        """d [S, S] as an array of NumPy; what a device computed is copied when it is first asked for."""
        full = self.restart.of_states().view()  # a solve that goes on may still write to what is behind it
        full.setflags(write=False)
        return full

    @property
    def n_states(self) -> int:
        return self.restart.n_states

    @property
    def error(self) -> float:
        """The error of the certificate."""
        return self.certificate.error

    @property
    def tol(self) -> float:
        """The error that was asked for."""
        return self.question.tol

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    def __repr__(self) -> str:
        word = "rigorous" if self.certificate.rigorous else "heuristic"
        return (
            f"MetricSolution({self.n_states} states, {self.question.transport}, {word} error {self.error:.3g}, "
            f"{self.status.name} after {self.sweeps} sweeps)"
        )

    def bracket(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rigorous bounds (lower, upper) around the exact metric (λ = 0, same p).

        Above: feasible plans. Below: dual potentials, and differences of values. Works for every transport,
        also for those without a certificate of their own. Cost: about one sweep, and values by linear solves.
        """
        operator = self.restart.operator
        with operator.memory_errors():
            ground = self.restart.distance.copy()
            operator.engine.xp.fill_diagonal(ground, 0.0)
            lower, upper = (bound.astype(np.float64) for bound in operator.bounds(ground, self.tol))
        d = operator.engine.to_host(ground)
        c_T = operator.c_T
        slack = rounding(operator, max(float(d.max()), operator.c_R * operator.model.reward_span))
        rise = max(float((upper - d).max()), 0.0) + slack
        fall = max(float((d - lower).max()), 0.0) + slack
        upper += slack + c_T * rise / (1.0 - c_T)
        lower -= slack + c_T * fall / (1.0 - c_T)
        np.minimum(upper, operator.largest * (1.0 + 1e-15), out=upper)
        np.maximum(lower, value_lower_bound(operator), out=lower)
        for bound in (lower, upper):
            np.fill_diagonal(bound, 0.0)
        crossed = float((lower - upper).max())
        if crossed > 0.0:
            raise CertificateError(f"bounds around the exact metric cross by {crossed:.3g}.")
        return self._of_states(lower, upper)

    def _of_states(self, lower: NDArray[Any], upper: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bounds of pairs of classes as bounds of pairs of states, which the rounding of the classes widens."""
        restart = self.restart
        if restart.lumping is None:
            return lower, upper
        lower, upper = (expanded(restart.lumping, bound) for bound in (lower, upper))
        np.maximum(lower - restart.lump_error, 0.0, out=lower)
        upper += restart.lump_error
        np.fill_diagonal(upper, 0.0)
        return lower, upper

    def save(self, path: str | os.PathLike[str], *, restart: bool = False, **extra: Any) -> None:
        """Write the solution to an .npz file, whole or not at all.

        Args:
            path: where to.
            restart: also write what the solvers keep of each pair, so that a solve that goes on from the file gives the
                same bytes as one that was never interrupted.
            extra: more arrays to put beside it.
        """
        about = {
            "status": self.status.name,
            "certificate": dataclasses.asdict(self.certificate),
            "sweeps": self.sweeps,
            "iterations": self.iterations,
            "seconds": self.seconds,
            "largest": self.largest,
            "notes": list(self.notes),
            "question": self.question.describe(),
            "fingerprint": self.restart.fingerprint if restart else None,
        }
        kept = {f"kept_{name}": array for name, array in self.restart.kept_arrays().items()} if restart else {}
        plain = {"format": FORMAT, "version": VERSION, "distance": self.distance, "about": json.dumps(about)}
        save_arrays(Path(path), {**plain, **kept, **extra})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MetricSolution:
        """A solution from a file that `save` wrote. It has no model, so it can be gone on from, but not bracketed."""
        path = Path(path)
        with reading(path, "a metric file"):
            return cls._from_arrays(path, read_arrays(path))

    @classmethod
    def _from_arrays(cls, path: Path, data: Mapping[str, NDArray[Any]]) -> MetricSolution:
        if str(data.get("format")) != FORMAT:
            raise DamagedFileError(f"{path}: not a metric file (no entry format = {FORMAT!r}).")
        if int(data["version"]) != VERSION:
            raise DamagedFileError(f"{path}: written by another version ({data['version']}; this one has {VERSION}).")
        about = json.loads(str(data["about"]))
        question = Question.of(about["question"])
        d = data["distance"]
        square = d.ndim == 2 and d.shape[0] == d.shape[1] and d.shape[0] > 0 and d.dtype == np.dtype(question.dtype)
        if not square or not (np.isfinite(d).all() and (d >= 0.0).all() and np.array_equal(d, d.T)):
            raise DamagedFileError(f"{path}: damaged (its distances are not finite, not symmetric, or below 0).")
        given = about["certificate"]
        certificate = Certificate(
            float(given["error"]), bool(given["rigorous"]), str(given["source"]), tuple(map(str, given["failed"]))
        )
        kept = {name[5:]: array for name, array in data.items() if name.startswith("kept_")}
        restart = Restart(d, kept=kept, fingerprint=str(about["fingerprint"]))
        return cls(
            Status[about["status"]], certificate, int(about["sweeps"]), int(about["iterations"]),
            float(about["seconds"]), sum(array.nbytes for array in kept.values()), float(about["largest"]),
            tuple(map(str, about["notes"])), question, restart,
        )  # fmt: skip


class Restart:
    """What a solve goes on from: distances, and the operator with what its transport kept.

    Where the model was lumped first, both are of its classes, and lump_error is what their rounding may cause. From a
    file or a pickle the operator is made anew when it is wanted; a file has none.
    """

    def __init__(
        self,
        distance: NDArray[Any],
        operator: MetricOperator | None = None,
        lumping: Lumping | None = None,
        lump_error: float = 0.0,
        *,
        kept: Mapping[str, NDArray[Any]] | None = None,
        fingerprint: str = "",
    ) -> None:
        self.distance, self.lumping, self.lump_error = distance, lumping, lump_error
        self._operator, self._kept, self._fingerprint = operator, dict(kept or {}), fingerprint
        self._recipe: dict[str, Any] | None = None

    @property
    def n_states(self) -> int:
        """States of the model that was solved."""
        return len(self.distance) if self.lumping is None else self.lumping.n_states

    @property
    def has_operator(self) -> bool:
        return self._operator is not None or self._recipe is not None

    @property
    def operator(self) -> MetricOperator:
        if self._operator is None:
            if self._recipe is None:
                raise ValueError(
                    "this solution comes from a file, without its model; go on from it with solve_metric(model, "
                    "start=solution), and ask the result."
                )
            self._operator = metric_operator(**self._recipe)
            if self._kept:
                self._operator.evaluator.load(self._kept)
            self._kept = {}
        return self._operator

    @property
    def fingerprint(self) -> str:
        """A hash of all that what was kept depends on."""
        return fingerprint(self._operator) if self._operator is not None else self._fingerprint

    def kept_arrays(self) -> Mapping[str, NDArray[Any]]:
        """What the transport kept of each pair, by name."""
        return self._operator.evaluator.state() if self._operator is not None else self._kept

    def on_host(self) -> NDArray[Any]:
        """The distances that were worked on, as an array of NumPy."""
        array = self.distance if self._operator is None else self._operator.engine.to_host(self.distance)
        return np.asarray(array)

    def of_states(self) -> NDArray[Any]:
        """Distances of all states."""
        array = self.on_host()
        return array if self.lumping is None else expanded(self.lumping, array)

    def __getstate__(self) -> dict[str, Any]:
        recipe, kept = self._recipe, self._kept
        if self._operator is not None:
            recipe = self._operator.recipe()
            kept = {} if self._operator.engine.on_device else dict(self._operator.evaluator.state())
        return {
            "distance": self.on_host(), "lumping": self.lumping, "lump_error": self.lump_error, "recipe": recipe,
            "kept": kept, "fingerprint": self.fingerprint,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]
            state["distance"], None, state["lumping"], state["lump_error"], kept=state["kept"],
            fingerprint=state["fingerprint"],
        )  # fmt: skip
        self._recipe = state["recipe"]


def fingerprint(operator: MetricOperator) -> str:
    """A hash of all that the kept state of an operator's transport depends on."""
    digest = hashlib.sha256(repr((operator.transport, operator.engine.dtype.name, operator.engine.on_device)).encode())
    for array in (operator.family.indptr, operator.family.indices, operator.family.probs, *operator.family.groups):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def value_lower_bound(operator: MetricOperator) -> NDArray[Any]:
    """c_R |V(s) − V(t)| less what V may be off, a lower bound on the exact metric [S, S].

    V is the value under discount c_T: of the chain, or of the best and of the worst policy of an MDP.
    """
    gap = np.zeros((operator.n_states, operator.n_states))
    for V, error in value_ranges(operator.model, operator.c_T):
        np.maximum(gap, operator.c_R * (np.abs(V[:, None] - V[None, :]) - 2.0 * error), out=gap)
    return gap


def rounding(operator: MetricOperator, largest: float) -> float:
    """What rounding may add to an entry of a sweep, for distances up to `largest`."""
    return _ROUNDING * (operator.engine.eps * largest + float(np.finfo(operator.engine.dtype).tiny))


def model_of(model: Chain | MDP, lumping: Lumping | None) -> Chain | MDP:
    """The model to work on: the quotient of a lumping, or the model itself."""
    if lumping is None:
        return model
    small = lumping.quotient
    if isinstance(model, MDP):
        return small
    labels = {name: small.state_labels[name] for name in model.state_labels if name in small.state_labels}
    return Chain(small.rows, small.rewards, model.gamma, reward_range=model.reward_range, state_labels=labels,
                 reward_name=model.reward_name)  # fmt: skip
