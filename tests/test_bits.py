"""The same bytes, whatever was compiled before: sums are added in the order in which they are written."""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import subprocess
import sys

import pytest
from numba.core.dispatcher import Dispatcher

from bisimetric.backends.cpu import kernels as cpu

HARMLESS = {"nnan", "ninf", "nsz"}  # change no finite number but the sign of 0


def kernels():
    found = {}
    for module in pkgutil.iter_modules(cpu.__path__):
        loaded = importlib.import_module(f"{cpu.__name__}.{module.name}")
        for name, value in vars(loaded).items():
            if isinstance(value, Dispatcher):
                found[f"{module.name}.{name}"] = value
    return found


def test_no_kernel_lets_the_compiler_choose_the_order_of_a_sum():
    """Else results depend on inlining, and so on what was compiled or cached before."""
    assert len(kernels()) > 50
    for name, kernel in kernels().items():
        wish = kernel.targetoptions.get("fastmath", False)
        assert not wish or set(wish) <= HARMLESS, name


JOB = """
import sys, hashlib
import numpy as np
import bisimetric as bm
mdp = bm.problems.chain(n_states=24, n_classes=4)
chain = mdp.under(mdp.uniform_policy())
ways = {"entropic": (bm.Sinkhorn(0.1), bm.Sinkhorn(0.02, cost="value")), "ball": (bm.KLBall(0.3),)}[sys.argv[1]]
for way in ways:
    solution = bm.solve_metric(chain, way, tol=1e-4)
    print(hashlib.sha256(np.ascontiguousarray(solution.distance).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_a_job_gives_the_same_bytes_whatever_ran_before(tmp_path):
    """In a fresh cache of kernels, and in one that another job has filled."""

    def run(cache: str, job: str) -> str:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / cache)}
        command = [sys.executable, "-c", JOB, job]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return hashlib.sha256(done.stdout.encode()).hexdigest()

    fresh = run("fresh", "entropic")
    run("used", "ball")
    assert run("used", "entropic") == fresh
    assert run("fresh", "entropic") == fresh  # from the cache
