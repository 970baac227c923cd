"""What a solve gives: distances, their error, a bracket around the exact metric, and what a restart needs.

Around the *exact* metric there is a bracket from any d (`MetricSolution.bracket`): if A ≤ F(d) ≤ B, then
A − c_T/(1−c_T)·max(d − A, 0) ≤ d~ ≤ B + c_T/(1−c_T)·max(B − d, 0), because F is monotone. A comes from dual potentials,
B from feasible plans. Also d~ ≥ c_R |V(s) − V(t)| for the values under discount c_T.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..archives import read_arrays, save_arrays
from ..backends.protocol import Distances, Sweeper
from ..backends.select import distances_of
from ..certificates import Certificate, CertificateError
from ..damage import DamagedFileError, reading
from ..frames import frame
from ..kinds import Array, Facts
from ..model import MDP, Chain
from ..reduction import Reduction
from ..showing import state_number, table_html
from ..status import Status
from ..values import value_ranges
from .explanation import Explanation
from .operator import sweeper_of
from .pace import Pace
from .plan import check_room
from .settings import Question
from .undiscounted import Enclosure

if TYPE_CHECKING:
    import pandas as pd

_BRACKET = 48  # bytes for each pair of states, about, that bounds take while they are worked out
FORMAT, VERSION = "bisimetric-metric", 3


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
        enclosure: without discount, the bounds that the error comes from.
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
    enclosure: Enclosure | None = None

    @cached_property
    def distance(self) -> Array:
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

    def bracket(self) -> tuple[Array, Array]:
        """Rigorous bounds (lower, upper) around the exact metric (λ = 0, same p).

        Above: feasible plans. Below: dual potentials, and differences of values. Works for every transport,
        also for those without a certificate of their own. Cost: about one sweep, and values by linear solves.
        Without discount they are those that the error comes from, L ≤ F(L) and F(U) ≤ U.
        """
        if self.enclosure is not None:
            lower, upper = self.enclosure.matrices()
            return self.restart.reduction.expand(lower), self.restart.reduction.expand(upper)
        sweeper, model = self.restart.sweeper, self.restart.model
        if sweeper.backend.on_host:
            check_room(_BRACKET * model.n_states**2, f"bounds around all distances of {model.n_states} states")
        c_R, c_T = self.question.reward_weight, self.question.transition_weight
        with sweeper.guard():
            ground = self.restart.distance.copy()
            ground.clear_diagonal()
            lower, upper = sweeper.bounds(ground, self.question.accuracy)
        d = ground.to_host()
        slack = sweeper.solver.rounding(max(float(d.max()), c_R * model.reward_span))
        rise = max(float((upper - d).max()), 0.0) + slack
        fall = max(float((d - lower).max()), 0.0) + slack
        upper += slack + c_T * rise / (1.0 - c_T)
        lower -= slack + c_T * fall / (1.0 - c_T)
        np.minimum(upper, self.largest * (1.0 + 1e-15), out=upper)
        np.maximum(lower, value_lower_bound(model, c_R, c_T), out=lower)
        for bound in (lower, upper):
            np.fill_diagonal(bound, 0.0)
        crossed = float((lower - upper).max())
        if crossed > 0.0:
            raise CertificateError(f"bounds around the exact metric cross by {crossed:.3g}.")
        return self._of_states(lower, upper)

    def _of_states(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Bounds of pairs of the reduced model's states as bounds of pairs of states, which its rounding widens."""
        reduction = self.restart.reduction
        if reduction.model is reduction.full:
            return lower, upper
        lower, upper = reduction.expand(lower), reduction.expand(upper)
        np.maximum(lower - reduction.error, 0.0, out=lower)
        upper += reduction.error
        np.fill_diagonal(upper, 0.0)
        return lower, upper

    def to_frame(self) -> pd.DataFrame:
        """The distances as a data frame of pandas, states by name."""
        known = self.restart.reduction.full.state_names if self.restart.has_model else None
        names = range(self.n_states) if known is None else list(known)
        return frame(self.distance, names, names)

    def _repr_html_(self) -> str:
        asked = self.question
        facts = {
            "states": self.n_states,
            "transport": f"{asked.transport}, {asked.match}",
            "weights": f"c_R = {asked.reward_weight:g}, c_T = {asked.transition_weight:g}",
            "error": self.certificate,
            "status": self.status.value,
            "work": f"{self.sweeps} sweeps, {self.seconds:.2f} s",
            **{f"note {k + 1}": note for k, note in enumerate(self.notes)},
        }
        return table_html("Bisimulation metric", facts)

    def explain(
        self,
        s: int | str,
        t: int | str,
        *,
        depth: int = 3,
        remainder: float = 0.01,
        width: int = 6,
        model: Chain | MDP | None = None,
    ) -> Explanation:
        """Split d(s, t) into what causes it: rewards, the action that decides, next states and their plan, recursively.

        d(s, t) = c_R |r − r'| + c_T Σ ω(x, y) d(x, y), and each d(x, y) again. The shares add up to F(d)(s, t), which
        is within (1 + c_T) · error of d(s, t); what is not looked into is stated as a remainder. See `metric.explain`.

        Args:
            s, t: states, by number or by name.
            depth: how many steps ahead causes are looked into.
            remainder: go on, the largest shares first, until less than this part of the distance is left; smaller
                shares are summed up.
            width: how many next pairs of each are listed at most.
            model: the model, for a solution that was loaded from a file.

        Returns:
            An `Explanation`: print it, or see its `text()`, `to_dict()` and `html()`. Cost: a transport a pair.
        """
        from .explain import explain

        if model is None and not self.restart.has_model:
            raise ValueError("this solution comes from a file, without its model; give model=.")
        full = self.restart.reduction.full if model is None else model
        if full.n_states != self.n_states:
            raise ValueError(f"model: it has {full.n_states} states, the distances are of {self.n_states}.")
        pair = (state_number(s, self.n_states, full.state_names), state_number(t, self.n_states, full.state_names))
        return explain(
            full,
            self.question,
            self.distance,
            self.certificate,
            pair,
            depth=depth,
            remainder=remainder,
            width=width,
        )

    def save(self, path: str | os.PathLike[str], *, restart: bool = False, **extra: object) -> None:
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
            "pace": dataclasses.asdict(self.restart.pace),
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
    def _from_arrays(cls, path: Path, data: Mapping[str, Array]) -> MetricSolution:
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
        pace = _pace(about["pace"])
        restart = Restart(distances_of(d), question, kept=kept, fingerprint=str(about["fingerprint"]), pace=pace)
        return cls(
            Status[about["status"]],
            certificate,
            int(about["sweeps"]),
            int(about["iterations"]),
            float(about["seconds"]),
            sum(array.nbytes for array in kept.values()),
            float(about["largest"]),
            tuple(map(str, about["notes"])),
            question,
            restart,
        )


def _pace(saved: Mapping[str, float]) -> Pace:
    """The pace of a file; what files of earlier versions do not have is as in the beginning."""
    wait, next_wait, most = int(saved["wait"]), int(saved["next_wait"]), float(saved["most"])
    last, before, least = (float(saved.get(name, np.inf)) for name in ("last", "before", "least"))
    weak, stuck = (int(saved.get(name, 0)) for name in ("weak", "stuck"))
    return Pace(wait, next_wait, most, last, before, weak, least, stuck)


class Restart:
    """What a solve goes on from: distances, and a sweeper with what its solver remembers.

    Where the model was reduced, both are of the reduced one. From a pickle the sweeper is made anew when it is wanted;
    a solution from a file has no model to make one for.
    """

    def __init__(
        self,
        distance: Distances,
        question: Question,
        reduction: Reduction[Chain | MDP] | None = None,
        sweeper: Sweeper | None = None,
        *,
        kept: Mapping[str, Array] | None = None,
        fingerprint: str = "",
        pace: Pace | None = None,
    ) -> None:
        self.distance, self.question, self.pace = distance, question, pace or Pace()
        self._reduction, self._sweeper = reduction, sweeper
        self._kept, self._fingerprint = dict(kept or {}), fingerprint

    @property
    def n_states(self) -> int:
        """States of the model that was solved."""
        return self.distance.n_states if self._reduction is None else self._reduction.n_states

    @property
    def has_model(self) -> bool:
        return self._reduction is not None

    @property
    def reduction(self) -> Reduction[Chain | MDP]:
        if self._reduction is None:
            raise ValueError(
                "this solution comes from a file, without its model; go on from it with solve_metric(model, "
                "start=solution), and ask the result."
            )
        return self._reduction

    @property
    def model(self) -> Chain | MDP:
        """The model that was worked on."""
        return self.reduction.model

    @property
    def sweeper(self) -> Sweeper:
        if self._sweeper is None:
            self._sweeper = sweeper_of(self.model, self.question.of_reduced(self.model))
            if self._kept:
                self._sweeper.solver.recall(self._kept)
            self._kept = {}
        return self._sweeper

    @property
    def fingerprint(self) -> str:
        """A hash of all that what was remembered depends on."""
        return fingerprint(self._sweeper) if self._sweeper is not None else self._fingerprint

    def kept_arrays(self) -> Mapping[str, Array]:
        """What the solver remembers of each pair, by name."""
        return self._sweeper.solver.remembered() if self._sweeper is not None else self._kept

    def of_states(self) -> Array:
        """Distances of all states."""
        array = self.distance.to_host()
        return array if self._reduction is None else self._reduction.expand(array)

    def __getstate__(self) -> Facts:
        portable = self._sweeper is None or self._sweeper.portable
        return {
            "distance": self.distance.to_host(),
            "question": self.question,
            "reduction": self._reduction,
            "kept": dict(self.kept_arrays()) if portable else {},
            "fingerprint": self.fingerprint,
            "pace": self.pace,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        restart = Restart(
            distances_of(state["distance"]),
            state["question"],
            state["reduction"],
            kept=state["kept"],
            fingerprint=state["fingerprint"],
            pace=state["pace"],
        )
        self.__dict__.update(restart.__dict__)


def fingerprint(sweeper: Sweeper) -> str:
    """A hash of everything on which the things depend that a solver remembers."""
    import hashlib

    comparison, engine = sweeper.comparison, sweeper.backend
    digest = hashlib.sha256(repr((sweeper.transport, engine.dtype.name, engine.device)).encode())
    rows = comparison.rows
    for array in (rows.indptr, rows.indices, rows.probs, *comparison.groups):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def value_lower_bound(model: Chain | MDP, c_R: float, c_T: float) -> Array:
    """c_R |V(s) − V(t)| less what V may be off, a lower bound on the exact metric [S, S].

    V is the value under discount c_T: of the chain, or of the best and of the worst policy of an MDP.
    """
    gap = np.zeros((model.n_states, model.n_states))
    for V, error in value_ranges(model, c_T):
        np.maximum(gap, c_R * (np.abs(V[:, None] - V[None, :]) - 2.0 * error), out=gap)
    return gap
