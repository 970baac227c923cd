"""Conservative policy updates: each stays near the last policy, in total variation and in every state.

TV(π, π')(s) = max over sets of actions |π(A|s) − π'(A|s)| = ½ Σ_a |π(a|s) − π'(a|s)|. The paper's lemma bounds how far
the metric moves by the largest TV over the states (`certificates.metric_change`), so that is what is limited here, and
not a mean over the states that happened to be seen.

| update | TV of a step | why |
|---|---|---|
| `SnapshotMixture` | at most α | π' = (1 − α) π + α π_g exactly |
| `MirrorStep` | at most max_tv | a proof (see the class) |
| `Distilled` | measured | a network is trained onto a mixture; nothing bounds what it does elsewhere |
| `KLPenalty` | measured | heuristic: a penalty on the mean KL bounds neither the mean TV nor the largest |
"""

from __future__ import annotations

import copy
import math
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution

from ..checks import check_number, check_whole

Policy: TypeAlias = "nn.Module | Tensor"
_SUM_TOLERANCE = 1e-4  # of probabilities in float32


class SoftmaxPolicy(nn.Module):
    """A policy over discrete actions from a network's logits: π(a|o) = softmax(net(o))_a."""

    def __init__(self, net: nn.Module) -> None:
        """Wrap a network whose output is one logit an action [B, A]."""
        super().__init__()
        self.net = net

    def forward(self, observations: Tensor) -> Tensor:
        """Probabilities [B, A]."""
        return torch.softmax(self.net(observations), dim=-1)


def checked_probabilities(answer: object, what: str) -> Tensor:
    """Probabilities of discrete actions [..., A]; refuses densities and what does not sum to 1."""
    if isinstance(answer, Categorical):
        answer = answer.probs
    if isinstance(answer, Distribution):
        raise TypeError(
            f"{what}: {type(answer).__name__} is over continuous actions; mixtures and mirror steps need discrete ones "
            "(probabilities [B, A], or a torch Categorical). Discretise the actions, or use KLPenalty."
        )
    if not isinstance(answer, Tensor) or answer.ndim < 1 or not answer.dtype.is_floating_point:
        raise TypeError(f"{what}: must be probabilities of discrete actions [..., A]; got {type(answer).__name__}.")
    off = (answer.sum(-1) - 1.0).abs()
    if not bool((answer >= 0.0).all()) or not bool((off <= _SUM_TOLERANCE).all()):
        raise ValueError(
            f"{what}: probabilities must not be negative and must sum to 1; sums are off by up to "
            f"{float(off.max()):.3g}. Wrap a network of logits as SoftmaxPolicy(net)."
        )
    return answer


def total_variation(first: Tensor, second: Tensor) -> Tensor:
    """½ Σ_a |π(a) − π'(a)| over the last axis."""
    return 0.5 * (first - second).abs().sum(-1)


def snapshot(policy: Policy) -> Policy:
    """A copy of a policy that does not change any more."""
    if isinstance(policy, nn.Module):
        return copy.deepcopy(policy).eval().requires_grad_(False)
    if isinstance(policy, Tensor):
        if policy.ndim != 2:
            raise ValueError(f"policy: a table has a row for each state [S, A]; got shape {list(policy.shape)}.")
        return checked_probabilities(policy.detach().clone(), "policy")
    raise TypeError(
        "policy: must be an nn.Module that gives probabilities, or a table of them [S, A]; got "
        f"{type(policy).__name__}. Other callables cannot be copied with what they depend on."
    )


def answer_of(policy: Policy, observations: Tensor | None) -> Tensor:
    """Probabilities of a policy: of a module's observations, or of a table's rows."""
    if isinstance(policy, Tensor):
        return policy if observations is None else policy[observations]
    if observations is None:
        raise TypeError("observations: a policy that is a network needs some; only tables have all states.")
    return checked_probabilities(policy(observations), "policy")


class SnapshotMixture:
    """The paper's conservative update, exactly: π_{k+1} = (1 − α) π_k + α π_g, as a weighted set of frozen policies.

    TV(π_k, π_{k+1}) = α TV(π_k, π_g) ≤ α in every state. Weights fall by 1 − α a step, so some 5/α snapshots are all
    that matter. With `keep` there are no more than so many: the lightest but for the newest is dropped, and the one
    after it takes over its weight w, so that old policies are forgotten as fast as without. That moves the mixture by
    at most w, and earlier moves shrink like everything else: `tv_dropped` ← (1 − α)·tv_dropped + w bounds the TV from
    the mixture that drops nothing, in every state. It says little where keep is not above some 1/α; then there is
    `Distilled`.

    Attributes: alpha, keep, weights (of the snapshots, oldest first), tv_dropped, tv_step (bound on the last step: α
    and what was dropped in it).

    Memory: a copy of the network for each snapshot. Cost of an answer: one pass through each.
    """

    def __init__(self, alpha: float, policy: Policy, *, keep: int | None = None) -> None:
        """Begin at a policy.

        Args:
            alpha: step size in (0, 1].
            policy: π_0, an nn.Module from observations to probabilities [B, A] (see `SoftmaxPolicy`), or a table [S,
                A]. Snapshots are all of one kind.
            keep: how many snapshots to keep, at least 2; None for all.
        """
        self.alpha = checked_alpha(alpha)
        if keep is not None and check_whole("keep", keep) < 2:
            raise ValueError(f"keep must be at least 2, an old policy and the new one; got {keep}.")
        self.keep, self.tv_dropped, self.tv_step = keep, 0.0, 0.0
        self._parts: list[tuple[float, Policy]] = [(1.0, snapshot(policy))]

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of the snapshots; they sum to 1."""
        return tuple(weight for weight, _ in self._parts)

    def update(self, policy: Policy, alpha: float | None = None) -> None:
        """Mix in a snapshot of `policy` (π_g), by `alpha` where it is not the usual one."""
        step = self.alpha if alpha is None else checked_alpha(alpha)
        new = snapshot(policy)
        self._refuse_other_kinds(new)
        parts = [((1.0 - step) * weight, old) for weight, old in self._parts]
        parts = [*((weight, old) for weight, old in parts if weight > 0.0), (step, new)]
        lost = 0.0
        while self.keep is not None and len(parts) > self.keep:
            lightest = min(range(len(parts) - 1), key=lambda k: parts[k][0])
            weight, _ = parts.pop(lightest)
            parts[lightest] = weight + parts[lightest][0], parts[lightest][1]
            lost += weight
        total = math.fsum(weight for weight, _ in parts)
        self._parts = [(weight / total, old) for weight, old in parts]
        self.tv_dropped = min((1.0 - step) * self.tv_dropped + lost, 1.0)
        self.tv_step = min(step + lost, 1.0)

    def _refuse_other_kinds(self, new: Policy) -> None:
        """Refuse a table of another shape, and a table beside networks: neither is broadcast."""
        kinds = [list(x.shape) if isinstance(x, Tensor) else "a network" for x in (self._parts[0][1], new)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"policy: must be of one kind with those before, {kinds[0]}; got {kinds[1]}.")

    def __call__(self, observations: Tensor | None = None) -> Tensor:
        """π(a|o) [B, A]; for tables `observations` are numbers of states, None for all of them."""
        with torch.no_grad():
            answers = (weight * answer_of(policy, observations) for weight, policy in self._parts)
            total = next(answers)
            for answer in answers:
                if answer.shape != total.shape:
                    raise ValueError(f"policy: answers {list(answer.shape)}, and others before {list(total.shape)}.")
                total = total + answer
            return total

    def sample(self, observations: Tensor | None = None, *, generator: torch.Generator | None = None) -> Tensor:
        """Actions [B], drawn from the mixture in each state anew."""
        return torch.multinomial(self(observations), 1, generator=generator)[..., 0]


def checked_alpha(alpha: float) -> float:
    """A step size in (0, 1]."""
    if not 0.0 < check_number("alpha", alpha) <= 1.0:
        raise ValueError(f"alpha must be in (0, 1]; got {alpha}.")
    return float(alpha)
