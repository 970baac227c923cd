"""Damaged input for all readers: nothing but the documented errors may come out, within little memory and time.

    python tests/fuzz_readers.py --count 1000000        what `make fuzz` does

Starts from small valid files of every kind and changes them: bytes, lines and numbers of texts, and inside of archives
their members, so that damage gets past the checksums. Each input has a number; --seed and --only repeat one.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from model_files import CSV, DRN, LAB, SREW, TRA, TREW
from umb_archives import archive, umb_members

import bisimetric as bm
from bisimetric.cli.inputs import load_policy
from bisimetric.cli.words import BadInputError
from bisimetric.damage import DamagedFileError
from bisimetric.policy import checkpoint
from bisimetric.policy import folder as runs

MEMORY = 3 << 30  # bytes of address space that a process may have
SECONDS = 10.0  # that one input may take
WORDS = (
    b"0",
    b"1",
    b"-1",
    b"nan",
    b"inf",
    b"1e400",
    b"-0",
    b"99999999999",
    b"4294967296",
    b"18446744073709551616",
    b"1/0",
    b"0.5",
    b'"',
    b"[",
    b"]",
    b"{",
    b"}",
    b":",
    b",",
    b"#",
    b"\0",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"state",
    b"action",
    b"@model",
    b"init",
    b"=",
    b'="',
    b"\xff\xfe",
    b"\xe2\x82",
    b"1" * 40,
    b"(" * 60,
    b"_",
)
DOCUMENTED = (bm.ModelError, DamagedFileError, runs.RunFolderError, BadInputError, OSError)


class _TooLongError(BaseException):
    pass


def seeds(folder: Path) -> dict[str, dict[str, bytes]]:
    """Valid inputs by kind: files by name, the first of which is read."""
    mdp = bm.problems.garnet(4, 2, 2, seed=1)
    chain = mdp.under(mdp.uniform_policy())
    bm.write(mdp, folder / "m.npz")
    bm.solve_metric(chain, bm.Sinkhorn(0.5), tol=1e-2).save(folder / "d.npz", restart=True)
    bm.solve_policy(mdp, steps=2).save(folder / "r.npz")
    bm.lump(mdp).save(folder / "p.npz")
    run = folder / "run"
    runs.begin(run, {"model": "problem:x"}, mdp)
    runs.run(mdp, bm.PolicySettings(steps=3, lump=False), run, checkpoint_every=0.0)
    np.save(folder / "w.npy", mdp.uniform_policy())
    np.savez(folder / "w.npz", policy=mdp.uniform_policy())
    found = {
        "npz": {"m.npz": (folder / "m.npz").read_bytes()},
        "drn": {"m.drn": DRN.encode()},
        "csv": {"m.csv": CSV.encode()},
        "tra": {"m.tra": TRA.encode(), "m.lab": LAB.encode(), "m.srew": SREW.encode(), "m.trew": TREW.encode()},
        "umb": {"m.umb": archive(umb_members(), "w")},
        "umb.gz": {"m.umb": archive(umb_members(), "w:gz")},
        "umb.xz": {"m.umb": archive(umb_members(), "w:xz")},
        "metric": {"d.npz": (folder / "d.npz").read_bytes()},
        "saved run": {"r.npz": (folder / "r.npz").read_bytes()},
        "partition": {"p.npz": (folder / "p.npz").read_bytes()},
        "policy.npy": {"w.npy": (folder / "w.npy").read_bytes()},
        "policy.npz": {"w.npz": (folder / "w.npz").read_bytes()},
        "policy.txt": {"w.txt": b"\n".join(b"0.5" for _ in range(8))},
        "run folder": {path.name: path.read_bytes() for path in sorted(run.iterdir()) if path.name != ".lock"},
    }
    shutil.rmtree(run)
    return found


MODEL = bm.problems.garnet(4, 2, 2, seed=1)


def read(kind: str, folder: Path, names: list[str]) -> None:
    """Read an input of a kind."""
    path = folder / names[0]
    if kind == "metric":
        bm.MetricSolution.load(path)
    elif kind == "saved run":
        bm.PolicyRun.load(path)
    elif kind == "partition":
        bm.Partition.load(path)
    elif kind.startswith("policy"):
        load_policy(str(path), MODEL)
    elif kind == "run folder":
        runs.read_settings(folder)
        state = checkpoint.restore(folder, MODEL, bm.PolicySettings(steps=3, lump=False).for_model(MODEL))
        runs._checked_history(folder / "history.jsonl", 0 if state is None else state.k)
    else:
        bm.read(path, None if kind == "npz" else 0.9)


def changed_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """One or a few changes of bytes, words or lines."""
    out = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        if not out:
            return bytes(out)
        at = int(rng.integers(len(out)))
        kind = int(rng.integers(10))
        if kind <= 1:
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            out[at] = int(rng.integers(256))
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            del out[at : at + int(rng.integers(1, 40))]
        elif kind == 5:
            out[at:at] = WORDS[int(rng.integers(len(WORDS)))]
        elif kind == 6:
            word = WORDS[int(rng.integers(len(WORDS)))]
            out[at : at + len(word)] = word
        elif kind == 7:
            other = int(rng.integers(len(out)))
            out[at:at] = out[other : other + int(rng.integers(1, 200))]
        elif kind == 8:
            lines = bytes(out).split(b"\n")
            k, j = (int(x) for x in rng.integers(len(lines), size=2))
            lines[k], lines[j] = lines[j], lines[k]
            out = bytearray(b"\n".join(lines))
        else:
            out[at : at + 8] = int(rng.integers(0, 2**63)).to_bytes(8, "little")
    return bytes(out)


def changed_archive(rng: np.random.Generator, data: bytes) -> bytes:
    """A zip archive with one member changed inside, its checksums right again."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        victim = names[int(rng.integers(len(names)))]
        for name in names:
            if name == victim and rng.random() < 0.1:
                continue
            content = old.read(name)
            new.writestr(name, changed_bytes(rng, content) if name == victim else content)
    return out.getvalue()


def changed_tar(rng: np.random.Generator, data: bytes) -> bytes:
    members = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as old:
        mode = "w:gz" if data[:2] == b"\x1f\x8b" else "w:xz" if data[:6] == b"\xfd7zXZ\x00" else "w"
        for member in old:
            stream = old.extractfile(member)
            members[member.name] = stream.read() if stream is not None else b""
    victim = list(members)[int(rng.integers(len(members)))]
    if victim == "index.json" and rng.random() < 0.5:
        members[victim] = changed_json(rng, members[victim])
    else:
        members[victim] = changed_bytes(rng, members[victim])
    return archive(members, mode)


def changed_json(rng: np.random.Generator, data: bytes) -> bytes:
    """JSON that is well-formed, with one value replaced."""
    try:
        tree = json.loads(data)
    except ValueError:
        return changed_bytes(rng, data)
    strange = [None, -1, 0, 1e308, 2**70, "", "x", [], {}, [[]], True, "states", 2**31, float("nan")]
    node, place = tree, None
    for _ in range(int(rng.integers(1, 6))):
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        if not keys:
            break
        place = (node, keys[int(rng.integers(len(keys)))])
        node = place[0][place[1]]
    if place is not None:
        place[0][place[1]] = strange[int(rng.integers(len(strange)))]
    return json.dumps(tree).encode()


def mutated(rng: np.random.Generator, files: dict[str, bytes]) -> dict[str, bytes]:
    names = list(files)
    victim = names[int(rng.integers(len(names)))]
    data, inside = files[victim], rng.random() < 0.6
    if inside and data[:2] == b"PK":
        new = changed_archive(rng, data)
    elif inside and victim.endswith(".umb"):
        new = changed_tar(rng, data)
    elif inside and victim.endswith(".json"):
        new = changed_json(rng, data)
    else:
        new = changed_bytes(rng, data)
    return {**files, victim: new}


def _too_long(number: int, frame: object) -> None:
    raise _TooLongError


def fuzz(
    first: int, count: int, seed: int, report: Callable[[int], None] | None = None
) -> tuple[dict[str, int], list[str]]:
    """(how often each kind was refused and accepted, what went wrong)."""
    outcomes: dict[str, int] = {}
    failures: list[str] = []
    place = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        kinds = seeds(folder)
        shutil.rmtree(folder)
        folder.mkdir()
        before = signal.signal(signal.SIGALRM, _too_long)
        try:
            for k in range(first, first + count):
                rng = np.random.default_rng([seed, k])
                kind = list(kinds)[k % len(kinds)]
                files = mutated(rng, kinds[kind])
                for file, data in files.items():
                    (folder / file).write_bytes(data)
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                try:
                    read(kind, folder, list(files))
                    outcome = "accepted"
                except DOCUMENTED as error:
                    outcome = "refused"
                    if len(str(error)) > 600:
                        failures.append(f"input {k} ({kind}): a message of {len(str(error))} characters")
                except (Exception, _TooLongError) as error:
                    outcome = "failed"
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    place_of_error = f"{where.filename}:{where.lineno}"
                    failures.append(f"input {k} ({kind}): {type(error).__name__} {error} at {place_of_error}")
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
                outcomes[f"{kind}: {outcome}"] = outcomes.get(f"{kind}: {outcome}", 0) + 1
                for file in files:
                    (folder / file).unlink(missing_ok=True)
                if report is not None and k % 1000 == 0:
                    report(k)
        finally:
            signal.signal(signal.SIGALRM, before)
    return outcomes, failures


def _work(arguments: tuple[int, int, int]) -> tuple[dict[str, int], list[str]]:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    return fuzz(*arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="the number of one input to repeat")
    given = parser.parse_args()
    began = time.monotonic()
    share = 5000
    end = given.first + given.count
    parts = [(k, min(share, end - k), given.seed) for k in range(given.first, end, share)]
    if given.only is not None:
        parts = [(given.only, 1, given.seed)]
    outcomes: dict[str, int] = {}
    failures: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), context) as pool:
        work = {pool.submit(_work, part): part for part in parts}
        for done, future in enumerate(as_completed(work), 1):
            try:
                some, wrong = future.result()
            except BrokenProcessPool:  # a fault that Python cannot catch; the inputs are among those not yet done
                left = sorted(part[0] for one, part in work.items() if not one.done() or one.exception())
                print(f"a process died at some of {share} inputs from one of {left[:8]} …: find it with --first")
                return 1
            for key, value in some.items():
                outcomes[key] = outcomes.get(key, 0) + value
            failures += wrong
            if done % 10 == 0 or done == len(parts):
                print(f"{done * share} inputs, {len(failures)} failures, {time.monotonic() - began:.0f} s", flush=True)
    for key in sorted(outcomes):
        print(f"{key:24s} {outcomes[key]}")
    for failure in failures[:50]:
        print(failure)
    print(f"{sum(outcomes.values()) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
