"""The one-step operators of bisimulation metrics.

For a chain (a policy π), with a transport W:

    F(d)(s, t) = c_R |R(s) − R(t)| + c_T W(d)(P(s), P(t))                              (eqs. 5 and 11)

For an MDP, F(d)(s, t) compares choices by c_R |r − r'| + c_T W(d)(P, P') and combines them:

    match="labels"     the maximum over actions of the same label (eqs. 3 and 10). Where one state has
                       an action that the other has not, the distance is the largest possible one.
    match="hausdorff"  the Hausdorff distance of the two sets of choices (probabilistic automata).

States of an MDP with different kept labels (atomic propositions) are at the largest possible distance. All distances
are at most c_R · span / (1 − c_T), where span is the range of the rewards (1 where all rewards are equal, so that
states with different actions are still apart).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernels.select import Engine, engine, run_all, single_thread, threads
from .lumping import kept_labels, label_classes
from .model import MDP, Chain
from .transport import Family, Transport
from .transport.base import same_supports

_UNIT_BYTES = 4 << 20  # work space of one unit of work
_DEVICE_UNIT_BYTES = 1 << 28
_GRAPHED_UNITS = 8  # units of work up to which the launches of a sweep are kept as a graph
_SWEEPS_AT_ONCE = 4  # sweeps that are started on a device before the host looks at what they did


class Sweep(NamedTuple):
    """What one sweep did."""

    rise: float  # largest increase of an entry
    fall: float  # largest decrease
    transport_error: float
    iterations: int

    @property
    def change(self) -> float:
        return max(self.rise, self.fall)


class Swept(NamedTuple):
    """What several sweeps did."""

    distance: Any
    sweeps: int
    change: float  # of the last one
    iterations: int


class MetricOperator:
    """F for one model, transport and matching, with the state that its transport keeps.

    `sweep(d)` replaces d by F(d) in place. Results do not depend on the number of threads.
    """

    def __init__(
        self,
        model: Chain | MDP,
        transport: Transport,
        *,
        match: str | None = None,
        reward_weight: float = 1.0,
        transition_weight: float | None = None,
        keep: Sequence[str] | None = None,
        warm_state: bool = True,
        device: str = "cpu",
        dtype: str = "float64",
    ) -> None:
        self.model, self.transport, self.match = model, transport, check_match(model, match)
        self.c_R = check_reward_weight(reward_weight)
        self.c_T = check_transition_weight(model.gamma if transition_weight is None else transition_weight)
        self.engine: Engine = engine(device, dtype)
        self.warm_state = warm_state
        self.n_states = model.n_states
        self._states, self._pointers = _choices(model)
        self._label_sets, groups = comparison_groups(model, self.match)
        if isinstance(model, MDP) and kept_labels(model, keep):
            _, apart = np.unique(np.stack([self._label_sets, label_classes(model, keep)]), axis=1, return_inverse=True)
            self._label_sets = apart.reshape(-1)
        self.family = _family(model, groups)
        self.evaluator: Any = transport.evaluator(self.engine, self.family, warm_state)
        self._tables = [self.engine.to_device(x) for x in (self._states, self._pointers, self._label_sets)]
        self._rewards = self.engine.xp.array(model.rewards) if self.engine.on_device else model.rewards
        self._host_units: dict[int, list[tuple[int, int]]] = {}
        self._block: Any = None
        self._home: Any = None
        self._graph: Any = None
        self._graphs_work = True
        self._started: Any = None
        self._expected = 0  # sweeps that were needed the last time
        self._room: Any = self.engine.kernels.HostRoom() if self.engine.on_device else None

    def follow(self, model: Chain) -> None:
        """Go on with the chain of another policy; what the transport kept is kept where it fits."""
        if model.n_states != self.n_states or self.match != "chain":
            raise ValueError("follow needs a chain with the same states.")
        family = _family(model, self.family.groups)
        if same_supports(family, self.family).all():
            self.evaluator.follow(family)
        else:
            evaluator = self.transport.evaluator(self.engine, family, self.warm_state)
            if self.warm_state:
                evaluator.take_from(self.evaluator)
            self.evaluator = evaluator
        self.model, self.family = model, family
        if self.engine.on_device:
            self.engine.kernels.put(self._rewards, model.rewards)
        else:
            self._rewards = model.rewards

    @property
    def largest(self) -> float:
        """The largest possible distance, c_R · span / (1 − c_T)."""
        return self.c_R * (self.model.reward_span or 1.0) / (1.0 - self.c_T)

    def accuracy_for(self, tol: float) -> float:
        """How exact a transport must be for half of the tolerance."""
        return 0.5 * tol * (1.0 - self.c_T) / self.c_T if self.c_T > 0.0 else np.inf

    def sweep(self, d: NDArray[Any], accuracy: float = np.inf) -> Sweep:
        """Replace d [S, S] by F(d); transports are within `accuracy` where they can be."""
        self.evaluator.restart()
        if self.engine.on_device:
            on_device = self.engine.to_device(d)
            report = self._device_sweep(on_device, accuracy)
            if isinstance(d, np.ndarray) and on_device is not d:  # distances of the host go there and back
                d[:] = self.engine.to_host(on_device)
            return report
        with single_thread():
            self.evaluator.prepare(d, accuracy)
            reports = run_all(lambda unit: self._sweep_rows(unit[0], unit[1], d), self._units())
        if self.evaluator.first == 1:
            np.fill_diagonal(d, 0.0)
        rise, fall, error, iterations = zip(*reports, strict=True)
        return Sweep(max(rise), max(fall), max(error), sum(iterations))

    def sweeps(self, start: Any, count: int, stop: float) -> Generator[None, None, Swept]:
        """Sweep a copy of `start` up to `count` times, until a sweep changes nothing by more than `stop`.

        Stops at least once, and wherever it would wait for a device, which works meanwhile. The host looks at what was
        done after a few sweeps at a time, first after as many as were needed the last time.
        """
        self.evaluator.restart()
        if self.engine.on_device:
            with self.engine.kernels.memory_errors(self.evaluator.needs):
                return (yield from self._device_sweeps_until(start, count, stop))
        yield
        d = start.copy()
        change, iterations, done = np.inf, 0, 0
        while done < count and change > stop:
            report = self.sweep(d)
            change, iterations, done = report.change, iterations + report.iterations, done + 1
        return Swept(d, done, change, iterations)

    def _device_sweeps_until(self, start: Any, count: int, stop: float) -> Generator[None, None, Swept]:
        evaluator, tally = self.evaluator, self.evaluator.tally
        if self._home is None:
            self._home = self.engine.xp.empty_like(start)
        self._home[...] = start  # sweeps work in one place, so that a graph of their launches can be used again
        tally.clear()
        ahead, done = max(self._expected, 2 * _SWEEPS_AT_ONCE), 0
        while True:
            for _ in range(1 if evaluator.synchronous else min(ahead, count - done)):
                self._launch_sweep(stop)
            yield
            seen = tally.read()
            done, ahead = seen.sweeps, _SWEEPS_AT_ONCE
            if seen.done or done >= count:
                break
        self._expected = done
        return Swept(self._home.copy(), done, seen.change, seen.iterations)

    def on_host(self, d: Any) -> NDArray[Any]:
        """Distances on the host; what a device had may be overwritten by the next call."""
        on_host: NDArray[Any] = self._room.read(d) if self.engine.on_device else d
        return on_host

    def _launch_sweep(self, stop: float) -> None:
        """Start a sweep of the distances at home: from a graph, once the same sweep was started before."""
        arrays = self._arrays_in_use()
        ready = self._graphs_work and self._graph is not None and self._graph[0] == stop
        if ready and _same(self._graph[1], arrays):
            self._graph[2].launch()
            return
        self._enqueue_sweep(self._home, stop, np.inf)
        graphed = (
            self._graphs_work
            and self.match == "chain"
            and not self.evaluator.synchronous
            and len(self._units()) <= _GRAPHED_UNITS
        )
        if not graphed or getattr(self.evaluator, "dense_rows", None) is not None:
            return
        arrays = self._arrays_in_use()
        if self._started is not None and _same(self._started, arrays):
            graph = self.engine.kernels.captured(lambda: self._enqueue_sweep(self._home, stop, np.inf))
            self._graph, self._graphs_work = (stop, arrays, graph), graph is not None
        self._started = arrays

    def _arrays_in_use(self) -> tuple[Any, ...]:
        """What a graph of a sweep is bound to."""
        evaluator = self.evaluator
        return (evaluator, evaluator.cost, getattr(evaluator, "gibbs", None), self._home, self._block, self._rewards,
                *evaluator.rows.in_use())  # fmt: skip

    def bounds(self, d: NDArray[Any], tol: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bounds lower ≤ F_exact(d) ≤ upper [S, S] for a d with zero diagonal, on the host."""
        self.evaluator.restart()
        xp = self.engine.xp
        lower, upper = xp.zeros(d.shape, d.dtype), xp.zeros(d.shape, d.dtype)
        if self.engine.on_device:
            d, lower, upper = (self.engine.to_device(x) for x in (d, lower, upper))
            self.evaluator.tally.clear()
            self.evaluator.prepare(d, self.accuracy_for(tol))
            for s0, s1 in self._units():
                self._bound_rows(s0, s1, lower, upper)
            for bound in (lower, upper):
                self.engine.kernels.mirror(self.evaluator.tally, bound)
            self.evaluator.tally.clear()
            self.evaluator.finish()
            return self.engine.to_host(lower), self.engine.to_host(upper)
        kept = {name: array.copy() for name, array in self.evaluator.state().items()}
        with single_thread():
            self.evaluator.prepare(d, self.accuracy_for(tol))
            run_all(lambda unit: self._bound_rows(unit[0], unit[1], lower, upper), self._units())
        self.evaluator.finish()
        self.evaluator.load(kept)  # bounds only read
        return lower, upper

    def _device_sweep(self, d: Any, accuracy: float) -> Sweep:
        """One sweep on a device; only the report comes back."""
        with self.engine.kernels.memory_errors(self.evaluator.needs):
            self.evaluator.tally.clear()
            self._enqueue_sweep(d, -1.0, accuracy)
            seen = self.evaluator.tally.read()
            error = max(seen.last_error, self.evaluator.rounding())
            return Sweep(seen.last_rise, seen.last_fall, error, seen.iterations)

    def _enqueue_sweep(self, d: Any, stop: float, accuracy: float) -> None:
        """Start all that a sweep does on a device."""
        evaluator, kernels, weights = self.evaluator, self.engine.kernels, (self.c_R, self.c_T)
        evaluator.prepare(d, accuracy)
        for s0, s1 in self._units():
            if self.match == "chain":
                block = self._device_block(s1 - s0, self.n_states)
                evaluator.enqueue(0, s0, s1, block)
                kernels.write_chain(evaluator.tally, block, s0, evaluator.first, self._rewards, *weights, d)
            else:
                acc = self._combined(s0, s1, evaluator.first, evaluator.enqueue)
                kernels.write_rows(evaluator.tally, acc, s0, evaluator.first, d)
        kernels.mirror(evaluator.tally, d)
        kernels.end_sweep(evaluator.tally, stop, self.engine.dtype)

    def _device_block(self, rows: int, width: int) -> Any:
        """Room for a block of transports, used again and again."""
        if self._block is None or self._block.size < rows * width:
            self._block = self.engine.xp.empty(rows * width, self.engine.dtype)
        return self._block[: rows * width].reshape(rows, width)

    def _units(self) -> list[tuple[int, int]]:
        """Ranges of states with about equal numbers of pairs and a bounded work space."""
        if self.engine.on_device:
            return self._device_units()
        count = threads()
        if count not in self._host_units:
            self._host_units[count] = self._units_for(count)
        return self._host_units[count]

    def _units_for(self, count: int) -> list[tuple[int, int]]:
        """Units of work for so many threads."""
        n, pointers = self.n_states, self._pointers
        width = int(pointers[-1])
        per_unit = max(1.0, width * (width + 1) / 2 / (8 * count))
        units = []
        start = 0
        while start < n:
            stop, pairs = start, 0.0
            while stop < n and (stop == start or pairs < per_unit):
                rows = int(pointers[stop + 1] - pointers[start])
                if stop > start and rows * width * 16 > _UNIT_BYTES:
                    break
                pairs += float((pointers[stop + 1] - pointers[stop]) * (width - pointers[stop]))
                stop += 1
            units.append((start, stop))
            start = stop
        return units

    def _device_units(self) -> list[tuple[int, int]]:
        """Ranges of states whose work space fits; a device is filled by one."""
        pointers = self._pointers
        width = max(int(pointers[-1]), self.n_states)
        rows = max(1, min(_DEVICE_UNIT_BYTES // (width * self.engine.dtype.itemsize), self.evaluator.rows_at_once))
        units, start = [], 0
        while start < self.n_states:
            stop = int(np.searchsorted(pointers, pointers[start] + rows, side="right")) - 1
            stop = min(max(stop, start + 1), self.n_states)
            units.append((start, stop))
            start = stop
        return units

    def _sweep_rows(self, s0: int, s1: int, d: NDArray[Any]) -> tuple[float, float, float, int]:
        evaluator = self.evaluator
        error, iterations = 0.0, 0

        def fill(group: int, a0: int, a1: int, out: NDArray[Any]) -> None:
            nonlocal error, iterations
            report = evaluator.block(group, a0, a1, out)
            error, iterations = max(error, report.error), iterations + report.iterations

        acc = self._combined(s0, s1, evaluator.first, fill)
        rise, fall = self.engine.kernels.write_rows(acc, s0, evaluator.first, d)
        return rise, fall, error, iterations

    def _bound_rows(self, s0: int, s1: int, lower: NDArray[Any], upper: NDArray[Any]) -> None:
        kernels, xp = self.engine.kernels, self.engine.xp
        for target, index in ((lower, 0), (upper, 1)):

            def fill(group: int, a0: int, a1: int, out: NDArray[Any], which: int = index) -> None:
                pair = (out, xp.zeros_like(out)) if which == 0 else (xp.zeros_like(out), out)
                self.evaluator.bounds(group, a0, a1, *pair)

            acc = self._combined(s0, s1, 1, fill)
            if self.engine.on_device:
                kernels.write_rows(self.evaluator.tally, acc, s0, 1, target)
            else:
                kernels.write_rows(acc, s0, 1, target)

    def _combined(self, s0: int, s1: int, first: int, fill: Callable[..., None]) -> NDArray[Any]:
        """Rows s0 … s1−1 of F(d), for t ≥ s + first, with transports from `fill`."""
        kernels, rewards = self.engine.kernels, self._rewards
        states, pointers, label_sets = self._tables
        xp, real = self.engine.xp, self.engine.dtype if self.engine.on_device else np.dtype(np.float64)
        acc: NDArray[Any] = xp.zeros((s1 - s0, self.n_states), real)
        weights = self.c_R, self.c_T
        if self.match == "hausdorff":
            a0, a1 = int(self._pointers[s0]), int(self._pointers[s1])
            block = xp.zeros((a1 - a0, len(rewards)), real)
            fill(0, a0, a1, block)
            if self.engine.on_device:
                kernels.hausdorff(
                    self.evaluator.tally, block, pointers, rewards, label_sets, self.largest, s0, first, *weights, acc
                )
                return acc
            kernels.hausdorff(block, pointers, rewards, s0, first, *weights, acc)
            acc[label_sets[s0:s1, None] != label_sets[None, :]] = self.largest
            return acc
        kernels.start_rows(label_sets, self.largest, s0, acc)
        for group, members in enumerate(self.family.groups):
            a0, a1 = (int(k) for k in np.searchsorted(self._states[members], (s0, s1)))
            if a0 == a1:
                continue
            block = xp.zeros((a1 - a0, len(members)), real)
            fill(group, a0, a1, block)
            if self.engine.on_device:
                rows = self.evaluator.rows.groups[group]
                kernels.raise_to(self.evaluator.tally, block, rows, states, rewards, a0, s0, first, *weights, acc)
            else:
                kernels.raise_to(block, members, states, rewards, a0, a1, s0, first, *weights, acc)
        return acc


def _same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(some) == len(others) and all(x is y for x, y in zip(some, others, strict=True))


def value_gap(operator: MetricOperator) -> NDArray[Any]:
    """c_R |V(s) − V(t)| − rounding, a lower bound on the exact metric [S, S].

    V is the value under discount c_T: of the chain, or of the best and of the worst policy of an MDP.
    """
    rewards, c_T = operator.model.rewards, operator.c_T
    P, starts = operator.model.rows.matrix(), operator._pointers[:-1]
    gap = np.zeros((operator.n_states, operator.n_states))
    for choose in (np.maximum, np.minimum):
        V = np.zeros(operator.n_states)
        scale = float(np.abs(rewards).max()) / (1.0 - c_T)
        while True:
            new = choose.reduceat(rewards + c_T * (P @ V), starts)
            change, V = float(np.abs(new - V).max()), new
            if change <= 1e-13 * max(scale, 1e-300):
                break
        margin = 2.0 * c_T * change / (1.0 - c_T) + 1e-14 * scale
        np.maximum(gap, operator.c_R * (np.abs(V[:, None] - V[None, :]) - 2.0 * margin), out=gap)
    return gap


def check_match(model: Chain | MDP, match: str | None) -> str:
    if isinstance(model, Chain):
        if match is not None:
            raise ValueError("match is for an MDP; a chain has no choices to match.")
        return "chain"
    if match not in ("labels", "hausdorff"):
        raise ValueError(
            f'match must be "labels" (same action names) or "hausdorff" (choices as sets) for an MDP; got {match!r}. '
            "For the metric of a policy pass mdp.under(policy)."
        )
    return match


def check_reward_weight(c_R: float) -> float:
    if not 0.0 <= c_R < np.inf:
        raise ValueError(f"reward_weight (c_R) must be finite and not negative; got {c_R}.")
    return float(c_R)


def check_transition_weight(c_T: float) -> float:
    if not 0.0 <= c_T < 1.0:
        raise ValueError(f"transition_weight (c_T) must be in [0, 1); got {c_T}.")
    return float(c_T)


def _choices(model: Chain | MDP) -> tuple[NDArray[Any], NDArray[Any]]:
    """The state of each row and the row pointers of the states."""
    if isinstance(model, MDP):
        return model.state_of_choice, model.choice_ptr
    return np.arange(model.n_states), np.arange(model.n_states + 1)


def comparison_groups(model: Chain | MDP, match: str) -> tuple[NDArray[Any], tuple[NDArray[Any], ...]]:
    """(set of labels of each state, groups of rows whose pairs are compared)."""
    if isinstance(model, Chain):
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_states),)
    if match == "hausdorff":
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_choices),)
    known: dict[tuple[int, ...], int] = {}
    label_sets = np.empty(model.n_states, np.int64)
    for s in range(model.n_states):
        labels = np.sort(model.label_of_choice[model.choice_ptr[s] : model.choice_ptr[s + 1]])
        if np.any(labels[1:] == labels[:-1]):
            twice = model.label_names[labels[:-1][labels[1:] == labels[:-1]][0]]
            raise ValueError(
                f'match="labels" needs different labels within a state; state {model.name_of(s)} has action {twice} '
                'more than once. Use match="hausdorff".'
            )
        label_sets[s] = known.setdefault(tuple(labels.tolist()), len(known))
    # Only states with the same labels are compared, one group for each label of each set.
    key = label_sets[model.state_of_choice] * len(model.label_names) + model.label_of_choice
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    return label_sets, tuple(np.split(order, cuts))


def _family(model: Chain | MDP, groups: tuple[NDArray[Any], ...]) -> Family:
    """Rows ready for the kernels: rescaled so that they sum to 1 to the last bit that matters."""
    rows = model.rows
    probs = rows.probs / np.repeat(rows.sums(), rows.sizes)
    return Family(rows.indptr, rows.indices.view(np.uint32), probs, groups, rows.n_states)
