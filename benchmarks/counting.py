"""How fast transitions are counted, and in how much memory.

    python benchmarks/counting.py --millions 100

counts arrays (CPU seconds of one thread), then writes a Parquet file of so many millions of transitions to a temporary
folder and counts it in a process of its own, whose largest resident memory it prints.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bisimetric as bm

COUNT = """
import resource, sys, time
import bisimetric as bm
began = time.process_time()
counts = bm.Counts.read(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(f"{counts!r}: {time.process_time() - began:.1f} CPU s, at most {peak:.2f} GiB resident")
"""


def arrays() -> None:
    rng = np.random.default_rng(0)
    n = 10_000_000
    print("| states, actions, successors | rewards | million transitions a CPU second |\n|---|---|---|")
    for S, A, b in ((20, 2, 20), (200, 10, 20), (2000, 4, 4), (100_000, 4, 4)):
        s, a, k = rng.integers(S, size=n), rng.integers(A, size=n), rng.integers(b, size=n)
        t, done = (s + k * k) % S, rng.random(n) < 0.01
        for words, r in (("by state and action", (s % 7).astype(float)), ("by chance", rng.random(n))):
            began = time.process_time()
            bm.Counts.from_transitions(s, a, r, t, done)
            print(f"| {S}, {A}, {b} | {words} | {n / 1e6 / (time.process_time() - began):.1f} |", flush=True)


def file(millions: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    schema = pa.schema(
        [("s", pa.int32()), ("a", pa.int8()), ("r", pa.float64()), ("s_next", pa.int32()), ("done", pa.bool_())]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transitions.parquet"
        with parquet.ParquetWriter(path, schema) as writer:
            for _ in range(millions):
                n, S = 1_000_000, 10_000
                s, a = rng.integers(S, size=n), rng.integers(4, size=n)
                columns = (s, a, (s % 7).astype(float), (s + rng.integers(4, size=n)) % S, rng.random(n) < 0.01)
                made = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
                writer.write_table(pa.Table.from_arrays(made, schema=schema))
        print(f"\n{millions} million transitions, {path.stat().st_size / 2**30:.2f} GiB of Parquet", flush=True)
        subprocess.run([sys.executable, "-c", COUNT, str(path)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, default=100)
    given = parser.parse_args()
    bm.set_threads(1)
    arrays()
    file(given.millions)


if __name__ == "__main__":
    main()
