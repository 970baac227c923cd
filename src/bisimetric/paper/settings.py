"""Sizes of the experiments, and the choices that the paper leaves open."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from ..aggregation import EpsilonCover
from ..transport import Exact, Independent, Sinkhorn, Transport

ALPHAS = (1.0, 2.0**-1, 2.0**-2, 2.0**-4, 2.0**-6)
NOISE = (0.05, 0.1)
SWEEPS = 28  # n of the theorem at γ = 0.9
EARLY_STOP = 1e-3


@dataclass(frozen=True)
class Profile:
    """Sizes: states and classes, seeds, steps. `quick` has fewer states, classes, seeds and steps."""

    name: str
    n_states: int
    n_classes: int
    seeds: int
    steps: int  # of most figures
    fixed_steps: int  # of the figures with fixed step sizes, of which small ones take long to settle
    slow_steps: int  # of the figures with slow runs: dense models, high orders
    extra_steps: int  # of the figures beyond the paper
    long_steps: int  # of the value functions
    timed_steps: int
    timed_seeds: int
    pairs: tuple[int, int]  # distributions of low and of high entropy in a box of the sharpness figure
    perturbed_exact: bool  # whether exact transport runs on perturbed (dense) models too

    @property
    def medoids(self) -> int:
        """Budget: half as many classes again as there are (30 for 20)."""
        return 3 * self.n_classes // 2

    @property
    def all_seeds(self) -> range:
        return range(self.seeds)


QUICK = Profile("quick", 60, 12, 3, 150, 150, 20, 60, 300, 50, 3, (10, 20), perturbed_exact=True)
FULL = Profile("full", 200, 20, 10, 300, 400, 300, 300, 1000, 300, 3, (20, 50), perturbed_exact=False)
PROFILES = {profile.name: profile for profile in (QUICK, FULL)}


@dataclass(frozen=True)
class Variant:
    """Choices that the paper's text and its authors' runs make differently.

    rule: "radius" (the text's Algorithm 1) or "diameter". concentration: of the Dirichlet distribution inside a
    class of N states, "1" (the text: uniform) or "1/N". cost: "sharp" or "value" of the regularised plan, or "exact"
    for λ = 0 wherever λ itself is not what is swept. advance: which action advances on the second MDP.
    """

    rule: str = "radius"
    concentration: str = "1"
    cost: str = "sharp"
    advance: str = "first"

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}.")

    def dirichlet(self, per_class: int) -> float:
        """The concentration for classes of so many states."""
        return 1.0 if self.concentration == "1" else 1.0 / per_class

    def cover(self, eps: float) -> EpsilonCover:
        return EpsilonCover(eps, self.rule)

    def transport(
        self, reg: float = 1.0, p: float = 1.0, *, swept: bool = False, marginal_tol: float = 1e-6
    ) -> Transport:
        """λ = reg with a zero diagonal, as in the paper's runs; 0 is exact and ∞ the independent coupling."""
        if reg == 0.0 or (self.cost == "exact" and not swept):
            return Exact(p)
        if math.isinf(reg):
            return Independent(p, diagonal="zero")
        cost = "value" if self.cost == "value" else "sharp"
        return Sinkhorn(reg, p, cost=cost, diagonal="zero", marginal_tol=marginal_tol)

    def describe(self) -> dict[str, str]:
        return asdict(self)


_CHOICES = {
    "rule": ("radius", "diameter"),
    "concentration": ("1", "1/N"),
    "cost": ("sharp", "value", "exact"),
    "advance": ("first", "alternating"),
}
TEXT = Variant()
AUTHORS = Variant(rule="diameter", concentration="1/N", advance="alternating")
