"""Finite Markov decision processes and Markov chains with rewards: the only place that validates data."""

from ..kinds import Floats, Ints
from .chain import Chain
from .distributions import Distributions, ModelError, rises
from .mdp import MDP

__all__ = ["MDP", "Chain", "Distributions", "Floats", "Ints", "ModelError", "rises"]
