"""Published losses as settings of the family: after their papers, or (`as_published=True`) after their public code.

| loss | head | coupling | pairs | what the public code does otherwise |
|---|---|---|---|---|
| `dbc` | `Norm(1)` | `GaussianW2` | `Shuffled` | all of it coordinate by coordinate, see `published.PublishedDBC` |
| `mico` | `Diffuse(0.1)` | `Independent` | `AllPairs` | Huber; D compares with target embeddings; ends are ignored |
| `ksme` | `Kernel(1/(1 − γ))` | `Independent` | `AllPairs` | the same three, Huber in units of the kernel |
| `simsr` | `Cosine()` | `Independent` | `AllPairs` | Huber; predictions are not put on the sphere; ends are ignored |

In the public codes a pair of a state with itself has the same sample on both sides (`AllPairs(diagonal=True)`); here
such pairs are left out where there is one sample of a state. All four take sampled rewards. The papers say nothing of
terminal states; here they lead to an absorbing one.
"""

from __future__ import annotations

from typing import Literal, overload

from .couplings import Independent
from .gaussian import GaussianW2
from .heads import Cosine, Diffuse, Kernel, Norm
from .loss import MetricLoss, checked_discount
from .pairs import AllPairs, Shuffled
from .penalties import Huber
from .published import PublishedDBC


@overload
def dbc(
    gamma: float, *, reward_span: float | None = None, reward_weight: float = 1.0, as_published: Literal[False] = False
) -> MetricLoss: ...
@overload
def dbc(
    gamma: float, *, reward_span: float | None = None, reward_weight: float = 1.0, as_published: Literal[True]
) -> PublishedDBC: ...
def dbc(
    gamma: float, *, reward_span: float | None = None, reward_weight: float = 1.0, as_published: bool = False
) -> MetricLoss | PublishedDBC:
    """Deep bisimulation for control: (‖z_i − z_j‖₁ − |r_i − r_j| − γ W₂(N_i, N_j))² over shuffled pairs.

    Ref.: Zhang, McAllister, Calandra, Gal and Levine, Learning invariant representations (ICLR 2021). The L1 norm on
    the left and the Euclidean W₂ on the right agree on a line only; `Norm(2)` would make both of one kind.
    As published, each coordinate has a loss of its own (`PublishedDBC`).

    Args:
        gamma: c_T, the discount.
        reward_span: largest minus smallest reward (see `MetricLoss`), for checks and diagnostics.
        reward_weight: c_R.
        as_published: what the public code does.
    """
    if as_published:
        return PublishedDBC(gamma, reward_weight, reward_span=reward_span)
    return MetricLoss(Norm(1.0), GaussianW2(), gamma, reward_weight, pairs=Shuffled(), reward_span=reward_span)


def mico(
    gamma: float,
    *,
    beta: float = 0.1,
    reward_span: float | None = None,
    reward_weight: float = 1.0,
    as_published: bool = False,
) -> MetricLoss:
    """MICo: ((‖φ_x‖² + ‖φ_y‖²)/2 + β θ − |r − r'| − γ U')², U' of sampled next states by the target encoder.

    Ref.: Castro, Kastner, Panangaden and Rowland (NeurIPS 2021). Distances (the part that is not norms) are at most
    β π = 0.314. As published: Huber's penalty, U of an online and a target embedding, and next states beyond the end.

    Args:
        gamma: c_T, the discount (γⁿ for n-step rewards).
        beta: weight of the angle.
        reward_span: largest minus smallest reward (see `MetricLoss`); given, it warns of the ceiling.
        reward_weight: c_R.
        as_published: what the public code does.
    """
    if not as_published:
        return MetricLoss(Diffuse(beta), Independent(), gamma, reward_weight, reward_span=reward_span)
    return MetricLoss(
        Diffuse(beta),
        Independent(),
        gamma,
        reward_weight,
        penalty=Huber(),
        pairs=AllPairs(diagonal=True),
        reward_span=reward_span,
        against="target",
        terminals="ignored",
    )


def ksme(
    gamma: float, *, reward_span: float | None = None, reward_weight: float = 1.0, as_published: bool = False
) -> MetricLoss:
    """KSMe: the kernel k = ⟨φ_x, φ_y⟩ with k = 1 − |r − r'|/2 + γ E k', here as the value U = 2 (1/(1 − γ) − k).

    Ref.: Castro, Kastner, Panangaden and Rowland (TMLR 2023). Its distance ‖φ_x − φ_y‖² is the reduced MICo distance.
    The 1 is for rewards in a range of up to 4 (theirs are clipped to [−1, 1]): then a kernel solves the equation.
    As published: Huber's penalty on k, k of an online and a target embedding, and next states beyond the end.

    Args:
        gamma: c_T, the discount.
        reward_span: largest minus smallest reward (see `MetricLoss`), for checks and diagnostics.
        reward_weight: c_R; with a span of rewards above 4 choose it at most 4/span.
        as_published: what the public code does.
    """
    head = Kernel(1.0 / (1.0 - checked_discount(gamma)))
    if reward_span is not None and reward_weight * reward_span > 4.0:
        raise ValueError(
            f"ksme: 1 − c_R |r − r'|/2 is no kernel for rewards over a range of {reward_span:g}; "
            f"use reward_weight={4.0 / reward_span:.3g} or less."
        )
    if not as_published:
        return MetricLoss(head, Independent(), gamma, reward_weight, reward_span=reward_span)
    return MetricLoss(
        head,
        Independent(),
        gamma,
        reward_weight,
        penalty=Huber(scale=0.5),
        pairs=AllPairs(diagonal=True),
        reward_span=reward_span,
        against="target",
        terminals="ignored",
    )


def simsr(
    gamma: float, *, reward_span: float | None = None, reward_weight: float = 1.0, as_published: bool = False
) -> MetricLoss:
    """SimSR: ((1 − cos(z_i, z_j)) − |r_i − r_j| − γ (1 − cos(z'_i, z'_j)))², z' sampled from a latent model.

    Ref.: Zang, Li and Wang (AAAI 2022). Distances are at most 2. As published: Huber's penalty, 1 − ⟨ẑ_i, ẑ_j⟩ of
    predictions that are not put on the sphere, and next states beyond the end.

    Args:
        gamma: c_T, the discount.
        reward_span: largest minus smallest reward (see `MetricLoss`); given, it warns of the ceiling.
        reward_weight: c_R; (1 − γ)·2/span and less keeps below the ceiling.
        as_published: what the public code does.
    """
    if not as_published:
        return MetricLoss(Cosine(), Independent(), gamma, reward_weight, reward_span=reward_span)
    return MetricLoss(
        Cosine(unit_next=False),
        Independent(),
        gamma,
        reward_weight,
        penalty=Huber(),
        pairs=AllPairs(diagonal=True),
        reward_span=reward_span,
        terminals="ignored",
    )
