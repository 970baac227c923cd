"""A fixed point whose sweeps are done on a cluster: begun, gone on with, kept, and brought home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from ..backends.comparison import Comparison
from ..backends.protocol import Backend, Distances, Sweep, Sweeper
from ..backends.select import backend, distances_of
from ..checks import InputError, check_type
from ..cluster.outline import Outline
from ..model import MDP, Chain
from ..model.parts import ModelParts
from ..transport import Transport
from .driver import Aim, FixedPoint, Progress, Watch
from .pace import Pace
from .settings import Question

if TYPE_CHECKING:
    from ..cluster.distances import ClusterDistances

Model = Chain | MDP | ModelParts | Outline


class Resumable(Backend, Protocol):
    """An engine whose work another process can go on with, and which may read a model in parts: that of a cluster.

    Attributes: state (to go on from: sweeps, iterations, error, pace and pending sweep of a fixed point, beside what is
    the engine's own; None where work begins).
    """

    state: dict[str, Any] | None

    def keep(self, state: dict[str, object], sweeper: Sweeper, d: Distances) -> None:
        """Make this the state to go on from."""
        ...

    def restore(self, sweeper: Sweeper, d: Distances) -> None:
        """Go on from `state`."""
        ...

    def sweeper_in_parts(
        self, outline: Outline, between: Comparison, transport: Transport, remember: bool
    ) -> Sweeper: ...


def resumable(engine: Backend) -> TypeGuard[Resumable]:
    return hasattr(engine, "restore")


def engine_of(question: Question, cluster: object, store: Path | str | None) -> AbstractContextManager[Backend]:
    """The engine that a question asks for, or that of a cluster, in a context."""
    if cluster is None:
        if store is not None:
            raise ValueError("store is for work on a cluster; give cluster (cluster=, --cluster) too.")
        return nullcontext(backend(question.device, question.dtype))
    return _on_cluster(question, cluster, store)


@contextmanager
def _on_cluster(question: Question, cluster: object, store: Path | str | None) -> Iterator[Backend]:
    from .. import __version__
    from ..cluster.engine import cluster_engine

    if question.device != "cpu":
        raise ValueError(f'workers of a cluster use their CPUs; device must be "cpu", got {question.device!r}.')
    asked = {"bisimetric": __version__, **question.describe()}
    with cluster_engine(cluster, store, question.dtype, asked) as engine:
        yield engine


def watch(engine: Backend, on_progress: Callable[[Progress], None] | None) -> Watch:
    """Who is told: on a cluster the store too, after each sweep and what follows it."""
    if not resumable(engine):
        return Watch(on_progress)

    def keep(work: FixedPoint) -> None:
        state = {
            "sweeps": work.sweeps,
            "iterations": work.iterations,
            "error": work.error,
            "pace": asdict(work.pace),
            "pending": work.pending,
        }
        engine.keep(state, work.sweeper, work.d)

    return Watch(on_progress, keep, 0.0, keep)


def fixed_point(sweeper: Sweeper, aim: Aim, *, accelerate: bool, engine: Backend) -> FixedPoint:
    """A fixed point that begins at 0, or where the engine's store has it."""
    state = engine.state if resumable(engine) else None
    d = engine.zeros(sweeper.comparison.shape)
    pace = Pace(**state["pace"]) if state else Pace()
    work = FixedPoint(sweeper, d, aim, fresh=state is None, accelerate=accelerate, pace=pace)
    if resumable(engine) and state:
        engine.restore(sweeper, d)
        work.sweeps, work.iterations, work.error = (state[name] for name in ("sweeps", "iterations", "error"))
        work.pending = None if state["pending"] is None else Sweep(*state["pending"])
    return work


def outlined(model: Model, cluster: object, match: str | None) -> Chain | MDP | Outline:
    """A model as it is, or what is known of one that workers read in parts, once they have looked through it."""
    check_type("model", model, Chain, MDP, ModelParts, Outline, words="a Chain or an MDP, or one that is read in parts")
    if not isinstance(model, ModelParts):
        return model
    if model.uniform and match is not None:
        raise ValueError("match is for an MDP; a chain has no choices to match.")
    if not model.uniform and match not in ("labels", "hausdorff"):
        raise InputError(
            f'match must be "labels" (same action names) or "hausdorff" (choices as sets) for an MDP; got {match!r}.',
            python="For the chain of its uniform policy there is .under_uniform().",
            command="Without --match it is the chain of the uniform policy.",
        )
    if cluster is None:
        raise ValueError("a model that is read in parts is for a cluster: give cluster=, or read it whole (bm.read).")
    from ..cluster.crew import crew_of
    from ..cluster.scanning import scanned

    with crew_of(cluster) as crew:
        crew.check()
        return scanned(crew, model, by_actions=match == "labels")


def bring_home(work: FixedPoint, question: Question) -> None:
    """Let the distances be an array here, and the sweeper one that needs no cluster.

    Where the model was read in parts its rows are not here, and what needs them is refused.
    """
    d: ClusterDistances = work.d  # type: ignore[assignment]
    work.d, work.acceleration = distances_of(d.home()), None
    work.d.freeze()
    if getattr(work.sweeper, "in_parts", False):
        del work.sweeper
    else:
        comparison = work.sweeper.comparison
        work.sweeper = backend("cpu", question.dtype).sweeper(comparison, question.transport, False)
