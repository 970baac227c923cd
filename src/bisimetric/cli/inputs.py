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

Model = Annotated[
    str,
    Parameter(help="A model file, problem:NAME?argument=value&…, or gym:ENV."),
]
Json = Annotated[bool, Parameter(negative="", help="Print one machine-readable object.")]


class BadInputError(Exception):
    """A mistake in what the user gave: one line, exit status 2."""


Gamma = Annotated[float | None, Parameter(help="Discount, for models that have none of their own (or to change it).")]
Reward = Annotated[str | None, Parameter(help="Reward model to use, or none for no rewards (default: the first).")]
Costs = Annotated[bool | None, Parameter(negative="", help="The rewards are costs: change their sign.")]
Constants = Annotated[str | None, Parameter(help="Constants of a PRISM-language or JANI model, such as K=2,N=3.")]


def load_model(
    spec: str, gamma: float | None = None, reward: str | None = None, costs: bool | None = None,
    constants: str | None = None,
) -> MDP:  # fmt: skip
    """The model behind a MODEL argument: problem:…, gym:…, or a file."""
    from .. import formats

    kind, colon, rest = spec.partition(":")
    if kind == "problem" and colon:
        from .. import problems

        mdp = problems.from_spec(rest)
        mdp = mdp if gamma is None else mdp.with_gamma(gamma)
    elif kind == "gym" and colon:
        mdp = _load_gym(rest, gamma)
    else:
        if not Path(spec).exists():
            raise BadInputError(f"{spec}: no such file (generated models are written problem:NAME or gym:ENV).")
        mdp = formats.read(spec, gamma, constants=constants or "")
    if reward is not None:
        mdp = mdp.with_reward(None if reward == "none" else reward)
    return mdp.with_rewards(-mdp.rewards) if costs else mdp


def any_discount(spec: str, gamma: float | None) -> float | None:
    """A discount for work that does not depend on it, where the model has none and none was given."""
    has_one = spec.startswith("problem:") or spec.endswith(".npz")
    return gamma if gamma is not None or has_one else 0.9


def _load_gym(text: str, gamma: float | None) -> MDP:
    from urllib.parse import parse_qsl

    from .. import formats

    name, _, query = text.partition("?")
    if gamma is None:
        raise BadInputError(f"gym:{name}: Gymnasium environments have no discount; give --gamma.")
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query):
        lowered = value.lower()
        options[key] = lowered == "true" if lowered in ("true", "false") else int(value) if value.isdigit() else value
    return formats.from_gymnasium(name, gamma, **options)


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
    import warnings
    import zipfile

    try:
        with open(text, "rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty text file: check_policy says it better
            if text.endswith((".npy", ".npz")):
                loaded = np.load(stream, allow_pickle=False)
                policy = loaded["policy"] if text.endswith(".npz") else loaded
            else:
                policy = np.loadtxt(stream, delimiter="," if text.endswith(".csv") else None)
    except KeyError:
        raise BadInputError(f"{text}: has no entry 'policy'.") from None
    except OSError as error:
        raise BadInputError(f"{text}: {error.strerror or error}.") from None
    except (ValueError, EOFError, IndexError, zipfile.BadZipFile) as error:
        raise BadInputError(f"{text}: not a readable policy ({error}).") from None
    return mdp.check_policy(policy)


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
