"""Settings of Hypothesis, the engine that tests run on, and fixtures."""

from __future__ import annotations

import contextlib
import signal
import sys

import emulated_cuda
import pytest
from engines import DEVICE, tested_backend
from hypothesis import HealthCheck, settings

import bisimetric as bm
from bisimetric.metric import operator

if DEVICE == "emulated":
    sys.modules["cupy"] = emulated_cuda.fake_cupy()
operator.backend = tested_backend

# Where an assertion of a helper fails, its values are shown, as for those of tests.
pytest.register_assert_rewrite("model_equality", "model_files", "policy_runs", "run_folders", "transport_blocks")

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

_ABOUT_THE_CPU = (
    "test_threads_and_blocks",
    "test_interrupts_within_a_sweep",
    "test_a_failing_unit",
    "test_forked",
    "test_discount_one",
    "test_following_paths",
)


def pytest_configure(config: pytest.Config) -> None:
    """Fill QuantEcon's cache once, before pytest-xdist starts its workers.

    Workers that fill it side by side may leave gufuncs whose cached wrappers name symbols of another process, and LLVM
    then aborts every process that loads them.
    """
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        with contextlib.suppress(ImportError):
            import quantecon  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On the CUDA path, leave out what is about the CPU's threads and units of work, and what only it can do."""
    for item in items:
        if DEVICE != "cpu" and item.name.startswith(_ABOUT_THE_CPU):
            item.add_marker(pytest.mark.skip(reason="about the CPU's engine"))


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
