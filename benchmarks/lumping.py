"""Speed of exact lumping and of the readers.

    python benchmarks/lumping.py

A consensus protocol of 22,656 states is built where stormpy is installed, and lumped by Storm and by us. The
million-state chain is made here: four copies of a random chain, three million transitions.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import bisimetric as bm
from bisimetric.formats.drn import read_drn, write_drn


def big_chain(n_states: int, seed: int = 0) -> bm.MDP:
    """A chain with three successors a state: copies of a smaller random chain, so that classes exist."""
    rng = np.random.default_rng(seed)
    base, copies = n_states // 4, 4
    targets = np.stack(
        [rng.integers(base, size=base), np.minimum(np.arange(base) + 1, base - 1), rng.integers(base, size=base)],
        axis=1,
    )
    probs = np.array([0.25, 0.5, 0.25])
    rows = np.tile(targets, (copies, 1)) + base * rng.integers(copies, size=(n_states, 3))
    P = csr_array((np.tile(probs, n_states), rows.reshape(-1), np.arange(n_states + 1) * 3), shape=(n_states, n_states))
    rewards = np.tile((rng.random(base) < 0.01).astype(float), copies)
    return bm.MDP.from_choices(P, rewards, np.arange(n_states + 1), 0.9)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def against_storm(k: int) -> None:
    """Storm's own refinement on the same model, without choice labels and origins, as ours keeps none."""
    try:
        import stormpy
        from stormpy.transformations import perform_bisimulation
    except ImportError:
        print("consensus model: not measured, stormpy is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coin.nm"
        path.write_text(COIN.replace("@K@", str(k)))
        mdp, read_seconds = timed(lambda: bm.read(path, 0.9))
        options = stormpy.BuilderOptions()
        options.set_build_all_labels()
        options.set_build_all_reward_models()
        model = stormpy.build_model(stormpy.parse_prism_program(str(path)), options=options)
        perform_bisimulation(model, [])
        quotient, storm_seconds = timed(lambda: perform_bisimulation(model, []))
        bm.lump(mdp, "hausdorff", rewards="all")
        found, ours = timed(lambda: bm.lump(mdp, "hausdorff", rewards="all"))
    print(
        f"{mdp!r}: built and read in {read_seconds:.2f} s; classes: ours {found.n_classes}, Storm {quotient.nr_states}"
    )
    print(f"  seconds: ours {ours:.4f}, Storm {storm_seconds:.4f}, ratio {ours / storm_seconds:.2f} (goal ≤ 3)")


COIN = """mdp
const int K = @K@;
const int range = 2*(K+1)*4;
const int counter_init = (K+1)*4;
const int left = 4;
const int right = 2*(K+1)*4 - 4;
global counter : [0..range] init counter_init;
module process1
  pc1 : [0..3];
  coin1 : [0..1];
  [] (pc1=0) -> 0.5 : (coin1'=0) & (pc1'=1) + 0.5 : (coin1'=1) & (pc1'=1);
  [] (pc1=1) & (coin1=0) & (counter>0) -> (counter'=counter-1) & (pc1'=2) & (coin1'=0);
  [] (pc1=1) & (coin1=1) & (counter<range) -> (counter'=counter+1) & (pc1'=2) & (coin1'=0);
  [] (pc1=2) & (counter<=left) -> (pc1'=3) & (coin1'=0);
  [] (pc1=2) & (counter>=right) -> (pc1'=3) & (coin1'=1);
  [] (pc1=2) & (counter>left) & (counter<right) -> (pc1'=0);
  [done] (pc1=3) -> (pc1'=3);
endmodule
module process2 = process1 [pc1=pc2, coin1=coin2] endmodule
module process3 = process1 [pc1=pc3, coin1=coin3] endmodule
module process4 = process1 [pc1=pc4, coin1=coin4] endmodule
label "finished" = pc1=3 & pc2=3 & pc3=3 & pc4=3;
label "all_one" = coin1=1 & coin2=1 & coin3=1 & coin4=1;
rewards "steps" true : 1; endrewards
"""


def main() -> None:
    against_storm(2)
    mdp = bm.problems.garnet(20_000, 2, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.drn"
        write_drn(mdp, path)
        size = path.stat().st_size / 1e6
        _, spent = timed(lambda: read_drn(path, 0.9))
        print(f"DRN: {size:.1f} MB read at {size / spent:.1f} MB/s (goal ≥ 10)")
    bm.lump(big_chain(4000))
    big, spent = timed(lambda: big_chain(1_000_000))
    print(f"made {big!r} in {spent:.1f} s")
    found, spent = timed(lambda: bm.lump(big))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"lumped into {found.n_classes} classes in {spent:.1f} s (goal < 60), peak memory {peak:.2f} GiB (goal < 2)")


if __name__ == "__main__":
    main()
