"""What a policy run gives: a record of each step, and the result."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..aggregation import Partition
from ..archives import read_arrays, save_arrays
from ..certificates import Certificate
from ..damage import DamagedFileError, reading
from ..estimate.policies import DataCertificate
from ..frames import frame
from ..kinds import Array, Floats, Ints
from ..showing import table_html
from ..status import Status

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "bisimetric-policy-run", 2


@dataclass(frozen=True)
class Step:
    """What happened in one step; all about π_k and the metric used in it."""

    k: int
    error: float | None  # ‖V* − V^π‖∞
    bound: float  # certified: ≥ error
    metric_gap: float  # max |d̂ − |ΔV^π||
    n_classes: int
    diameter: float  # largest d̂ inside a class
    delta: float  # ‖T_{π_g} Ṽ_Φ − T Ṽ_Φ‖∞
    alpha: float
    sweeps: int
    change: float  # of the last sweep
    transport_error: float  # largest error of a computed transport
    iterations: int  # pivots or scalings over all pairs
    abstract_error: float  # certified bound on ‖V^π − Ṽ_Φ‖∞
    nmi: float | None  # against the known classes
    purity: float | None
    seconds: float
    metric_seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class PolicyRun:
    """The result of a run. It can be pickled, copied, saved and loaded.

    Attributes:
        policy: per choice [N]. value: V^π [S].
        choices: the most probable choice of each state [S]. actions: its name [S].
        partition, distance, abstract_value: of the last step (distances to the small model [S, K] for `SmallModel`).
        history: one `Step` per step.
        certificate: the best rigorous bound on ‖V* − V^π‖∞ and its source.
        theorems: the paper's bounds for this run, with the conditions that fail.
        optimal_value: V* [S], where wanted. status: how it ended; status.advice says what to do.
        data: for a run on data, what is certain of the policy in the true MDP; the certificate is then that of it, and
            all else is of the estimated model.
    """

    policy: Floats
    value: Floats
    choices: Ints
    actions: tuple[str, ...]
    partition: Partition
    distance: Array
    abstract_value: Floats
    history: tuple[Step, ...]
    certificate: Certificate
    theorems: tuple[Certificate, ...]
    status: Status
    optimal_value: Floats | None
    data: DataCertificate | None = None

    @property
    def error(self) -> float | None:
        """‖V* − V^π‖∞, where V* was wanted."""
        return None if self.optimal_value is None else float(np.abs(self.optimal_value - self.value).max())

    def curve(self, name: str) -> Floats:
        """One quantity of the history, such as "error", as an array."""
        return np.array([getattr(step, name) for step in self.history], dtype=np.float64)

    def to_frame(self) -> pd.DataFrame:
        """The history as a data frame of pandas, one row per step."""
        names = [field.name for field in dataclasses.fields(Step)]
        columns = {name: [getattr(step, name) for step in self.history] for name in names if name != "k"}
        return frame(columns, range(len(self.history)))

    def _repr_html_(self) -> str:
        facts = {
            "states": f"{len(self.value)} in {self.partition.n_classes} classes",
            "certified bound": self.certificate,
            **({} if self.error is None else {"error": f"{self.error:.4g}"}),
            "steps": len(self.history),
            "status": self.status.value,
        }
        return table_html("Policy run", facts)

    def __repr__(self) -> str:
        return (
            f"PolicyRun({len(self.value)} states in {self.partition.n_classes} classes, certified bound "
            f"{self.certificate.error:.3g}, {self.status.name} after {len(self.history)} steps)"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run to an .npz file, whole or not at all."""
        about = {
            "status": self.status.name,
            "certificate": dataclasses.asdict(self.certificate),
            "theorems": [dataclasses.asdict(theorem) for theorem in self.theorems],
            "history": [dataclasses.asdict(step) for step in self.history],
            "extents": [self.partition.radius, self.partition.diameter],
        }
        best: dict[str, object] = {} if self.optimal_value is None else {"optimal_value": self.optimal_value}
        if self.data is not None:
            best |= {f"data_{name}": array for name, array in self.data.arrays().items()}
        save_arrays(
            Path(path),
            {
                "format": FORMAT,
                "version": VERSION,
                "about": json.dumps(about),
                "policy": self.policy,
                "value": self.value,
                "choices": self.choices,
                "actions": np.array(self.actions, dtype=str),
                "class_of": self.partition.class_of,
                "medoids": self.partition.medoids,
                "distance": self.distance,
                "abstract_value": self.abstract_value,
                **best,
            },
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PolicyRun:
        """A run from a file that `save` wrote."""
        path = Path(path)
        with reading(path, "a saved run"):
            data = read_arrays(path)
            if str(data.get("format")) != FORMAT or int(data["version"]) != VERSION:
                raise DamagedFileError(f"{path}: not a saved run of this version (format {FORMAT!r}, {VERSION}).")
            about = json.loads(str(data["about"]))
            certificates = [
                Certificate(float(c["error"]), bool(c["rigorous"]), str(c["source"]), tuple(map(str, c["failed"])))
                for c in (about["certificate"], *about["theorems"])
            ]
            radius, diameter = (float(x) for x in about["extents"])
            return cls(
                policy=data["policy"],
                value=data["value"],
                choices=data["choices"],
                actions=tuple(map(str, data["actions"])),
                partition=Partition(data["class_of"], data["medoids"], radius, diameter),
                distance=data["distance"],
                abstract_value=data["abstract_value"],
                history=tuple(Step(**step) for step in about["history"]),
                certificate=certificates[0],
                theorems=tuple(certificates[1:]),
                status=Status[about["status"]],
                optimal_value=data.get("optimal_value"),
                data=_data_of(data, certificates[0]),
            )


def _data_of(arrays: dict[str, Array], certificate: Certificate) -> DataCertificate | None:
    """What a file says of the true MDP, if anything."""
    own = {name[5:]: array for name, array in arrays.items() if name.startswith("data_")}
    return DataCertificate.of_arrays(own, certificate) if own else None
