"""Files that claim much more than they are: refused in one line, quickly and within little memory."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import time
import zipfile

import numpy as np
import pytest
from umb_archives import archive, umb_members

import bisimetric as bm


def drn(names: str, states: int, labels: str = "") -> str:
    head = f"@type: MDP\n@parameters\n\n@reward_models\n{names}\n@nr_states\n{states}\n@nr_choices\n{states}\n@model\n"
    return head + "".join(f"state {s}{labels.format(s)}\n\taction a\n\t\t{s} : 1\n" for s in range(states))


def many_rewards(folder):
    (folder / "m.drn").write_text(drn(" ".join(f"r{k}" for k in range(60_000)), 20_000))
    return folder / "m.drn"


def many_labels(folder):
    (folder / "m.drn").write_text(drn("r", 40_000, " l{0}"))
    return folder / "m.drn"


def digits_in_a_header(folder):
    (folder / "m.tra").write_text("1 1 1\n0 0 0 1\n")
    (folder / "m.lab").write_text("1" * 200_000 + "\n")
    return folder / "m.tra"


def quotes(folder):
    (folder / "m.csv").write_text("idstatefrom,idaction,idstateto,probability,reward\n" + '"' * 5_000_001)
    return folder / "m.csv"


def quotes_behind_a_state(folder):
    (folder / "m.drn").write_text(drn("r", 1).replace("state 0", "state 0 " + '" ' * 400_000 + '"'))
    return folder / "m.drn"


def inflating_archive(folder):
    with zipfile.ZipFile(folder / "m.npz", "w", zipfile.ZIP_DEFLATED) as stream:
        content = io.BytesIO()
        np.save(content, np.zeros(1 << 25))
        stream.writestr("probs.npy", content.getvalue())
    return folder / "m.npz"


def claimed_shape(folder):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
    with zipfile.ZipFile(folder / "m.npz", "w") as stream:
        stream.writestr("probs.npy", content.getvalue())
    return folder / "m.npz"


def nested_header(folder):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"(" * 4000 + b")" * 4000 + b"}"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(folder / "m.npz", "w") as stream:
        stream.writestr("probs.npy", content)
    return folder / "m.npz"


def many_members(folder):
    zeros = bytes(1 << 22)
    members = {**umb_members(), **{f"annotations/aps/{k}/states/values.bin": zeros for k in range(80)}}
    (folder / "m.umb").write_bytes(archive(members, "w:xz"))
    return folder / "m.umb"


def long_pax_header(folder):
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    (folder / "m.umb").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 2048)
    return folder / "m.umb"


def many_claimed_rewards(folder):
    members = umb_members()
    import json

    index = json.loads(members["index.json"])
    index["annotations"]["rewards"] = {str(k): {"applies-to": []} for k in range(400_000)}
    index["transition-system"]["#choices"] = index["transition-system"]["#choices"]
    members["index.json"] = json.dumps(index).encode()
    (folder / "m.umb").write_bytes(archive(members, "w:gz"))
    return folder / "m.umb"


HOSTILE = (
    many_rewards,
    many_labels,
    digits_in_a_header,
    quotes,
    inflating_archive,
    claimed_shape,
    nested_header,
    many_members,
    long_pax_header,
)

READ = """
import resource, sys
import numpy, scipy.sparse
import bisimetric as bm
now = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (now + (800 << 20),) * 2)
try:
    bm.read(sys.argv[1], None if sys.argv[1].endswith("npz") else 0.9)
except bm.ModelError as error:
    print(len(str(error)), sys.argv[1].rpartition(".")[0] in str(error), str(error)[:200])
else:
    print("read")
"""


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_files_that_claim_too_much_are_refused(make, tmp_path):
    path = make(tmp_path)
    began = time.monotonic()
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    length, named, text = done.stdout.split(" ", 2)
    assert named == "True", text
    assert int(length) < 500, text
    assert "MemoryError" not in text
    assert time.monotonic() - began < 200.0


@pytest.mark.parametrize("make", [quotes_behind_a_state, many_claimed_rewards], ids=lambda make: make.__name__)
def test_odd_files_take_little_time(make, tmp_path):
    path = make(tmp_path)
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def test_many_rewards_of_transitions_are_read_at_once(tmp_path):
    n = 40_000
    (tmp_path / "m.tra").write_text(f"{n} {n} {n}\n" + "".join(f"{s} 0 {(s + 1) % n} 1\n" for s in range(n)))
    (tmp_path / "m.trew").write_text(f"{n} {n} {n}\n" + "".join(f"{s} 0 {(s + 1) % n} {s}\n" for s in range(n)))
    began = time.monotonic()
    mdp = bm.read(tmp_path / "m.tra", 0.9)
    np.testing.assert_array_equal(mdp.rewards, np.arange(n))
    assert time.monotonic() - began < 200.0


def test_unnamed_rewards_of_prism(tmp_path):
    """Storm writes each name with a space behind it, also that of a block of rewards without a name."""
    body = "@nr_states\n1\n@nr_choices\n1\n@model\nstate 0 [{}]\n\taction a [{}]\n\t\t0 : 1\n"
    for line, names in (
        (" ", ["reward"]),
        ("", ["reward"]),
        (" steps ", ["reward", "steps"]),
        ("steps  ", ["steps", "reward"]),
        ("reward  ", ["reward", "reward_"]),
        ("steps ", ["steps"]),
    ):
        values = ", ".join(str(k + 1) for k in range(len(names)))
        text = f"@type: MDP\n@parameters\n\n@reward_models\n{line}\n" + body.format(values, values)
        (tmp_path / "m.drn").write_text(text)
        models = bm.read(tmp_path / "m.drn", 0.9, reward=None).reward_models
        assert {name: r.tolist() for name, r in models.items()} == {x: [2.0 * (k + 1)] for k, x in enumerate(names)}


@pytest.mark.parametrize(
    "member", ["state-to-choices.bin", "choice-to-branches.bin", "actions/choices/string-mapping.bin"]
)
def test_pointers_whose_differences_wrap_around(member, tmp_path):
    """Numbers that rise by 2^62 at a time and end where they should: their differences are positive, modulo 2^64."""
    members = umb_members()
    pointers = np.frombuffer(members[member], "<u8")
    wrapped = pointers.copy()
    wrapped[1:-1] = np.linspace(0.2, 0.9, len(pointers) - 2) * 2.0**64
    path = tmp_path / "wrapped.umb"
    path.write_bytes(archive({**members, member: wrapped.tobytes()}))
    with pytest.raises(bm.ModelError, match=r"wrapped\.umb"):
        bm.read(path, gamma=0.9)


def test_pointers_of_our_own_format_that_wrap_around(tmp_path):
    bm.write(bm.problems.garnet(n_states=4), tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as data:
        arrays = dict(data)
    names = [name for name in arrays if "ptr" in name or "choice_of_state" in name]
    assert len(names) >= 2
    for name in names:
        wrong = arrays[name].astype(np.uint64)
        wrong[1:-1] = np.linspace(0.2, 0.9, len(wrong) - 2) * 2.0**64
        np.savez(tmp_path / "wrong.npz", **{**arrays, name: wrong.view(np.int64)})
        with pytest.raises(bm.ModelError, match=r"wrong\.npz"):
            bm.read(tmp_path / "wrong.npz")
