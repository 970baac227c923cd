"""Who works: the workers of a Dask cluster, asked what they are before anything is begun.

Workers that are lost are Dask's to replace: their tasks are done again elsewhere. A task that takes several workers
with it is given up with an error that says so. Nothing here schedules anything.
"""

from __future__ import annotations

import logging
import math
import queue
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import ClusterError, LostShareError
from .store import Store
from .tasks import describe

if TYPE_CHECKING:
    from distributed import Future

T = TypeVar("T")
Given = TypeVar("Given")
_CONNECT = 10.0  # seconds
_LOOK = 2.0  # seconds without news after which it is asked who is there
_COME_BACK, _WAIT = 20.0, 0.5  # seconds that workers have to come back, and between two looks for them
_ALONE = 60.0  # seconds without a single worker after which work is given up


class Crew:
    """The workers of a client.

    Attributes: client, address (of the scheduler), workers (how many), threads (of all together), memory (bytes for
    each thread, of the worker that has least).
    """

    def __init__(self, client: Any, own: bool) -> None:
        self.client, self._own = client, own
        self.address = str(getattr(client.scheduler, "address", client.scheduler) if client.scheduler else "?")
        self.threads: int = 0
        self.workers = self.memory = 0

    def check(self, store: Store | None = None) -> None:
        """Refuse a crew that cannot do the work: none, of another version, or one that does not see the store."""
        from .. import __version__

        with self._watched():
            if not self.client.nthreads():
                raise ClusterError(
                    f"the cluster at {self.address} has no workers; start some (dask worker {self.address})."
                )
            if store is None:
                answers = self._asked()
            else:
                with store.token() as token:
                    answers = self._asked(str(store.folder), token)
        for address, answer in answers.items():
            if not isinstance(answer, dict):
                raise ClusterError(
                    f"the worker {address} cannot work: {answer}. Install bisimetric {__version__} with the extra "
                    "cluster there."
                )
            if answer["version"] != __version__:
                raise ClusterError(
                    f"the worker {address} has bisimetric {answer['version']}, and this is {__version__}: results "
                    "could differ. Install the same version on both."
                )
            if not answer["sees"]:
                raise ClusterError(
                    f"the worker {address} does not see the folder {store and store.folder}; give a store "
                    "(store=, --store), a folder that all workers and this process share."
                )
        self.threads = sum(int(answer["threads"]) for answer in answers.values())
        self.memory = min(int(answer["memory"]) // int(answer["threads"]) for answer in answers.values())
        self.workers = len(answers)

    def _asked(self, *given: str) -> dict[str, Any]:
        """What each worker says of itself, by its address; workers that were just lost are given some time."""
        until = time.monotonic() + _COME_BACK
        while True:
            answers: dict[str, Any] = self.client.run(describe, *given, on_error="return")
            silent = [address for address, answer in answers.items() if isinstance(answer, OSError)]
            if answers and not silent:
                return answers
            if time.monotonic() > until:
                who = f"the worker {silent[0]} does not answer" if silent else "all workers were lost"
                raise ClusterError(f"{who}, and did not come back in {_COME_BACK:.0f} s.")
            time.sleep(_WAIT)

    def wait(self) -> None:
        """Wait for workers to come back where all were lost."""
        since = time.monotonic()
        with self._watched():
            while not self.client.nthreads():
                if time.monotonic() - since > _ALONE:
                    raise ClusterError(f"all workers were lost, and none came back in {_ALONE:.0f} s.")
                time.sleep(_WAIT)

    def run(
        self,
        words: str,
        work: Callable[[Given], T],
        given: Sequence[Given],
        names: Sequence[str],
        prefer: Sequence[str] | None = None,
        end: float = math.inf,
    ) -> Iterator[tuple[int, T]]:
        """Do work on all that is given; yields (number, result) as they come.

        Args:
            words: what it is, for Dask's dashboard. names: of each piece.
            work: a pure function: it may be called more than once for a piece.
            prefer: the worker for each piece, if it is there and free; "" for any.
            end: time of the monotonic clock at which TimeoutError is raised.
        """
        flight = _Flight(self.client, words, work, given, names)
        try:
            with self._watched():
                for number in range(len(given)):
                    flight.submit(number, prefer[number] if prefer else "")
            while flight.under_way:
                if time.monotonic() > end:
                    raise TimeoutError
                with self._watched():
                    landed = flight.next()
                if landed is not None:
                    yield landed
        finally:
            flight.cancel()

    def share(self, thing: object) -> Any:
        """Give all workers a thing, once; pieces of work name it by what this returns."""
        with self._watched():
            return self.client.scatter(thing, broadcast=True, hash=False)

    def everywhere(self, work: Callable[..., object], *given: object) -> None:
        """Call a function on all workers, whoever is there; what goes wrong is of no consequence."""
        with suppress(Exception):
            self.client.run(work, *given, on_error="ignore")

    def close(self) -> None:
        """Leave the cluster, if the client is our own."""
        if self._own:
            with suppress(Exception):
                self.client.close(timeout=5)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Errors of Dask in our words."""
        from concurrent.futures import CancelledError as Cancelled

        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        try:
            yield
        except KilledWorker as error:
            raise ClusterError(
                f"a task ended several workers, one after the other ({error.task}): most likely their memory is too "
                "small for a tile. Give workers more memory, or call again with more of them."
            ) from None
        except (FutureCancelledError, Cancelled) as error:
            if self.client.status == "running" and self._answers():
                raise LostShareError("all workers that held what was given to them were lost.") from None
            raise self._lost(error) from None
        except (CommClosedError, TimeoutError, ConnectionError) as error:
            raise self._lost(error) from None
        except Exception as error:
            if type(error).__module__.split(".")[0] != "distributed":
                raise
            raise self._lost(error) from None  # the client was closed, as it could not connect again

    def _answers(self) -> bool:
        """Whether the scheduler is there."""
        with suppress(Exception):
            self.client.sync(self.client.scheduler.identity, callback_timeout=_CONNECT)
            return True
        return False

    def _lost(self, error: BaseException) -> ClusterError:
        return ClusterError(
            f"the scheduler at {self.address} was lost ({type(error).__name__}). Work that has a store of its own "
            "(store=, --store) is gone on with by the same call, from its last whole sweep."
        )


class _Flight:
    """Tasks under way.

    A task may be asked of the worker that holds what it needs; where that one is lost, it is asked of anybody: Dask
    leaves tasks that wait for a worker of an address that does not come back.
    """

    def __init__(
        self, client: Any, words: str, work: Callable[[Any], Any], given: Sequence[Any], names: Sequence[str]
    ) -> None:
        self._client, self._words, self._work, self._given, self._names = client, words, work, given, names
        self._done: queue.SimpleQueue[tuple[int, Future[Any]]] = queue.SimpleQueue()
        self.under_way: dict[int, tuple[Future[Any], str]] = {}  # with the worker that it was asked of
        self._alone_since: float | None = None

    def submit(self, number: int, worker: str) -> None:
        """Ask for a piece of work, of a worker or of any."""
        key = f"{self._words}-{self._names[number]}-{uuid.uuid4().hex}"
        place = {"workers": [worker], "allow_other_workers": True} if worker else {}
        future: Any = self._client.submit(self._work, self._given[number], key=key, pure=False, **place)
        self.under_way[number] = future, worker
        future.add_done_callback(partial(self._landed, number))

    def _landed(self, number: int, future: Future[Any]) -> None:
        self._done.put((number, future))

    def next(self) -> tuple[int, Any] | None:
        """A number and its result, or nothing after a while without any."""
        try:
            number, future = self._done.get(timeout=_LOOK)
        except queue.Empty:
            self._look()
            return None
        if number not in self.under_way or self.under_way[number][0] is not future:
            return None  # asked for again since
        result = future.result()
        del self.under_way[number]
        return number, result

    def _look(self) -> None:
        """Ask anybody for what was asked of workers that are gone; give up where there are none for long."""
        there = self._client.nthreads()
        if there:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > _ALONE:
            raise ClusterError(f"all workers were lost, and none came back in {_ALONE:.0f} s.")
        pairs: list[tuple[int, tuple[Any, str]]] = list(self.under_way.items())
        for number, (future, worker) in pairs:
            if there and worker and worker not in there:
                self.submit(number, "")
                future.cancel()

    def cancel(self) -> None:
        """Give up what is under way."""
        if not self.under_way:
            return
        with suppress(Exception):  # the scheduler may be gone
            self._client.cancel([future for future, _ in self.under_way.values()])


@contextmanager
def crew_of(cluster: object) -> Iterator[Crew]:
    """The crew of a client, of a cluster object of Dask, or of an address; what was opened here is closed again."""
    client, own = _client(cluster)
    crew = Crew(client, own)
    with _quiet() if own else nullcontext():
        try:
            yield crew
        finally:
            crew.close()


def _client(cluster: object) -> tuple[Any, bool]:
    try:
        from distributed import Client
    except ImportError:
        raise ClusterError('a cluster needs Dask; pip install "bisimetric[cluster]".') from None
    if isinstance(cluster, Client):
        if cluster.status != "running":
            raise ClusterError(f"the client is {cluster.status}, not running; make a new one.")
        return cluster, False
    address = cluster if isinstance(cluster, str) else getattr(cluster, "scheduler_address", None)
    if not isinstance(address, str):
        raise TypeError(
            f"cluster must be a Client of Dask, or an address such as tcp://host:8786; got {type(cluster).__name__}."
        )
    try:
        _knock(address)
        with _quiet():
            connect: Any = Client
            return connect(address, timeout=_CONNECT, set_as_default=False), True
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).split("\n", maxsplit=1)[0] or type(error).__name__
        raise ClusterError(f"there is no cluster at {address}: {reason}. Start one with dask scheduler.") from None


def _knock(address: str) -> None:
    """See whether anybody listens there: a client of Dask that found nobody waits for its end for a long time."""
    from distributed.comm.addressing import parse_address, parse_host_port

    scheme, place = parse_address(address)
    if scheme not in ("tcp", "tls"):
        known = scheme in ("inproc", "ucx", "ucxx", "ws", "wss")
        if not known:
            raise ValueError(f"{scheme!r} is no protocol of Dask's; an address is such as tcp://host:8786")
        return
    host, port = parse_host_port(place)
    socket.create_connection((host, port), timeout=_CONNECT).close()


@contextmanager
def _quiet() -> Iterator[None]:
    """What Dask says of a failed connection is said once, by us."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=ResourceWarning)
            yield
    finally:
        logger.setLevel(level)
