"""Settings of Hypothesis, and the random models, distributions and ground distances that tests share."""

from __future__ import annotations

import os
import signal
import sys

import emulated_cuda
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import bisimetric as bm
from bisimetric import operators
from bisimetric.kernels.select import Engine, engine
from bisimetric.transport import Family

# BISIMETRIC_TEST_DEVICE=cuda runs the tests of kernels, metrics and policies on a GPU instead of the CPU;
# BISIMETRIC_TEST_DEVICE=emulated runs the CUDA sources on the host, one lane a warp (see emulated_cuda).
DEVICE = os.environ.get("BISIMETRIC_TEST_DEVICE", "cpu")
if DEVICE == "emulated":
    sys.modules["cupy"] = emulated_cuda.fake_cupy()


def tested_engine(device: str, dtype: str) -> Engine:
    """The engine under test, where a test asks for the CPU."""
    return engine("cuda" if device == "cpu" and DEVICE != "cpu" else device, dtype)


operators.engine = tested_engine


# A job in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "bisimetric",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("bisimetric")

EVERY_TRANSPORT = (
    bm.Exact(),
    bm.Exact(2.0),
    bm.Sinkhorn(0.5),
    bm.Sinkhorn(0.5, cost="value"),
    bm.Sinkhorn(0.01, cost="value"),
    bm.KLBall(0.2),
    bm.KLBall(0.2, p=2.0),
    bm.Independent(),
    bm.Independent(2.0, diagonal="zero"),
)
GROUNDS = ("uniform", "ties", "zeros", "line", "paths")
PSEUDO_METRICS = ("line", "paths")
ROWS = ("simplex", "equal", "integers", "points", "tiny")


_ABOUT_THE_CPU = ("test_threads_and_blocks", "test_interrupts_within_a_sweep", "test_a_failing_unit", "test_forked")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On the CUDA path, leave out what is about the CPU's threads and units of work."""
    for item in items:
        if DEVICE != "cpu" and item.name.startswith(_ABOUT_THE_CPU):
            item.add_marker(pytest.mark.skip(reason="about the CPU's threads and units of work"))


def name(transport: bm.Transport) -> str:
    """A short name of a transport, for the list of tests."""
    text = type(transport).__name__.lower()
    for field, default in (("reg", None), ("radius", None), ("p", 1.0), ("cost", "sharp"), ("diagonal", "kept")):
        value = getattr(transport, field, default)
        text += "" if value == default else f"-{value:g}" if isinstance(value, float) else f"-{value}"
    return text


@pytest.fixture
def one_thread():
    """Work on one thread: tiny models are faster without a pool."""
    bm.set_threads(1)
    yield
    bm.set_threads(None)


@pytest.fixture(autouse=True)
def _default_threads():
    """Whatever a test sets, the next one starts from the default."""
    yield
    bm.set_threads(None)


def ground(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """A symmetric ground distance [n, n] with zero diagonal; "line" and "paths" are pseudo-metrics with ties."""
    if kind == "line":
        x = rng.integers(0, max(2, n // 2), size=n).astype(float)
        return np.abs(x[:, None] - x[None, :])
    d = rng.random((n, n)) if kind == "uniform" else rng.integers(0, 4, size=(n, n)).astype(float)
    if kind == "zeros":
        d *= rng.random((n, n)) < 0.4
    d = np.triu(d, 1)
    d = d + d.T
    if kind == "paths":
        for k in range(n):
            d = np.minimum(d, d[:, k : k + 1] + d[k : k + 1, :])
    return d


def distribution(rng: np.random.Generator, kind: str, n: int, support: int) -> np.ndarray:
    """A distribution over n states with at most `support` of them, zeros elsewhere."""
    if kind == "points":
        support = 1 + int(rng.integers(min(2, support)))
    chosen = rng.choice(n, size=min(support, n), replace=False)
    weights = {
        "simplex": lambda k: rng.dirichlet(np.ones(k)),
        "equal": np.ones,
        "integers": lambda k: rng.integers(0, 4, size=k).astype(float),
        "points": lambda k: rng.random(k) + 0.01,
        "tiny": lambda k: 10.0 ** rng.uniform(-14, 0, size=k),
    }[kind](len(chosen))
    if weights.sum() == 0.0:
        weights[0] = 1.0
    row = np.zeros(n)
    row[chosen] = weights / weights.sum()
    return row / row.sum()


@st.composite
def transport_problems(draw, n_rows=4, max_support=6, grounds=GROUNDS, rows=ROWS, extra_states=3):
    """(rows [N, S], d [S, S]); some rows are equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    kind = draw(st.sampled_from(rows), label="rows")
    sizes = [draw(st.integers(1, max_support), label="support") for _ in range(n_rows)]
    n = max(sizes) + draw(st.integers(0, extra_states), label="extra states")
    table = np.array([distribution(rng, kind, n, size) for size in sizes])
    if draw(st.booleans(), label="equal rows"):
        table[-1] = table[0]
    return table, ground(rng, draw(st.sampled_from(grounds), label="ground"), n)


def family_of(rows: np.ndarray) -> Family:
    """The rows as one group, ready for an evaluator."""
    indptr = np.concatenate([[0], np.cumsum((rows > 0.0).sum(axis=1))]).astype(np.int64)
    _, columns = np.nonzero(rows)
    probs = rows[rows > 0.0]
    return Family(indptr, columns.astype(np.uint32), probs, (np.arange(len(rows)),), rows.shape[1])


def evaluator_of(transport: bm.Transport, rows: np.ndarray, *, keep: bool = True, dtype: str = "float64"):
    return transport.evaluator(tested_engine("cpu", dtype), family_of(rows), keep)


def block_of(evaluator, d: np.ndarray, accuracy: float):
    """(W between all pairs of rows, from one block; its report). The output starts as NaN: nothing may be left out."""
    n = len(evaluator.family.indptr) - 1
    used = evaluator.engine
    out = used.xp.full((n, n), np.nan, used.dtype if used.on_device else np.float64)
    evaluator.prepare(used.to_device(d.astype(used.dtype)), accuracy)
    report = evaluator.block(0, 0, n, out)
    out = used.to_host(out)
    assert np.isfinite(out[np.triu_indices(n, evaluator.first)]).all()
    assert report.error >= 0.0
    return out, report


def table_of(evaluator, d: np.ndarray, accuracy: float = 1e-11) -> np.ndarray:
    """W between all pairs of rows, symmetric."""
    out, _ = block_of(evaluator, d, accuracy)
    inside = np.triu_indices(len(out), evaluator.first)
    table = np.zeros(out.shape)
    table[inside] = out[inside]
    return np.maximum(table, table.T)


def distances(transport: bm.Transport, rows: np.ndarray, d: np.ndarray, **settings_of_evaluator) -> np.ndarray:
    """W between all pairs of rows, from a cold start."""
    return table_of(evaluator_of(transport, rows, **settings_of_evaluator), d)


def random_chain(seed: int, n: int, gamma: float = 0.8, kind: str = "integers", support: int = 3) -> bm.Chain:
    rng = np.random.default_rng(seed)
    P = np.array([distribution(rng, kind, n, support) for _ in range(n)])
    return bm.Chain.from_arrays(P, rng.integers(0, 3, size=n) / 2.0, gamma)


def random_mdp(seed: int, n: int, gamma: float = 0.8, *, ragged: bool = True, support: int = 3) -> bm.MDP:
    """A small MDP; where ragged, states have 1 to 3 choices with labels drawn from a, b, c."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, size=n) if ragged else np.full(n, 2)
    labels = [x for k in counts for x in sorted(rng.choice(list("abc"), k, replace=False))] if ragged else None
    P = np.array([distribution(rng, "integers", n, support) for _ in range(counts.sum())])
    R = rng.integers(0, 3, size=counts.sum()) / 2.0
    return bm.MDP.from_choices(P, R, np.concatenate([[0], np.cumsum(counts)]), gamma, labels)


def choices_of(model: bm.Chain | bm.MDP) -> list[list[tuple[str, float, np.ndarray]]]:
    """choices[s] = [(label, reward, distribution)], as the reference operator wants them."""
    P = model.rows.matrix().toarray()
    if isinstance(model, bm.Chain):
        return [[("", float(model.rewards[s]), P[s])] for s in range(model.n_states)]
    return [
        [
            (model.label_names[model.label_of_choice[k]], float(model.rewards[k]), P[k])
            for k in range(model.choice_ptr[s], model.choice_ptr[s + 1])
        ]
        for s in range(model.n_states)
    ]
