"""Results as rows: the settings of a run by name, and its arrays."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..kinds import Floats, Ints
from .jobs import CURVES, Arrays, Job

Setting = float | str
Keys = Mapping[str, Setting]  # the settings that tell runs apart, and their seed


class Cell(NamedTuple):
    """One run of a figure: the settings that tell it from the others, and the job."""

    keys: Keys
    job: Job


@dataclass(frozen=True)
class Row:
    """A run that is done."""

    keys: Keys
    arrays: Arrays
    run: str = ""

    @property
    def seed(self) -> int:
        return int(self.keys["seed"])


@dataclass(frozen=True)
class Table:
    """Rows of one figure."""

    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def where(self, **wanted: Setting | Callable[[Setting], bool]) -> Table:
        """Rows with these settings; a setting may be a function that says which values are wanted."""

        def fits(row: Row) -> bool:
            return all(
                key in row.keys and (value(row.keys[key]) if callable(value) else row.keys[key] == value)
                for key, value in wanted.items()
            )

        return Table(tuple(row for row in self.rows if fits(row)))

    def values(self, key: str) -> list[Setting]:
        """The values of a setting, in the order of the rows."""
        return list(dict.fromkeys(row.keys[key] for row in self.rows if key in row.keys))

    def curves(self, name: str) -> Floats:
        """One quantity of every row [rows, steps]."""
        return np.array([row.arrays[name] for row in self.rows], dtype=np.float64)

    def by_seed(self, measure: Callable[[Row], float]) -> dict[int, float]:
        """A number per seed; there must be one row of each."""
        found: dict[int, float] = {}
        for row in self.rows:
            if row.seed in found:
                raise ValueError(f"several rows have seed {row.seed}: {row.keys}.")
            found[row.seed] = measure(row)
        return found


def plotted_steps(count: int, most: int = 150) -> Ints:
    """Step indices for curves on a logarithmic axis: all early ones, then ever fewer."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.round(np.geomspace(1, count, 2 * most)).astype(np.int64)) - 1


def mean_and_error(curves: Floats) -> tuple[Floats, Floats]:
    """Mean over runs, and its standard error (0 for one run) [steps]."""
    mean = curves.mean(axis=0)
    spread = curves.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.zeros_like(mean)
    return mean, spread


def tidy_csv(table: Table) -> str:
    """One line per run and step (or per run and box), with the settings of the run."""
    keys = list(dict.fromkeys(key for row in table for key in row.keys))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    steps = bool(len(table)) and "error" in table.rows[0].arrays
    columns = list(CURVES) if steps else sorted({name for row in table for name in row.arrays})
    if steps and all(len(row.arrays.get("metric_nmi", ())) for row in table):
        columns.append("metric_nmi")
    writer.writerow([*keys, "run", "step" if steps else "pair", *columns])
    for row in table:
        settings = [_text(row.keys.get(key, "")) for key in keys]
        for k, numbers in enumerate(zip(*(row.arrays[name].reshape(-1) for name in columns), strict=True), start=1):
            writer.writerow([*settings, row.run, k, *(f"{x:.10g}" for x in numbers)])
    return stream.getvalue()


def summary_csv(table: Table, quantities: Iterable[str]) -> str:
    """Mean and standard error over seeds at the plotted steps, for each setting."""
    keys = [key for key in dict.fromkeys(key for row in table for key in row.keys) if key != "seed"]
    groups: dict[tuple[Setting, ...], list[Row]] = {}
    for row in table:
        groups.setdefault(tuple(row.keys.get(key, "") for key in keys), []).append(row)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = list(quantities)
    writer.writerow([*keys, "seeds", "step", *(f"{name}{end}" for name in names for end in ("", "_se"))])
    for setting, rows in groups.items():
        part = Table(tuple(rows))
        columns = [mean_and_error(part.curves(name)) for name in names]
        for k in plotted_steps(len(columns[0][0])):
            numbers = [f"{x[k]:.6g}" for pair in columns for x in pair]
            writer.writerow([*(_text(value) for value in setting), len(rows), k + 1, *numbers])
    return stream.getvalue()


def _text(value: Setting) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
