"""Examples for --help. All of them are run by a test, in this order, in one folder."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "solve": (
        "bisimetric solve",
        "bisimetric solve problem:staircase --eps 0.04 --alpha decay:0.8,0.01 --steps 50 --out run",
        "bisimetric solve --resume run --steps 60",
        "bisimetric solve gym:FrozenLake-v1 --gamma 0.95 --out lake",
        "bisimetric solve problem:garnet --target 0.01 --json",
        "bisimetric solve data.csv --gamma 0.9 --reward-range 0,1 --states 2 --actions 2 --out from-data",
    ),
    "estimate": (
        "bisimetric estimate data.csv --gamma 0.9 -o model.npz --counts counts.npz",
        "bisimetric estimate counts.npz --reward-range 0,1 --states 20 --actions 2",
    ),
    "metric": (
        "bisimetric metric problem:chain --policy uniform -o d.npz",
        "bisimetric metric problem:gridworld?copies=3 --match labels --tol 1e-3",
        "bisimetric metric problem:garnet --transport sinkhorn:0.5,cost=value --tol 1e-4",
        "bisimetric metric gym:FrozenLake-v1 --gamma 0.95 --match hausdorff",
    ),
    "query": (
        "bisimetric query problem:gridworld?copies=3 0 5 --match labels",
        "bisimetric query problem:garnet 0 1 --at-most 2.5 --pairs 5000 --match labels",
        "bisimetric query problem:chain 7 --nearest 3",
        "bisimetric query problem:gridworld 0 0 --other problem:gridworld?slip=0.2 --match labels",
    ),
    "abstract": (
        "bisimetric abstract problem:gridworld?copies=3 --match labels --size 10",
        "bisimetric abstract problem:staircase --match labels --eps 1 -o small.npz",
    ),
    "compare": (
        "bisimetric compare problem:gridworld problem:gridworld?slip=0.2 --match labels",
        "bisimetric compare problem:chain?seed=0 problem:chain?seed=1 --tol 1e-4 -o between.npz",
    ),
    "explain": (
        "bisimetric explain problem:gridworld 0 7 --match labels",
        "bisimetric explain problem:chain 0 1 --metric d.npz --depth 2",
        "bisimetric explain problem:gridworld?copies=3 3 7 --classes -o why.html",
    ),
    "lump": (
        "bisimetric lump problem:gridworld?copies=3",
        "bisimetric lump problem:gridworld?copies=3 --match hausdorff -o quotient.drn --map classes.csv",
    ),
    "aggregate": ("bisimetric aggregate d.npz --eps 0.1", "bisimetric aggregate d.npz --k 20 -o classes.npz"),
    "view": (
        "bisimetric view d.npz -o metric.html",
        "bisimetric view run -o run.html",
        "bisimetric view classes.csv --model problem:gridworld?copies=3 -o lumping.html",
    ),
    "convert": (
        "bisimetric convert problem:garnet model.drn",
        "bisimetric convert model.drn model.npz --gamma 0.95",
        "bisimetric convert gym:FrozenLake-v1?is_slippery=false lake.tra",
    ),
    "info": ("bisimetric info problem:gridworld?copies=3", "bisimetric info model.drn --json"),
    "cluster-plan": (
        "bisimetric cluster-plan problem:gridworld?copies=3 --workers 4 --match labels --size 10",
        "bisimetric cluster-plan problem:chain --workers 2 --threads 8 --memory 16 --json",
    ),
    "bench": ("bisimetric bench --quick",),
    "paper": (
        "bisimetric paper list",
        "bisimetric paper run sharpness --profile quick --out results",
        "bisimetric paper report results",
    ),
    "truth": (
        "bisimetric truth list",
        "bisimetric truth run all --profile quick --out truth-results",
        "bisimetric truth report truth-results",
    ),
}


def epilogue(command: str) -> str:
    """The examples of a command, as they stand below its help."""
    return "\nExamples:\n\n" + "\n".join(f"  {line}" for line in EXAMPLES[command]) + "\n"
