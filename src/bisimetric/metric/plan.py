"""What a metric will cost, before it is begun: memory, and time from a sample of pairs on this machine.

Nothing here is larger than the model: at ten million states it costs next to nothing.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from ..backends.select import host
from ..backends.threads import threads
from ..checks import InputError
from ..model import MDP, Chain, Distributions
from ..model.distributions import Mixing
from ..room import available_memory
from ..transport import Transport
from .evaluation import room_for_iterates
from .operator import comparison_groups
from .settings import MetricSettings, check_match

_SAMPLED = 200  # states whose pairs are timed
_ENOUGH = 0.2  # seconds of it
_SMALL, _FOR_WORK = 1 << 26, 1 << 28  # bytes: of arrays that nobody asks about; of what units of work need beside them


@dataclass(frozen=True)
class Plan:
    """Costs of a metric of all pairs.

    Attributes: pairs; fixed_bytes (distances, ground costs, kernel); least_bytes (of these where one array is held in
    place of two, as with low_memory); kept_bytes (the solvers' state, which can be done without); available_bytes
    (memory that is there); seconds_a_sweep (cold, None where it was not timed); sweeps, seconds (of a whole solve to
    1e-6 of the largest distance, None without a discount).
    """

    pairs: int
    fixed_bytes: int
    least_bytes: int
    kept_bytes: int
    available_bytes: int
    seconds_a_sweep: float | None = None
    sweeps: int | None = None
    seconds: float | None = None

    @property
    def fits(self) -> bool:
        return self.least_bytes <= self.available_bytes

    @property
    def remedy(self) -> str:
        return "merge bisimilar states first (lump), use float32, or a machine with more memory"


def memory(model: Chain | MDP, settings: MetricSettings) -> Plan:
    """The memory of a metric, without allocating any of it."""
    transport = settings.transport
    _, groups = comparison_groups(model, check_match(model, settings.match))
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    kept = host().bytes_to_remember(model.rows, groups, transport) if settings.remember else 0
    square_bytes = model.n_states**2 * np.dtype(settings.dtype).itemsize
    room = room_for_iterates(square_bytes) if settings.accelerate else 0
    fixed = least = transport.squares * square_bytes + room
    if settings.low_memory is not False and host().can_spare(model.rows, transport):
        least = square_bytes + room
    return Plan(pairs, least if settings.low_memory else fixed, least, kept, available_memory())


def check_fits(model: Chain | MDP, settings: MetricSettings) -> None:
    """Refuse a metric that does not fit into memory; a device tells itself."""
    if settings.device != "cpu":
        return
    cost = memory(model, settings)
    if cost.least_bytes + cost.kept_bytes <= cost.available_bytes:
        return
    needed = f"{1e-9 * cost.least_bytes:.3g} GB for distances and costs of {model.n_states} states"
    if settings.remember and cost.kept_bytes:
        needed += f", and {1e-9 * cost.kept_bytes:.3g} GB for what solvers keep of each pair"
    raise InputError(
        f"this does not fit: {needed}, and {1e-9 * cost.available_bytes:.3g} GB of memory are there.",
        python='Use remember=False, dtype="float32", or lump the model first.',
        command="Use --no-remember, --dtype float32, or bisimetric lump first.",
    )


def two_fit(square_bytes: int) -> bool:
    """Whether there is room for two arrays of so many bytes, and a little for work."""
    return square_bytes <= _SMALL or 2 * square_bytes + _FOR_WORK <= available_memory()


def check_room(needed: float, what: str) -> None:
    """Refuse what needs so many bytes, where they are many and not there."""
    if needed > _SMALL and needed > (there := available_memory()):
        raise InputError(f"{what} would need {1e-9 * needed:.3g} GB, and {1e-9 * there:.3g} GB of memory are there.")


def plan(mdp: MDP, transport: Transport, gamma: float | None) -> Plan:
    """Memory and time of the metric of the uniform policy; a discount is needed for the time of a whole solve."""
    n = mdp.n_states
    # A state has at most the successors of all its choices. Nothing larger than the model is made.
    most = np.minimum(np.add.reduceat(mdp.rows.sizes, mdp.choice_ptr[:-1]), n)
    pointers, nothing = np.concatenate([[0], np.cumsum(most)]), np.empty(0)
    rows = Distributions(pointers, nothing.astype(np.int32), nothing, n)
    kept = host().bytes_to_remember(rows, (np.arange(n),), transport)
    seconds_a_sweep = _sampled_sweep(mdp, transport) if n > 1 else 0.0
    sweeps = seconds = None
    if gamma is not None:
        sweeps = 1 if gamma == 0.0 else math.ceil(math.log(1e-6 * (1.0 - gamma)) / math.log(gamma)) + 1
        seconds = sweeps * seconds_a_sweep  # later sweeps start from what was kept, and take less
    square_bytes = 8 * n * n
    room = room_for_iterates(square_bytes)
    fixed = transport.squares * square_bytes + room
    least = square_bytes + room if host().can_spare(rows, transport) else fixed
    return Plan(n * (n - 1) // 2, fixed, least, kept, available_memory(), seconds_a_sweep, sweeps, seconds)


def _sampled_sweep(mdp: MDP, transport: Transport) -> float:
    """Seconds of a cold sweep over all pairs, from the pairs of some states, on ground costs made for them alone."""
    rng = np.random.default_rng(0)
    n = mdp.n_states
    chosen = np.sort(rng.choice(n, min(n, _SAMPLED), replace=False))
    counts = np.diff(mdp.choice_ptr)[chosen]
    pointers = np.concatenate([[0], np.cumsum(counts)])
    choices = np.repeat(mdp.choice_ptr[chosen] - pointers[:-1], counts) + np.arange(pointers[-1])
    rows = Mixing(mdp.rows.take(choices), pointers)(np.repeat(1.0 / counts, counts))
    states, places = np.unique(rows.indices, return_inverse=True)
    indices = places.reshape(-1).astype(np.int32)
    family = Distributions(rows.indptr, indices, rows.probs, len(states))
    solver = host().solver(family, (np.arange(len(chosen)),), transport, False)
    d = np.abs(np.subtract.outer(states, states) % 7.0) + 1.0  # any numbers that differ
    np.fill_diagonal(d, 0.0)
    solver.prepare(d, 1.0)

    def seconds_of(row: int) -> float:
        began = time.perf_counter()
        solver.fill(0, row, row + 1, np.zeros((1, len(chosen))), host().tally())
        return time.perf_counter() - began

    seconds_of(0)  # compiled before anything is timed
    pairs, spent = 0, 0.0
    for row in rng.permutation(len(chosen)):
        spent += seconds_of(int(row))
        pairs += len(chosen) - 1 - int(row)
        if spent > _ENOUGH:
            break
    return spent / max(pairs, 1) * (n * (n - 1) / 2) / threads()
