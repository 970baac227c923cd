"""The engine under test: the CPU, unless the environment asks for a GPU or for its emulation."""

from __future__ import annotations

import os

from bisimetric.backends import select
from bisimetric.backends.protocol import Backend

# BISIMETRIC_TEST_DEVICE=cuda runs the tests of kernels, metrics and policies on a GPU instead of the CPU;
# BISIMETRIC_TEST_DEVICE=emulated runs the CUDA sources on the host, one lane a warp (see emulated_cuda).
DEVICE = os.environ.get("BISIMETRIC_TEST_DEVICE", "cpu")
_choose = select.backend


def tested_backend(device: str, dtype: str) -> Backend:
    """The engine under test, where a test asks for the CPU."""
    return _choose("cuda" if device == "cpu" and DEVICE != "cpu" else device, dtype)
