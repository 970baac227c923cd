"""Sizes of the truth table and of its experiments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """Seeds, models, and how long encoders are trained. `quick` has fewer of all.

    table_steps are optimiser steps of a cell of the truth table, samples the transitions of its cells without a model;
    drift has policies, each learned for so many optimiser steps; couplings have seconds (CPU) that are shared out.
    """

    name: str
    seeds: int
    models: tuple[str, ...]
    table_steps: int
    samples: int
    policies: int
    steps_a_policy: int
    distractor_steps: int
    distractor_transitions: int
    coupling_seconds: float

    @property
    def all_seeds(self) -> range:
        return range(self.seeds)


MODELS = ("chain", "staircase", "detours", "garnet", "copies", "distractors", "lake", "taxi")
QUICK = Profile("quick", 3, ("garnet", "copies", "lake"), 150, 5_000, 16, 20, 150, 1_000, 0.5)
FULL = Profile("full", 10, MODELS, 400, 20_000, 40, 15, 600, 4_000, 0.4)
PROFILES = {profile.name: profile for profile in (QUICK, FULL)}

LOSSES = ("norm", "dbc", "dbc-published", "mico", "ksme", "simsr")  # norm: Norm(1) with exact transport
ENCODERS = ("table", "network")
DATA = ("exact", "samples")
ALPHAS = (1.0, 0.25, 0.05, 0.0)  # 0: the policy stays, and only learning is left
DRIFT_MODELS = ("garnet", "chain")
METHODS = ("none", "layernorm", "self-prediction", "norm", "dbc", "mico", "ksme", "simsr")
METRIC_METHODS = METHODS[3:]
WEIGHT, LIGHT = 0.5, 0.05  # of an auxiliary loss beside the Q loss
COUPLINGS = ("independent", "gaussian", "particles", "debiased", "categorical")
