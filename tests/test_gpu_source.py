"""The CUDA sources compile, and a machine without CuPy gets a clear line."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess

import numpy as np
import pytest

import bisimetric as bm
from bisimetric.backends.cuda.kernels import device
from bisimetric.cli import run

FILES = ("fields.cu", "exact.cu", "exact_wide.cu", "sinkhorn.cu", "dense.cu", "ball.cu", "classes.cu")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("file", FILES)
def test_sources_compile(file, dtype, tmp_path):
    source = tmp_path / file
    source.write_text(device.source(file), encoding="utf-8")
    command = [
        "nvcc",
        "-ptx",
        "-arch=sm_90",
        *device.options(np.dtype(dtype)),
        "-o",
        str(tmp_path / "out.ptx"),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_there_is_one_clear_line(capsys):
    device.check.cache_clear()
    with pytest.raises(bm.DeviceError, match=r"needs CuPy.*bisimetric\[gpu\]"):
        bm.solve_metric(bm.Chain.from_arrays(np.eye(2), [0.0, 1.0], 0.5), device="cuda")
    for command in ("metric", "solve"):
        assert run([command, "problem:chain", "--device", "cuda"]) == 2
        seen = capsys.readouterr()
        assert seen.err.count("\n") == 1
        assert "CuPy" in seen.err


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match='device must be "cpu" or "cuda"'):
        bm.solve_metric(bm.Chain.from_arrays(np.eye(2), [0.0, 1.0], 0.5), device="tpu")
