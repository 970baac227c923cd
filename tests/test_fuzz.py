"""A small share of `make fuzz`: damaged input of every kind gets the documented error, or is read."""

from __future__ import annotations

import pytest

fuzz_readers = pytest.importorskip("fuzz_readers", reason="needs the module resource")


def test_damaged_input_gets_the_documented_error():
    outcomes, failures = fuzz_readers.fuzz(0, 4200, seed=1)
    assert not failures
    for kind in ("npz", "drn", "csv", "tra", "umb", "umb.gz", "umb.xz", "metric", "run folder"):
        assert outcomes.get(f"{kind}: refused", 0) > 30, kind
