"""Distances of single pairs of states, without the matrix of all pairs."""

from .answers import Answer, Budget, Nearest, QuerySeen
from .query import Query

__all__ = ["Answer", "Budget", "Nearest", "Query", "QuerySeen"]
