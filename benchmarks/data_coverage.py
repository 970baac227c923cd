"""How often do bounds from data hold? Replicates of data from known MDPs, gathered as adversely as can be.

    python benchmarks/data_coverage.py --replicates 1000

prints a table: for each MDP, in how many replicates the confidence sets contain the truth, the brackets cover the true
metric (of the MDP, and of the uniform policy), and the bounds on a policy found from the data hold; and how often
sets of half the radius contain the truth, which the same count must find wanting.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import bisimetric as bm

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from data_replicates import DELTA, NOISY, PROBLEMS, Truth, assumptions, covered, halved_radii, replicated_counts


def count(name: str, replicates: int, brackets: int, most: int, fixed: bool) -> dict[str, int]:
    truth = Truth.of(PROBLEMS[name](), name in NOISY)
    held: dict[str, int] = {}
    for replicate in range(replicates):
        counts = replicated_counts(truth, most, np.random.default_rng([replicate, most]), fixed=fixed)
        said = covered(truth, counts, brackets=replicate < brackets)
        with halved_radii():
            sets = counts.confidence(DELTA, **assumptions(truth))
            said["half the radius"] = sets.contains(truth.rows, truth.mdp.rewards)
        for key, holds in said.items():
            held[key] = held.get(key, 0) + holds
    return held


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--brackets", type=int, default=1000, help="in how many of them brackets are computed too")
    parser.add_argument("--most", type=int, default=400, help="samples in the stack of a row")
    parser.add_argument("--only", choices=list(PROBLEMS))
    parser.add_argument("--fixed", action="store_true", help="a fixed number of visits a row, and bounds for that")
    given = parser.parse_args()
    bm.set_threads(1)
    visits = f"{given.most} visits a row" if given.fixed else f"8 to {given.most} visits a row, chosen against us"
    given.brackets = min(given.brackets, given.replicates)
    print(f"δ = {DELTA}, {given.replicates} replicates (brackets: {given.brackets}), {visits}\n")
    header: list[str] = []
    for name in [given.only] if given.only else PROBLEMS:
        began = time.process_time()
        held = count(name, given.replicates, given.brackets, given.most, given.fixed)
        if not header:
            header = list(held)
            print("| MDP | " + " | ".join(header) + " | CPU s |\n|" + "---|" * (len(header) + 2))
        figures = " | ".join(str(held[key]) for key in header)
        print(f"| {name} | {figures} | {time.process_time() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
