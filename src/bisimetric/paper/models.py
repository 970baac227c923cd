"""The MDPs of the experiments, in the size of a profile and with the choices of a variant."""

from __future__ import annotations

from .jobs import Problem
from .settings import Profile, Variant

EPS = {"first": 0.1, "second": 0.04, "third": 0.1}


def _sizes(profile: Profile, variant: Variant, seed: int, gamma: float) -> dict[str, float]:
    per_class = profile.n_states // profile.n_classes
    return {
        "n_states": profile.n_states,
        "n_classes": profile.n_classes,
        "gamma": gamma,
        "seed": seed,
        "concentration": variant.dirichlet(per_class),
    }


def first(profile: Profile, variant: Variant, seed: int, *, gamma: float = 0.9, mixing: float = 0.0) -> Problem:
    """Action 0 advances, action 1 goes back; `mixing` perturbs P with random rows."""
    return Problem.of("chain", **_sizes(profile, variant, seed, gamma), mixing=mixing)


def second(profile: Profile, variant: Variant, seed: int, *, gamma: float = 0.9) -> Problem:
    """Dense rewards; the other action stays in the class."""
    return Problem.of("staircase", **_sizes(profile, variant, seed, gamma), advance=variant.advance)


def third(profile: Profile, variant: Variant, seed: int, *, gamma: float = 0.9) -> Problem:
    """Ten actions, random detours."""
    return Problem.of("detours", **_sizes(profile, variant, seed, gamma))


def garnet(profile: Profile, seed: int) -> Problem:
    """Random sparse MDPs, where a metric carries more than values."""
    return Problem.of("garnet", n_states=profile.n_states, n_actions=4, branching=5, gamma=0.9, seed=seed)


BUILD = {"first": first, "second": second, "third": third}
