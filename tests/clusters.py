"""Clusters of Dask on this machine, for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import bisimetric as bm


@contextmanager
def local_client(workers: int, *, processes: bool) -> Iterator[object]:
    """A client of a scheduler and workers of one thread each."""
    from distributed import Client, LocalCluster

    settings = {"dashboard_address": ":0", "silence_logs": 50, "memory_limit": "2GiB"}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=processes, **settings) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def kill_one(client: object) -> None:
    """SIGKILL a worker's process; its nanny starts another."""
    found = sorted(client.run(os.getpid).values())
    os.kill(found[0], signal.SIGKILL)


def chain(n: int, seed: int, gamma: float = 0.9, *, lonely: float = 0.0) -> bm.Chain:
    """A chain with up to four successors a state, and but one for a share of them."""
    rng = np.random.default_rng(seed)
    P = np.zeros((n, n))
    for row in P:
        k = 1 if rng.random() < lonely else int(rng.integers(1, 5))
        row[rng.choice(n, min(k, n), replace=False)] = rng.dirichlet(np.ones(min(k, n)))
    return bm.Chain.from_arrays(P, rng.random(n), gamma)


def mdp(n: int, seed: int, gamma: float = 0.9, *, lonely: float = 0.0) -> bm.MDP:
    """An MDP whose states have one choice or two, with labels of actions and of states."""
    rng = np.random.default_rng(seed)
    counts = np.where(rng.random(n) < 0.2, 1, 2)
    labels = [x for k in counts for x in "ab"[:k]]
    rows = chain(int(counts.sum()), seed + 1, lonely=lonely).rows.matrix().toarray()[:, :n]
    rows[rows.sum(axis=1) == 0.0, 0] = 1.0
    rows /= rows.sum(axis=1, keepdims=True)
    pointers = np.concatenate([[0], np.cumsum(counts)])
    rewards = np.concatenate([[0.0, 1.0], rng.random(counts.sum() - 2)])
    made = bm.MDP.from_choices(rows, rewards, pointers, gamma, labels)
    return made.with_labels({"x": rng.random(n) < 0.1})


def same_bytes(one: object, other: object) -> bool:
    """Whether two metrics have the same distances and the same error, bit by bit, after as many sweeps."""
    facts = [(m.distance.tobytes(), m.error, m.status, m.sweeps) for m in (one, other)]
    return facts[0] == facts[1]
