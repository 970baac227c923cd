"""The same bits as recorded, and elsewhere the same figures: see battery.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import battery
import emulated_cuda
import numpy as np
import pytest


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_answers_are_those_recorded(device, tmp_path):
    if device == "emulated" and emulated_cuda.COMPILER is None:
        pytest.skip("needs a C++ compiler")
    out = tmp_path / "answers.json"
    command = [sys.executable, str(Path(battery.__file__)), "--device", device, "--out", str(out)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    now, recorded = json.loads(out.read_text()), json.loads(battery.RECORD.read_text())[device]
    assert now["answers"].keys() == recorded["answers"].keys()
    for name, (bits, figures) in recorded["answers"].items():
        if name.startswith("metric"):  # steps of policies may go another way where values are tied up to rounding
            np.testing.assert_allclose(now["answers"][name][1], figures, rtol=1e-3, atol=1e-6, err_msg=name)
        assert bool(figures) == bool(now["answers"][name][1]), (name, bits, now["answers"][name][0])
    if now["fingerprint"] != recorded["fingerprint"]:
        pytest.skip(f"figures agree; bits were recorded with {recorded['fingerprint']}, not {now['fingerprint']}")
    differ = [name for name, (bits, _) in recorded["answers"].items() if now["answers"][name][0] != bits]
    assert not differ
