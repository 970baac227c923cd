"""UMB archives made by hand, from what the format says."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np


def umb_members() -> dict[str, bytes]:
    """Two states; state 0 has actions a (to 0 or 1) and b (to 1), state 1 has one without a name."""
    index = {
        "format-version": 1,
        "format-revision": 0,
        "transition-system": {
            "time": "discrete",
            "#players": 1,
            "#states": 2,
            "#initial-states": 1,
            "#choices": 3,
            "#choice-actions": 3,
            "#branches": 4,
            "#branch-actions": 0,
            "#observations": 0,
            "branch-probability-type": {"type": "double", "size": 64},
        },
        "annotations": {
            "aps": {"key": {"alias": "done", "applies-to": ["states"], "type": {"type": "bool", "size": 1}}},
            "rewards": {
                "r": {
                    "alias": "r",
                    "applies-to": ["states", "choices", "branches"],
                    "type": {"type": "double", "size": 64},
                }
            },
        },
        "valuations": {
            "states": {
                "unique": True,
                "classes": [
                    {
                        "variables": [
                            {"name": "x", "type": {"type": "uint", "size": 3}, "offset": 5},
                            {"name": "up", "type": {"type": "bool", "size": 1}},
                            {"padding": 4},
                        ]
                    }
                ],
            }
        },
    }
    return {
        "index.json": json.dumps(index).encode(),
        "state-to-choices.bin": np.array([0, 2, 3], "<u8").tobytes(),
        "state-is-initial.bin": np.array([1], "<u8").tobytes(),
        "choice-to-branches.bin": np.array([0, 2, 3, 4], "<u8").tobytes(),
        "branch-to-target.bin": np.array([0, 1, 1, 1], "<u8").tobytes(),
        "branch-to-probability.bin": np.array([0.25, 0.75, 1.0, 1.0], "<f8").tobytes(),
        "actions/choices/values.bin": np.array([1, 2, 0], "<u4").tobytes(),
        "actions/choices/strings.bin": b"__NOLABEL__ab",
        "actions/choices/string-mapping.bin": np.array([0, 11, 12, 13], "<u8").tobytes(),
        "annotations/aps/key/states/values.bin": np.array([2], "<u8").tobytes(),
        "annotations/rewards/r/states/values.bin": np.array([10.0, 20.0], "<f8").tobytes(),
        "annotations/rewards/r/choices/values.bin": np.array([1.0, 2.0, 3.0], "<f8").tobytes(),
        "annotations/rewards/r/branches/values.bin": np.array([4.0, 0.0, 0.5, 0.0], "<f8").tobytes(),
        "valuations/states/valuations.bin": bytes([0b1000, 0b0111]),
    }


def archive(members: dict[str, bytes], mode: str = "w") -> bytes:
    """A tar archive (mode "w:gz" and others for compressed ones)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()
