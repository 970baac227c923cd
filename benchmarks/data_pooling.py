"""Do classes that share their samples help? True and certified loss over samples, by the rule of docs/data.md.

    python benchmarks/data_pooling.py --out docs

writes data-pooling.png and data-pooling.csv, and prints who wins where.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

import bisimetric as bm

FAMILIES = {
    "first MDP": lambda seed: bm.problems.chain(n_states=60, n_classes=12, seed=seed),
    "third family": lambda seed: bm.problems.detours(n_states=60, n_classes=12, n_actions=4, seed=seed),
    "noisy rooms": lambda seed: bm.problems.gridworld(width=3, height=3, copies=6, noise=0.1, seed=seed),
}
SAMPLES = (2, 5, 20, 100, 1000)
ARMS = ("plain", "pooled", "known")
DELTA = 0.05


def losses(family: str, seed: int, samples: int) -> dict[str, tuple[float, float]]:
    """(true, certified) loss of each arm."""
    mdp = FAMILIES[family](seed)
    n, gamma = mdp.n_states, mdp.gamma
    n_actions = mdp.n_choices // n
    counts = bm.Counts.from_simulator(mdp, n_states=n, n_actions=n_actions, samples=samples, seed=seed)
    given = {"gamma": gamma, "exact_rewards": True, "reward_range": (0.0, 1.0)}
    model = counts.model(gamma)
    plain = counts.certify(bm.greedy(model, bm.optimal_values(model)).reshape(n, n_actions), DELTA, **given)
    known = {"bias": 0.0} if family != "noisy rooms" else {"learn_bias": False}
    pooled = counts.pool(DELTA, **given)
    told = counts.pool(DELTA, classes=mdp.classes, **known, **given)
    best = bm.optimal_values(mdp).value
    found = {}
    for arm, data in zip(ARMS, (plain, pooled.data, told.data), strict=True):
        true = float((best - bm.evaluate(mdp, data.policy.reshape(-1)).value).max())
        found[arm] = (max(true, 0.0), data.certificate.error)
    return found


def verdict(ours: np.ndarray, plain: np.ndarray, tie: float) -> tuple[str, int, int]:
    """(wins, loses or neither; seeds in which ours is smaller, larger)."""
    better, worse = int((ours < plain - tie).sum()), int((ours > plain + tie).sum())
    if better + worse == 0 or binomtest(better, better + worse).pvalue >= 0.05:
        return "neither", better, worse
    return ("wins" if better > worse else "loses"), better, worse


def judge(table: dict[tuple[str, int, str], np.ndarray]) -> None:
    """Print who wins where, by the rule."""
    for kind, name in enumerate(("true loss", "certified loss")):
        for arm in ARMS[1:]:
            families = []
            for family, make in FAMILIES.items():
                scale = 1.0 / (1.0 - make(0).gamma)
                said = [
                    verdict(table[family, n, arm][:, kind], table[family, n, "plain"][:, kind], 1e-6 * scale)
                    for n in SAMPLES
                ]
                words = [word for word, _, _ in said]
                wins = "wins" in words and "loses" not in words
                families.append(wins)
                listed = ", ".join(f"{n}: {w} ({b}/{s})" for n, (w, b, s) in zip(SAMPLES, said, strict=True))
                print(f"{name}, {arm}, {family}: {'wins' if wins else 'does not win'} [{listed}]")
            print(f"{name}, {arm}: {'WINS' if all(families) else 'does not win'}\n")


def draw(table: dict[tuple[str, int, str], np.ndarray], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(11, 6), sharex=True, constrained_layout=True)
    for column, family in enumerate(FAMILIES):
        for row, name in enumerate(("true loss", "certified loss")):
            axis = axes[row, column]
            for arm, colour in zip(ARMS, ("black", "tab:blue", "tab:orange"), strict=True):
                values = np.array([table[family, n, arm][:, row] for n in SAMPLES])
                axis.plot(SAMPLES, np.median(values, axis=1), color=colour, label=arm, marker="o", ms=3)
                axis.fill_between(SAMPLES, *np.quantile(values, (0.25, 0.75), axis=1), color=colour, alpha=0.2)
            axis.set_xscale("log")
            axis.set_title(f"{family}: {name}")
            if row:
                axis.set_xlabel("samples of each state and action")
    axes[0, 0].legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path())
    given = parser.parse_args()
    bm.set_threads(1)
    table: dict[tuple[str, int, str], np.ndarray] = {}
    began = time.process_time()
    for family in FAMILIES:
        for samples in SAMPLES:
            runs = [losses(family, seed, samples) for seed in range(given.seeds)]
            for arm in ARMS:
                table[family, samples, arm] = np.array([run[arm] for run in runs])
            medians = "; ".join(f"{arm} {np.median(table[family, samples, arm], axis=0).round(4)}" for arm in ARMS)
            print(f"{family}, {samples} samples: {medians} ({time.process_time() - began:.0f} s)", flush=True)
    with open(given.out / "data-pooling.csv", "w", newline="") as stream:
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(["family", "samples", "seed", "arm", "true_loss", "certified_loss"])
        for (family, samples, arm), losses in table.items():
            for seed, (true, certified) in enumerate(losses):
                out.writerow([family, samples, seed, arm, f"{true:.6g}", f"{certified:.6g}"])
    judge(table)
    draw(table, given.out / "data-pooling.png")


if __name__ == "__main__":
    main()
