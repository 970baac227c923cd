"""What commands share: transports, policies, outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .words import BadInputError

if TYPE_CHECKING:
    from ..aggregation import EpsilonCover, KMedoids, SmallModel
    from ..kinds import Array, Floats
    from ..model import MDP
    from ..schedules import StepSize
    from ..transport import Transport

Json = Annotated[bool, Parameter(negative="", help="Print one machine-readable object.")]


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
    settings: dict[str, str] = {main: value} if colon else {}
    for option in options:
        key, equals, setting = option.partition("=")
        if not equals:
            raise BadInputError(f"transport {text!r}: write settings as name=value; got {option!r}.")
        if key in settings:
            raise BadInputError(f"transport {text!r}: {key} is given twice.")
        settings[key] = setting
    known = {field: kind.__dataclass_fields__[field].type for field in kind.__dataclass_fields__}
    numbers: dict[str, float] = {}
    for key, setting in settings.items():
        if key not in known:
            raise BadInputError(f"transport {name!r} has no setting {key!r}; known: {', '.join(known)}.")
        if known[key] == "float":
            try:
                numbers[key] = float(setting)
            except ValueError:
                raise BadInputError(f"transport {name!r}: {key} must be a number; got {setting!r}.") from None
    try:
        return kind(**{**settings, **numbers})
    except TypeError:
        raise BadInputError(f"transport {name!r} needs a value, as in {name}:0.5.") from None


def load_policy(text: str, mdp: MDP) -> Floats:
    """A policy per choice: the word uniform, or a .npy, .npz (entry policy) or text file."""
    if text == "uniform":
        return mdp.uniform_policy()
    import warnings

    from ..archives import read_array, read_arrays
    from ..damage import DamagedFileError, reading

    path = Path(text)
    if not path.exists():
        raise BadInputError(f"{text}: no such file of a policy; the uniform one is the word uniform.")
    with reading(path, "a policy"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty text file: check_policy says it better
        if path.suffix == ".npz":
            arrays = read_arrays(path)
            if "policy" not in arrays:
                raise DamagedFileError(f"{path}: has no entry 'policy'.")
            policy = arrays["policy"]
        elif path.suffix == ".npy":
            policy = read_array(path.read_bytes(), path)
        else:
            policy = _read_text_policy(path)
    try:
        return mdp.check_policy(policy)
    except ValueError as error:
        raise BadInputError(f"{text}: {error}") from None


def _read_text_policy(path: Path) -> Array:
    """Numbers, or names of actions one a line."""
    import numpy as np

    words = path.read_text(encoding="utf-8").replace(",", " ").split("\n")
    rows = [line.split() for line in words if line.strip() and not line.lstrip().startswith("#")]
    try:
        return np.array([[float(word) for word in row] for row in rows]).squeeze() if rows else np.empty(0)
    except ValueError:
        return np.array([line.strip() for line in words if line.strip()], dtype=str)


def check_output(path: Path, *inputs: object, ending: str | None = None) -> None:
    """Refuse, before any work is done, an output that cannot be written, is an input, or has another ending."""
    import tempfile

    if path.is_dir():
        raise BadInputError(f"{path}: is a folder.")
    if ending is not None and path.suffix != ending and (path.is_file() or not path.exists()):
        raise BadInputError(f"{path}: what is written is an {ending} file; give a name that ends so.")
    for given in inputs:
        if given is not None and Path(str(given)).is_file() and path.exists() and path.samefile(str(given)):
            raise BadInputError(f"{path}: is read from, so it is not written to; give another name.")
    if path.exists() and not path.is_file():
        return  # a pipe or a device
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror}).") from None


def aggregation_rule(eps: float | None, rule: str | None, k: int | None, seed: int) -> EpsilonCover | KMedoids | None:
    """The rule of aggregation that was asked for; None where none was."""
    from ..aggregation import EpsilonCover, KMedoids

    if eps is not None and k is not None:
        raise BadInputError("give --eps or --k, not both.")
    if k is not None:
        if rule is not None:
            raise BadInputError("--rule is for --eps; --k makes classes by k-medoids.")
        return KMedoids(k, seed)
    if eps is None and rule is None:
        return None
    return EpsilonCover(eps) if rule is None else EpsilonCover(eps, rule)


def small_model_rule(size: int, *others: object) -> SmallModel:
    """The aggregation by a small model; refuses other rules beside it."""
    from ..aggregation import SmallModel

    if any(one is not None for one in others):
        raise BadInputError("give --small, --k or --eps (with --rule), one of them.")
    if size < 1:
        raise BadInputError(f"--small must be at least 1; got {size}.")
    return SmallModel(size)


def parse_step_size(text: str) -> StepSize:
    """A number, decay:POWER,FLOOR, or theory[:ALPHA_BAR]."""
    from ..schedules import Constant, PowerDecay, Theoretical

    kind, _, rest = text.partition(":")
    try:
        if kind == "decay":
            return PowerDecay(*(float(part) for part in rest.split(","))) if rest else PowerDecay()
        if kind == "theory":
            return Theoretical(float(rest)) if rest else Theoretical()
        number = float(text)
    except (TypeError, ValueError) as error:
        if "must be" in str(error):
            raise BadInputError(f"--alpha {text}: {error}") from None
        raise BadInputError(
            f"--alpha {text}: give a number in (0, 1], decay:POWER,FLOOR or theory[:ALPHA_BAR]."
        ) from None
    return Constant(number)


def parse_band(text: str) -> tuple[float, float] | None:
    """None, or LOW,HIGH."""
    if text == "none":
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise BadInputError(f"--noise {text}: give LOW,HIGH or none.") from None
    return low, high
