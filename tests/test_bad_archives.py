"""UMB archives that are no models: one line that names the file, and little memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from model_files import refused, refused_by_command, reread
from umb_archives import archive, umb_members

import bisimetric as bm


def header(name, size=0, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, "index.json"
    return info.tobuf()


@pytest.mark.parametrize(
    "member",
    [
        header("/etc/passwd"),
        header("../up"),
        header("a/../../up"),
        header("link", kind=tarfile.SYMTYPE),
        header("hard", kind=tarfile.LNKTYPE),
        header("pipe", kind=tarfile.FIFOTYPE),
        header("huge.bin", (1 << 30) + 1),
        header("index.json"),
    ],
    ids=["absolute", "up", "up-inside", "symlink", "hardlink", "fifo", "huge", "twice"],
)
def test_archives_that_reach_out(member, tmp_path, capsys):
    path = tmp_path / "model.umb"
    content = archive(umb_members())
    end = len(content) - len(content) % 512
    while content[end - 512 : end] == bytes(512):
        end -= 512
    path.write_bytes(content[:end] + bytes(-end % 512) + member + bytes(1024))
    refused(path)
    refused_by_command(path, capsys)


def changed_index(path, **changes):
    """A UMB file whose index has other entries; a None removes one."""
    members = umb_members()
    index = json.loads(members["index.json"])
    for key, value in changes.items():
        if key in ("annotations", "valuations"):
            index[key] = value
        else:
            index["transition-system"][key] = value
    members["index.json"] = json.dumps(index).encode()
    path.write_bytes(archive(members))


ODD = {
    "states": [10**9, -1, 0, 10**30, "x", None, float("inf"), [2]],
    "choices": [10**9, -1, 0, None],
    "branches": [10**9, -1, 0],
}


@pytest.mark.parametrize(("what", "value"), [(what, value) for what, values in ODD.items() for value in values])
def test_counts_of_an_archive_that_do_not_fit(what, value, tmp_path):
    path = tmp_path / "model.umb"
    changed_index(path, **{f"#{what}": value})
    refused(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": []},
        {"annotations": {"aps": []}},
        {"annotations": {"aps": {"x": "y"}}},
        {"annotations": {"aps": {"x": {"applies-to": 3}}}},
        {"annotations": {"rewards": {"r": {"type": "double"}}}},
        {"annotations": {"rewards": {"r": {"applies-to": ["states"]}}}},
        {"branch-probability-type": "double"},
        {"branch-probability-type": {"type": "rational"}},
        {"time": "stochastic"},
        {"#players": 2},
    ],
    ids=str,
)
def test_an_index_of_another_shape(changes, tmp_path):
    path = tmp_path / "model.umb"
    changed_index(path, **changes)
    with contextlib.suppress(bm.ModelError):
        assert reread(path, 0.9).n_states == 2
        return
    refused(path)


@pytest.mark.parametrize(
    "valuations",
    [[], {"states": []}, {"states": {"classes": [3]}}, {"states": {"classes": [{"variables": [{"name": "x"}]}]}}],
    ids=str,
)
def test_valuations_of_another_shape(valuations, tmp_path):
    changed_index(tmp_path / "model.umb", valuations=valuations)
    with contextlib.suppress(bm.ModelError):
        assert reread(tmp_path / "model.umb", 0.9).state_names is None


def test_an_index_of_great_depth(tmp_path):
    path = tmp_path / "model.umb"
    path.write_bytes(archive({**umb_members(), "index.json": b"[" * 200_000}))
    refused(path)


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2"])
def test_damage_to_a_compressed_archive(mode, tmp_path):
    """Any byte changed, or any end missing: one line, or a model."""
    path = tmp_path / "model.umb"
    content = archive(umb_members() | {"annotations/more.bin": np.random.default_rng(0).bytes(30_000)}, mode)
    for at in range(0, len(content), len(content) // 97):
        for damaged in (content[:at], content[:at] + bytes([content[at] ^ 0x5A]) + content[at + 1 :]):
            path.write_bytes(damaged)
            with contextlib.suppress(bm.ModelError):
                assert reread(path, 0.9).n_states == 2


SMALL_MEMORY = """
import resource, sys, time
import bisimetric as bm
import scipy.sparse
now = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (now + (256 << 20), now + (256 << 20)))
began = time.process_time()
try:
    print(bm.read(sys.argv[1], 0.9))
except bm.ModelError as error:
    print(error)
print(time.process_time() - began < 5.0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory the Linux way")
@pytest.mark.parametrize("way", ["nothing else", "no pointers", "bomb"])
def test_a_small_file_that_promises_much_needs_little_memory(way, tmp_path):
    """10⁹ states announced with members left out, or many compressed zeros."""
    path = tmp_path / "model.umb"
    members = umb_members()
    index = json.loads(members["index.json"])
    for what in ("#states", "#choices", "#branches")[: 3 if way == "nothing else" else 2]:
        index["transition-system"][what] = 10**9
    members["index.json"] = json.dumps(index).encode()
    del members["state-to-choices.bin"], members["choice-to-branches.bin"]
    if way == "bomb":
        stream = io.BytesIO()
        with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as out:
            for k in range(4):
                out.write(header(f"zeros{k}.bin", 100 << 20))
                for _ in range(100):
                    out.write(bytes(1 << 20))
            out.write(archive(umb_members()))
        path.write_bytes(stream.getvalue())
    else:
        path.write_bytes(archive({"index.json": members["index.json"]} if way == "nothing else" else members))
    command = [sys.executable, "-c", SMALL_MEMORY, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.endswith("True\n"), done.stderr[-300:]
    assert str(path) in done.stdout or (way == "bomb" and "2 states" in done.stdout)
