"""Learned metrics: losses that train an encoder's distances, what they converge to, and policy updates that stay near.

The family of losses is L = ρ(D(φ_i, φ_j) − stop_gradient[c_R ΔR + c_T T(D)(P_i, P_j)]). `MetricLoss` has its axes as
parts; `presets` are the published ones; `oracle` has the truth to compare with. Needs PyTorch (the extra `learn`).
"""

from __future__ import annotations

try:
    import torch as _torch
except ModuleNotFoundError as missing:  # pragma: no cover - seen by a process without torch (tests/learn)
    raise ModuleNotFoundError(
        'bisimetric.learn needs PyTorch: pip install "bisimetric[learn]" (or torch>=2.2, in a build for your machine).',
        name="torch",
    ) from missing

from . import oracle
from .couplings import Categorical, Coupling, Independent
from .diagnostics import Diagnostics
from .distilled import Distillation, Distilled, KLPenalty
from .gaussian import GaussianW2
from .heads import Cosine, Diffuse, Head, Kernel, Norm
from .loss import HeadCeilingWarning, MetricLoss
from .mirror import MirrorStep, MirrorUpdate
from .nexts import CategoricalNext, GaussianNext, TransitionRows
from .pairs import AllPairs, Shuffled
from .particles import Particles, transport_of
from .penalties import Huber, Square
from .presets import dbc, ksme, mico, simsr
from .published import PublishedDBC
from .rewards import MeanRewards, RewardMoments, SampledRewards, VarianceCorrected
from .targets import Ball, MovingAverage, Online, norm_bound
from .updates import SnapshotMixture, SoftmaxPolicy, total_variation

del _torch

__all__ = [
    "AllPairs",
    "Ball",
    "Categorical",
    "CategoricalNext",
    "Cosine",
    "Coupling",
    "Diagnostics",
    "Diffuse",
    "Distillation",
    "Distilled",
    "GaussianNext",
    "GaussianW2",
    "Head",
    "HeadCeilingWarning",
    "Huber",
    "Independent",
    "KLPenalty",
    "Kernel",
    "MeanRewards",
    "MetricLoss",
    "MirrorStep",
    "MirrorUpdate",
    "MovingAverage",
    "Norm",
    "Online",
    "Particles",
    "PublishedDBC",
    "RewardMoments",
    "SampledRewards",
    "Shuffled",
    "SnapshotMixture",
    "SoftmaxPolicy",
    "Square",
    "TransitionRows",
    "VarianceCorrected",
    "dbc",
    "ksme",
    "mico",
    "norm_bound",
    "oracle",
    "simsr",
    "total_variation",
    "transport_of",
]
