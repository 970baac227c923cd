"""Options of the command line from the fields of settings: their names, types, defaults and help stand there alone.

Most fields are options as they are. Some need a text form, and some are several options; these are listed here.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from ..kinds import Keywords
from ..metric.settings import MetricSettings
from ..policy.settings import PolicySettings
from .inputs import aggregation_rule, parse_band, parse_step_size, parse_transport, small_model_rule

Settings = TypeVar("Settings", PolicySettings, MetricSettings)


class Text(NamedTuple):
    """An option that stands for a field in words of its own."""

    name: str
    kind: type
    help: str
    default: str | None = None  # in words
    hyphens: bool = False  # whether its values may begin with a hyphen
    negative: str | None = None


class Form(NamedTuple):
    """How a field is given on the command line: its options, and what makes its value of them (None: not given)."""

    options: tuple[Text, ...]
    parse: Callable[..., object]


def _as_given(value: object) -> object:
    return value


_TRANSPORT = Form(
    (Text("transport", str, "exact[:p], sinkhorn:REG, kl:RADIUS, independent[:p]; settings as ,name=value", "exact"),),
    lambda text: None if text is None else parse_transport(text),
)
_FORMS: dict[type, dict[str, Form]] = {
    PolicySettings: {
        "transport": _TRANSPORT,
        "aggregation": Form(
            (
                Text("eps", float, "ε of the aggregation", "1 % of the largest possible distance"),
                Text("rule", str, "radius (the paper's Algorithm 1) or diameter (all pairs within 2ε)", "radius"),
                Text("k", int, "aggregate into this many classes by k-medoids instead"),
                Text("small", int, "aggregate by a small model of so many states, without distances of all pairs"),
            ),
            aggregation_rule,
        ),
        "step_size": Form(
            (Text("alpha", str, "step size: a number, decay:POWER,FLOOR or theory[:ALPHA_BAR]", "1", hyphens=True),),
            lambda text: None if text is None else parse_step_size(text),
        ),
        "restart_metric": Form(
            (Text("naive", bool, "start the metric from 0 at every policy", negative=""),), _as_given
        ),
        "greedy_noise": Form(
            (Text("noise", str, "band LOW,HIGH for the error of greedy policies, or none", "none", hyphens=True),),
            lambda text: None if text is None else parse_band(text),
        ),
    },
    MetricSettings: {
        "transport": _TRANSPORT,
        "respect": Form(
            (
                Text(
                    "respect",
                    str,
                    "labels of states that keep states apart, separated by commas",
                    "all but init and deadlock",
                ),
            ),
            lambda text: None if text is None else [name for name in text.split(",") if name],
        ),
    },
}


def documented(settings: type) -> dict[str, str]:
    """What the docstring of settings says of each field."""
    lines = (settings.__doc__ or "").split("Attributes:")[1].rstrip().split("\n")[1:]
    said: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        head, colon, text = line.strip().partition(": ")
        if line.startswith(" " * 12):
            for name in names:
                said[name] += " " + line.strip()
        elif colon:
            names = [name.strip() for name in head.split(",")]
            said.update(dict.fromkeys(names, text))
    return said


def _plain_type(hint: Any) -> type:
    """The type of an option's value: no None, and words for words that are listed."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    return type(get_args(hint)[0]) if get_origin(hint) is Literal else hint


def _as_text(field: dataclasses.Field[object], hint: object, said: str) -> Text:
    """A field as an option: what is said of it, and its default in words."""
    what, _, otherwise = said.replace("`", "").replace('"', "").rstrip(".").partition("; None for ")
    default = otherwise or None
    if isinstance(field.default, bool):
        default = "yes" if field.default else "no"
    elif field.default not in (None, dataclasses.MISSING):
        default = str(field.default)
    return Text(field.name, _plain_type(hint), what, default)


def options_of(settings: type, name: str) -> Any:
    """A dataclass of options for settings; what is not given is None, and left to the settings."""
    said, hints, forms = documented(settings), get_type_hints(settings), _FORMS[settings]
    fields: list[tuple[str, object, object]] = []
    for field in dataclasses.fields(settings):
        own = Form((_as_text(field, hints[field.name], said[field.name]),), _as_given)
        for text in forms.get(field.name, own).options:
            help_text = text.help + (f" (default {text.default})." if text.default is not None else ".")
            parameter = Parameter(
                help=help_text,
                allow_leading_hyphen=text.hyphens,
                negative=text.negative,
                name=f"--{_dashed(text.name)}",
            )
            fields.append((text.name, Annotated[text.kind | None, parameter], dataclasses.field(default=None)))
    made = dataclasses.make_dataclass(name, fields, frozen=True, kw_only=True, namespace={"__module__": __name__})
    return Parameter(name="*")(made)


def settings_from(settings: type[Settings], options: Any) -> Settings:
    """The settings that options stand for."""
    chosen: Keywords = {}
    for field in dataclasses.fields(settings):
        form = _FORMS[settings].get(field.name)
        if form is None:
            chosen[field.name] = getattr(options, field.name)
        elif form.parse is aggregation_rule:
            chosen[field.name] = (
                aggregation_rule(options.eps, options.rule, options.k, options.seed or 0)
                if options.small is None
                else small_model_rule(options.small, options.eps, options.rule, options.k)
            )
        else:
            chosen[field.name] = form.parse(*(getattr(options, text.name) for text in form.options))
    return settings(**{name: value for name, value in chosen.items() if value is not None})


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def option_names() -> Mapping[str, str]:
    """What arguments of functions are called on the command line."""
    data = ("delta", "reward_range", "exact_rewards", "successors", "unseen", "states", "actions")
    names = {"gamma": "--gamma", **{name: f"--{_dashed(name)}" for name in data}}
    names |= {"n_states": "--states", "n_actions": "--actions"}
    names |= {name: f"--{name}" for name in ("size", "workers", "threads", "pairs", "seconds", "store")}
    for settings, forms in _FORMS.items():
        for field in dataclasses.fields(settings):
            options = forms[field.name].options if field.name in forms else ()
            names[field.name] = f"--{_dashed(options[0].name if options else field.name)}"
            names.update({text.name: f"--{_dashed(text.name)}" for text in options})
    return names


PolicyOptions = options_of(PolicySettings, "PolicyOptions")
MetricOptions = options_of(MetricSettings, "MetricOptions")
