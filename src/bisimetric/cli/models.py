"""The model behind a MODEL argument, with the options that all commands share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .words import BadInputError, say

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ..kinds import Facts
    from ..model import MDP

Model = Annotated[str, Parameter(help="A model file, problem:NAME?argument=value&…, or gym:ENV.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model is read."""

    gamma: float | None = None
    """Discount, for models that have none of their own (or to change it)."""
    reward: str | None = None
    """Reward model to use, or none for no rewards; a model with several needs one."""
    costs: Annotated[bool, Parameter(negative="")] = False
    """The rewards are costs: change their sign."""
    constants: str | None = None
    """Constants of a PRISM-language or JANI model, such as K=2,N=3."""
    label: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=False)] = ()
    """NAME=EXPRESSION: a new label, from an expression over the variables of the states, as in goal="x=4 & !busy"."""
    absorb: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=False)] = ()
    """Stop where this label holds: such states are never left, and earn nothing."""


NO_OPTIONS = ModelOptions()


def given_options(options: DataclassInstance) -> Facts:
    """Options that were given, as JSON has them."""
    given = {name: value for name, value in asdict(options).items() if value != getattr(type(options)(), name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


_PLACEHOLDER = 0.0  # discount of a model that has none, for work that does not depend on it


@dataclass(frozen=True)
class Loaded:
    """A model as it was read. `gamma` is None where neither the file nor the user gave a discount."""

    mdp: MDP
    gamma: float | None
    costs: bool

    @property
    def reward(self) -> str | None:
        """The name of the rewards in use, for people; None where there are none."""
        mdp = self.mdp
        if mdp.reward_name is None and not mdp.rewards.any():
            return None
        return (mdp.reward_name or "the model's own") + (" (as costs)" if self.costs else "")

    def facts(self) -> Facts:
        """What outputs say of the model."""
        return {"reward": self.reward, "gamma": self.gamma}


def load(spec: str, options: ModelOptions, *, whole: bool = False, discount: bool = True) -> Loaded:
    """Read a model.

    Args:
        spec: problem:…, gym:…, or a file. options: those of the user.
        whole: no reward model need be chosen. discount: whether one is needed.
    """
    mdp, own_gamma = _read(spec, options, discount)
    mdp = _with_reward(spec, mdp, options.reward, whole and not options.costs)
    for text in options.label:
        name, equals, expression = text.partition("=")
        if not equals or not name.strip():
            raise BadInputError(f'--label {text[:60]}: write NAME=EXPRESSION, as in goal="x=4 & !busy".')
        mdp = mdp.with_labels({name.strip(): expression})
        if not mdp.state_labels[name.strip()].any():
            say(f"bisimetric: --label {name.strip()} holds in no state")
    for name in options.absorb:
        mdp = mdp.absorb(name)
    if options.costs:
        mdp = mdp.with_rewards(-mdp.rewards, mdp.reward_name)
    if mdp.rows.moved > 0.0:
        say(f"bisimetric: rows of P were rescaled to sum to 1; their sums were off by up to {mdp.rows.moved:.3g}")
    return Loaded(mdp, mdp.gamma if own_gamma else None, options.costs)


def _read(spec: str, options: ModelOptions, discount: bool) -> tuple[MDP, bool]:
    """(the model, whether its discount is one that somebody gave)."""
    from .. import formats

    gamma = options.gamma
    kind, colon, rest = spec.partition(":")
    if options.constants is not None and colon and kind in ("problem", "gym"):
        raise BadInputError(f"{spec}: --constants are for models in the PRISM language and in JANI.")
    if kind == "problem" and colon:
        from .. import problems

        mdp = problems.from_spec(rest)
        return (mdp if gamma is None else mdp.with_gamma(gamma)), True
    placeholder = None if discount or gamma is not None else _PLACEHOLDER
    if kind == "gym" and colon:
        return _read_gym(rest, placeholder if gamma is None else gamma), gamma is not None
    path = Path(spec)
    if not path.exists():
        raise BadInputError(f"{spec}: no such file (generated models are written problem:NAME or gym:ENV).")
    if path.is_dir():
        raise BadInputError(f"{spec}: is a folder, and a model is a file (bisimetric view shows run folders).")
    if path.suffix == ".npz":
        return formats.read_whole(path, gamma, options.constants or ""), True
    mdp = formats.read_whole(path, placeholder if gamma is None else gamma, options.constants or "")
    return mdp, gamma is not None


def _with_reward(spec: str, mdp: MDP, reward: str | None, whole: bool) -> MDP:
    if reward is not None:
        return mdp.with_reward(None if reward == "none" else reward)
    from .. import formats

    if formats.undecided(mdp) and not whole:
        listed = ", ".join(list(mdp.reward_models)[:12])
        raise BadInputError(
            f"{spec}: has {len(mdp.reward_models)} reward models ({listed}); give --reward NAME, or --reward none."
        )
    return mdp


def _read_gym(text: str, gamma: float | None) -> MDP:
    from urllib.parse import parse_qsl

    from .. import formats

    name, _, query = text.partition("?")
    if gamma is None:
        raise BadInputError(f"gym:{name}: Gymnasium environments have no discount; give --gamma.")
    options: dict[str, bool | int | str] = {}
    for key, value in parse_qsl(query):
        lowered = value.lower()
        options[key] = lowered == "true" if lowered in ("true", "false") else int(value) if value.isdigit() else value
    return formats.from_gymnasium(name, gamma, **options)
