"""What work costs in this tree, as a ratio to another tree: instructions, and seconds of CPU.

    python tools/instructions.py OTHER/src                   # both tables
    python tools/instructions.py OTHER/src --only exact      # cases whose names contain a word
    python tools/instructions.py OTHER/src --rounds 0        # instructions only
    python tools/instructions.py OTHER/src --no-count        # seconds only
    python tools/instructions.py OTHER/src --plain           # sweeps alone, for a tree that does nothing between them

Instructions are counted by Callgrind (`valgrind`, on x86-64), which does not depend on what else the machine does. Both
trees work on one thread with kernels compiled for the same processor beforehand. A case is a call with a limit of
sweeps or steps; the cost of one sweep or step is what a larger limit costs more. "around" is a call's cost at the
smaller limit: set-up, cold starts, result. Answers are compared first: other bits are reported, and their ratio means
less. All cases take about 20 minutes.

Seconds come from two processes, one a tree, that take turns, round after round; the ratio of least seconds, and the
median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A worker knows the public interface only, so that it works in any tree. It does what it is told, line by line.
WORKER = r"""
import ctypes, gc, hashlib, json, mmap, sys, time

BASE = (ord("C") << 24) | (ord("T") << 16)  # Callgrind's requests
ZERO, DUMP_AT, START, STOP = (BASE + n for n in (1, 3, 4, 5))
CODE = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")  # Valgrind's magic sequence
page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(CODE)
ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

def request(number, argument=0):
    words = (ctypes.c_uint64 * 6)(number, argument)
    ask(ctypes.addressof(words))

def counted(name, work):
    text = ctypes.create_string_buffer(name.encode())
    gc.collect()
    gc.disable()
    request(START)
    request(ZERO)
    work()
    request(DUMP_AT, ctypes.addressof(text))
    request(STOP)
    gc.enable()

def load():
    global bm
    import bisimetric as bm

counting = sys.argv[1] == "count"
if counting:
    counted("import", load)
else:
    began = time.process_time()
    load()
    imported = time.process_time() - began
import numpy as np
bm.set_threads(1)

def under(mdp):
    return mdp.under(mdp.uniform_policy())

def garnet(n, b):
    return under(bm.problems.garnet(n, 1, b, seed=1))

fields = getattr(getattr(bm, "MetricSettings", None), "__dataclass_fields__", {})
alone = {"accelerate": False} if sys.argv[3] == "plain" and "accelerate" in fields else {}

def metric(model, transport=None, **more):
    more |= alone

    def solve(sweeps):
        return bm.solve_metric(model, transport, lump=False, max_sweeps=sweeps, tol=1e-6, **more).distance
    return solve

def policy(mdp, transport, sweeps):
    def solve(steps):
        run = bm.solve_policy(mdp, lump=False, transport=transport, aggregation=bm.EpsilonCover(0.1), sweeps=sweeps,
                              step_size=bm.Constant(0.25), steps=steps, seed=0)
        return np.concatenate([run.policy, run.curve("metric_gap")])
    return solve

two_actions = lambda n: bm.problems.garnet(n, 2, 4, seed=1)
MAKE = {
    "exact, b = 4": (2, 2, lambda: metric(garnet(400, 4))),
    "exact, b = 2": (2, 2, lambda: metric(garnet(400, 2))),
    "exact, b = 8": (2, 2, lambda: metric(garnet(200, 8))),
    "exact, chain of 200": (2, 2, lambda: metric(under(bm.problems.chain(n_states=200, n_classes=20)))),
    "exact, chain of 24": (2, 20, lambda: metric(under(bm.problems.chain(n_states=24, n_classes=4)))),
    "exact, 24 states, b = 4": (2, 20, lambda: metric(garnet(24, 4))),
    "exact, p = 2": (2, 2, lambda: metric(garnet(300, 4), bm.Exact(2.0))),
    "exact, labels": (2, 2, lambda: metric(two_actions(200), match="labels")),
    "exact, hausdorff": (2, 2, lambda: metric(two_actions(150), match="hausdorff")),
    "sinkhorn 1, sharp": (2, 2, lambda: metric(garnet(200, 4), bm.Sinkhorn(1.0))),
    "sinkhorn 1, value": (2, 2, lambda: metric(garnet(200, 4), bm.Sinkhorn(1.0, cost="value"))),
    "sinkhorn 1, dense": (2, 2, lambda: metric(garnet(60, 50), bm.Sinkhorn(1.0))),
    "sinkhorn 1, 24 states": (2, 20, lambda: metric(garnet(24, 4), bm.Sinkhorn(1.0))),
    "ball 0.5": (2, 1, lambda: metric(garnet(80, 4), bm.KLBall(0.5))),
    "independent, sparse": (2, 4, lambda: metric(garnet(400, 4), bm.Independent())),
    "independent, dense": (2, 8, lambda: metric(garnet(200, 150), bm.Independent())),
    "independent, 24 states": (2, 20, lambda: metric(garnet(24, 4), bm.Independent())),
    "policy step, sinkhorn 1": (
        1, 1, lambda: policy(bm.problems.chain(n_states=200, n_classes=20), bm.Sinkhorn(1.0), 3)
    ),
    "policy step, exact, 24": (2, 8, lambda: policy(bm.problems.chain(n_states=24, n_classes=4), bm.Exact(), 8)),
}
CASES = {name: case for name, case in MAKE.items() if sys.argv[2] in name}
ready = {}

def tell(**found):
    print(json.dumps(found), flush=True)

def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()

if not counting:
    tell(imported=imported)
for line in sys.stdin:
    order, _, name = line.strip().partition(" ")
    if order == "names":
        tell(names=list(CASES))
        continue
    few, more, make = CASES[name]
    if name not in ready:
        ready[name] = make()
        warm = digest(ready[name](few + more))
    solve = ready[name]
    if order == "prepare":
        tell(digest=warm)
    elif order == "count":
        counted(f"few|{name}", lambda: solve(few))
        counted(f"many|{name}", lambda: solve(few + more))
        tell(more=more)
    elif order == "time":
        gc.collect()
        began = time.process_time()
        solve(few + more)
        tell(seconds=time.process_time() - began)
"""

COMPILE = """
import sys, time
import bisimetric as bm
bm.set_threads(1)
fields = getattr(getattr(bm, "MetricSettings", None), "__dataclass_fields__", {})
alone = {"accelerate": False} if sys.argv[1] == "plain" and "accelerate" in fields else {}
mdp = bm.problems.garnet(12, 2, 3, seed=1)
chain = mdp.under(mdp.uniform_policy())
began = time.process_time()
for transport in (bm.Exact(), bm.Sinkhorn(1.0), bm.KLBall(0.5), bm.Independent()):
    bm.solve_metric(chain, transport, lump=False, max_sweeps=2, **alone)
bm.solve_metric(mdp, match="hausdorff", lump=False, max_sweeps=2, **alone)
print(time.process_time() - began)
"""


@dataclass
class Tree:
    """One of the two trees, and where its compiled kernels are kept."""

    source: Path
    cache: Path
    sweeps: str = "as they come"  # or "plain"

    def environment(self, cache: Path | None = None) -> dict[str, str]:
        """One thread everywhere; a processor that Valgrind knows, the same for both trees."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return kept | {
            "PYTHONPATH": str(self.source),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "",
            "BISIMETRIC_CACHE_DIR": str(cache or self.cache),
            "BISIMETRIC_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "NUMBA_CPU_NAME": "haswell",
            "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+sse4.2,+popcnt,+lzcnt",
        }


class Worker:
    """A process of one tree that does cases when it is told."""

    def __init__(self, tree: Tree, only: str, counts: Path | None = None) -> None:
        command = [sys.executable, "-c", WORKER, "time" if counts is None else "count", only, tree.sweeps]
        if counts is not None:
            tool = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--smc-check=all-non-file"]
            command = [*tool, f"--callgrind-out-file={counts / 'out'}", *command]
        self.process = subprocess.Popen(
            command, env=tree.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended with {self.process.wait()}")
        return dict(json.loads(line))

    def ask(self, order: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        self.process.communicate()


def prepared(trees: list[Tree], only: str) -> dict[str, bool]:
    """Compile what the cases need; for each case, whether both trees answer with the same bits."""
    answers: list[dict[str, Any]] = []
    for tree in trees:
        worker = Worker(tree, only)
        worker.hear()
        names = worker.ask("names")["names"]
        answers.append({name: worker.ask(f"prepare {name}")["digest"] for name in names})
        worker.end()
    return {name: answers[0][name] == answers[1][name] for name in answers[0]}


def totals_in(folder: Path) -> dict[str, int]:
    """Instructions by name from Callgrind's files."""
    found = {}
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8", errors="replace")
        trigger = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        totals = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        if trigger and totals:
            found[trigger[1]] = int(totals[1])
    return found


def counted(tree: Tree, only: str, names: list[str]) -> dict[str, tuple[float, float]]:
    """(instructions of one sweep or step, those around) of each case; of the import alone, around."""
    with tempfile.TemporaryDirectory() as place:
        worker = Worker(tree, only, Path(place))
        more = {name: worker.ask(f"count {name}")["more"] for name in names}
        worker.end()
        found = totals_in(Path(place))
    costs = {"import": (0.0, float(found["import"]))}
    for name in names:
        few, many = found[f"few|{name}"], found[f"many|{name}"]
        costs[name] = ((many - few) / more[name], float(few))
    return costs


def count_all(trees: list[Tree], only: str, same: dict[str, bool]) -> None:
    """Print the table of instructions."""
    old, new = (counted(tree, only, list(same)) for tree in trees)
    print(f"{'instructions':28}{'a sweep, old':>15}{'new':>15}{'new/old':>9}{'around, old':>16}{'new/old':>9}")
    for name, (sweep, around) in old.items():
        ratio = f"{new[name][0] / sweep:9.3f}" if sweep else f"{'':9}"
        remark = "" if same.get(name, True) else "  other bits"
        print(f"{name:28}{sweep:15,.0f}{new[name][0]:15,.0f}{ratio}{around:16,.0f}{new[name][1] / around:9.3f}{remark}")


def time_all(trees: list[Tree], only: str, names: list[str], rounds: int) -> None:
    """Print the table of seconds."""
    workers = [Worker(tree, only) for tree in trees]
    for worker in workers:
        worker.hear()
    print(f"{'CPU seconds':28}{'old':>10}{'new':>10}{'least':>9}{'median':>9}")
    for name in names:
        for worker in workers:
            worker.ask(f"prepare {name}")
        taken = [[worker.ask(f"time {name}")["seconds"] for worker in workers] for _ in range(rounds)]
        report(name, taken)
    for worker in workers:
        worker.end()
    if only in "import":
        report("import", [[imported(tree, only) for tree in trees] for _ in range(min(rounds, 10))])
    if only in "first compilation":
        report("first compilation", [[compiled(tree) for tree in trees] for _ in range(min(rounds, 2))])


def report(name: str, taken: list[list[float]]) -> None:
    old, new = (min(times) for times in zip(*taken, strict=True))
    median = statistics.median(later / earlier for earlier, later in taken)
    print(f"{name:28}{old:10.4f}{new:10.4f}{new / old:9.3f}{median:9.3f}", flush=True)


def imported(tree: Tree, only: str) -> float:
    """Seconds of the import."""
    worker = Worker(tree, only)
    seconds = float(worker.hear()["imported"])
    worker.end()
    return seconds


def compiled(tree: Tree) -> float:
    """Seconds of all transports with nothing compiled before."""
    with tempfile.TemporaryDirectory() as place:
        command, environment = [sys.executable, "-c", COMPILE, tree.sweeps], tree.environment(Path(place))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path, help="src of the other tree")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--rounds", type=int, default=30, help="of seconds; 0 for none")
    parser.add_argument("--no-count", action="store_true", help="seconds only")
    parser.add_argument("--plain", action="store_true", help="nothing is done between sweeps, in either tree")
    parser.add_argument("--cache", type=Path, help="folder for compiled kernels, to be used again")
    given = parser.parse_args()
    sources = [given.other.resolve(), Path(__file__).resolve().parents[1] / "src"]
    with tempfile.TemporaryDirectory() as place:
        cache = given.cache.resolve() if given.cache else Path(place)
        sweeps = "plain" if given.plain else "as they come"
        trees = [Tree(source, cache / name, sweeps) for source, name in zip(sources, ("old", "new"), strict=True)]
        same = prepared(trees, given.only)
        for name in (name for name, equal in same.items() if not equal):
            print(f"{name}: the trees answer with other bits")
        if not given.no_count and shutil.which("valgrind"):
            count_all(trees, given.only, same)
        if given.rounds:
            time_all(trees, given.only, list(same), given.rounds)


if __name__ == "__main__":
    main()
