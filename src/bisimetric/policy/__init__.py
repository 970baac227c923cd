"""Approximate policy iteration: the loop (`loop`), alone (`solve`), side by side (`batch`), in folders (`folder`)."""

from .batch import solve_policies
from .run import PolicyRun, Step
from .settings import PolicySettings
from .solve import solve_policy

__all__ = ["PolicyRun", "PolicySettings", "Step", "solve_policies", "solve_policy"]
