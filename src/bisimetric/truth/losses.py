"""The losses of the truth table by name."""

from __future__ import annotations

from dataclasses import replace

from .. import learn
from ..learn import AllPairs, Categorical, GaussianW2, MeanRewards, MetricLoss, Norm
from ..learn.published import Loss


def exact_loss(name: str, gamma: float) -> Loss:
    """A loss for a known model: mean rewards, and couplings between true next-state distributions."""
    if name == "norm":
        return MetricLoss(Norm(1.0), Categorical(), gamma, rewards=MeanRewards())
    loss = sampled_loss(name, gamma)
    if not isinstance(loss, MetricLoss):
        return loss
    return replace(loss, rewards=MeanRewards(), pairs=AllPairs())


def sampled_loss(name: str, gamma: float) -> Loss:
    """A loss for transitions; as its paper has it, or (…-published) as its public code does."""
    if name == "norm":
        return MetricLoss(Norm(2.0), GaussianW2(), gamma)
    method, _, published = name.partition("-")
    made: Loss = getattr(learn, method)(gamma, as_published=bool(published))
    return made
