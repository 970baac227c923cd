"""What commands share: reading their arguments, checking outputs, printing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from ..model import MDP
    from ..transport import Transport

Model = Annotated[str, Parameter(help="A model file (.npz), or problem:NAME?argument=value&…")]
Json = Annotated[bool, Parameter(negative="", help="Print one machine-readable object.")]


class BadInputError(Exception):
    """A mistake in what the user gave: one line, exit status 2."""


def load_model(spec: str) -> MDP:
    """The model behind a MODEL argument."""
    if spec.startswith("problem:"):
        from .. import problems

        return problems.from_spec(spec.removeprefix("problem:"))
    from .. import formats

    if not Path(spec).exists():
        raise BadInputError(f"{spec}: no such file (a generated model is written problem:NAME).")
    return formats.read(spec)


def parse_transport(text: str) -> Transport:
    """exact, exact:2, sinkhorn:REG, kl:RADIUS, independent; then ,name=value for other settings."""
    from .. import transport

    kinds: dict[str, tuple[type[Transport], str]] = {
        "exact": (transport.Exact, "p"),
        "sinkhorn": (transport.Sinkhorn, "reg"),
        "kl": (transport.KLBall, "radius"),
        "independent": (transport.Independent, "p"),
    }
    head, *options = text.split(",")
    name, colon, value = head.partition(":")
    if name not in kinds:
        raise BadInputError(f"unknown transport {name!r}; known: {', '.join(kinds)}.")
    kind, main = kinds[name]
    settings: dict[str, Any] = {main: value} if colon else {}
    for option in options:
        key, equals, setting = option.partition("=")
        if not equals:
            raise BadInputError(f"transport {text!r}: write settings as name=value; got {option!r}.")
        settings[key] = setting
    known = {field: kind.__dataclass_fields__[field].type for field in kind.__dataclass_fields__}
    for key, setting in settings.items():
        if key not in known:
            raise BadInputError(f"transport {name!r} has no setting {key!r}; known: {', '.join(known)}.")
        if known[key] == "float":
            try:
                settings[key] = float(setting)
            except ValueError:
                raise BadInputError(f"transport {name!r}: {key} must be a number; got {setting!r}.") from None
    try:
        return kind(**settings)
    except TypeError:
        raise BadInputError(f"transport {name!r} needs a value, as in {name}:0.5.") from None


def load_policy(text: str, mdp: MDP) -> Any:
    """A policy per choice: the word uniform, or a .npy, .npz (entry policy) or text file."""
    import numpy as np

    if text == "uniform":
        return mdp.uniform_policy()
    try:
        if text.endswith((".npy", ".npz")):
            loaded = np.load(text, allow_pickle=False)
            return mdp.check_policy(loaded["policy"] if text.endswith(".npz") else loaded)
        return mdp.check_policy(np.loadtxt(text, delimiter="," if text.endswith(".csv") else None))
    except KeyError:
        raise BadInputError(f"{text}: has no entry 'policy'.") from None
    except OSError as error:
        raise BadInputError(f"{text}: {error.strerror or error}.") from None


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written before any work is done."""
    import tempfile

    if path.is_dir():
        raise BadInputError(f"{path}: is a folder.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror}).") from None


def say(text: str) -> None:
    """A line to the user beside the results."""
    print(text, file=sys.stderr, flush=True)


def print_json(facts: dict[str, Any]) -> None:
    """One machine-readable object."""
    print(json.dumps(facts))


def readable_bytes(count: float) -> str:
    """A size in the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
