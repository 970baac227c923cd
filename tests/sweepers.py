"""F at work for a test: a sweeper on the engine under test, and sweeps of plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import bisimetric as bm
from bisimetric.backends.protocol import Sweep, Sweeper
from bisimetric.metric import operator


def sweeper_for(model: bm.Chain | bm.MDP, transport: bm.Transport, **settings: Any) -> Sweeper:
    """The sweeper of a model for a transport; settings are those of `MetricSettings`."""
    question = bm.MetricSettings(transport=transport, **settings).for_model(model)
    return operator.sweeper_of(model, question)


def sweep(sweeper: Sweeper, d: np.ndarray, accuracy: float = np.inf) -> Sweep:
    """Replace an array of NumPy by F of it."""
    distances = sweeper.backend.distances(d)
    report = sweeper.sweep(distances, accuracy)
    d[:] = distances.to_host()
    return report
