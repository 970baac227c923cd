"""Small models in place of large ones, certified after the fact."""

from .abstract import Abstraction, NoCoverError, abstract
from .cross import Cross, cross

__all__ = ["Abstraction", "Cross", "NoCoverError", "abstract", "cross"]
