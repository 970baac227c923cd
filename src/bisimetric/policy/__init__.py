"""Approximate policy iteration: one loop (`loop`), runs of it alone (`solve`), side by side (`batch`), in folders (`folder`)."""

from .batch import solve_policies
from .run import PolicyRun, Step
from .settings import PolicySettings
from .solve import solve_policy

__all__ = ["PolicyRun", "PolicySettings", "Step", "solve_policies", "solve_policy"]
