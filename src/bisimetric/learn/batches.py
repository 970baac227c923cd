"""A batch of transitions: checked, never broadcast, with terminal states led to an absorbing one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from torch import Tensor

from .couplings import kind_of
from .nexts import CategoricalNext, GaussianNext, Next, TransitionRows
from .rewards import Reward, RewardDistance

_SUM_TOLERANCE = 1e-4  # of probabilities in single precision


@dataclass(frozen=True)
class Batch:
    """z [B, D] and its targets, the tensors [B] of rewards, and what is known of next states."""

    z: Tensor
    z_target: Tensor
    reward: tuple[Tensor, ...]
    following: Next

    def __len__(self) -> int:
        return len(self.z)


def checked(
    z: Tensor, z_target: Tensor | None, reward: Reward, following: Next, done: Tensor, rewards: RewardDistance
) -> Batch:
    """A batch from a loss's arguments; refuses shapes, devices and types that do not fit together."""
    if not isinstance(z, Tensor) or z.ndim != 2 or not z.dtype.is_floating_point:
        raise ValueError(f"z: embeddings must be a tensor of real numbers [B, D]; got {_said(z)}.")
    if z.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"z: embeddings must be of single or double precision; got {z.dtype}. Use z.float().")
    B = len(z)
    if B < 2:
        raise ValueError(f"z: a loss on pairs needs at least two states; got a batch of {B}.")
    if z_target is None:
        z_target = z
    like = {"z_target": z_target}
    if not isinstance(z_target, Tensor) or z_target.shape != z.shape:
        raise ValueError(f"z_target: must have the shape of z, {list(z.shape)}; got {_said(z_target)}.")
    values = rewards.check(reward)
    for value in values:
        if not isinstance(value, Tensor) or value.shape != (B,):
            remedy = " Use .squeeze(-1)." if isinstance(value, Tensor) and value.shape == (B, 1) else ""
            raise ValueError(f"reward: must have shape [{B}]; got {_said(value)}.{remedy}")
        like["reward"] = value
    if isinstance(following, Tensor) and following.ndim == 2:
        following = following[:, None, :]
    like |= _parts(following, z)
    for name, tensor in like.items():
        _refuse_others(name, tensor, z)
    _refuse_values(following)
    _refuse_ends(done, following, z)
    return Batch(z, z_target.detach(), tuple(value.detach() for value in values), _detached(following))


def _refuse_others(name: str, tensor: Tensor, z: Tensor) -> None:
    """Refuse what is of another type or on another device than z."""
    if tensor.device != z.device or tensor.dtype != z.dtype:
        raise ValueError(
            f"{name}: is {tensor.dtype} on {tensor.device}, but z is {z.dtype} on {z.device}. "
            f"Use {name}.to(z.device, z.dtype)."
        )


def _refuse_ends(done: Tensor, following: Next, z: Tensor) -> None:
    """Refuse ends that are neither booleans of transitions or samples, nor chances beside a distribution."""
    B, sampled = len(z), isinstance(following, Tensor)
    shapes = [(B,), tuple(following.shape[:2])] if isinstance(following, Tensor) else [(B,)]
    kinds = (torch.bool,) if sampled else (torch.bool, z.dtype)
    if not isinstance(done, Tensor) or tuple(done.shape) not in shapes or done.dtype not in kinds:
        more = f", or of each sample {list(shapes[-1])}" if len(shapes) > 1 else ", or the chance of that as numbers"
        raise ValueError(
            f"done: must be booleans [{B}], whether the transition ended in a terminal state{more}; got {_said(done)}. "
            "Use torch.zeros(B, dtype=torch.bool) where none does (time limits are no terminals)."
        )
    if done.device != z.device:
        raise ValueError(f"done: is on {done.device}, but z is on {z.device}.")
    if done.dtype != torch.bool and not bool(((done >= 0.0) & (done <= 1.0)).all()):
        raise ValueError("done: chances of an end must be between 0 and 1.")


def _said(given: object) -> str:
    if isinstance(given, Tensor):
        return f"{str(given.dtype).removeprefix('torch.')} {list(given.shape)}"
    return "nothing" if given is None else type(given).__name__


def _parts(following: Next, z: Tensor) -> dict[str, Tensor]:
    """The tensors of next states by name, for messages; refuses shapes that do not fit to z."""
    B, D = z.shape
    if isinstance(following, Tensor):
        if following.ndim != 3 or following.shape[0] != B or following.shape[2] != D or following.shape[1] < 1:
            raise ValueError(f"next: samples must be [{B}, {D}] or [{B}, n, {D}]; got {list(following.shape)}.")
        return {"next": following}
    if isinstance(following, GaussianNext):
        for name, value in following._asdict().items():
            if not isinstance(value, Tensor) or value.shape != z.shape:
                raise ValueError(f"next.{name}: must be [{B}, {D}]; got {_said(value)}.")
        return {"next.mean": following.mean, "next.std": following.std}
    if isinstance(following, CategoricalNext):
        probs = following.probs.probs if isinstance(following.probs, TransitionRows) else following.probs
        K = len(following.support) if isinstance(following.support, Tensor) else 0
        tensors = isinstance(following.support, Tensor) and isinstance(probs, Tensor)
        if not tensors or following.support.shape != (K, D) or probs.shape != (B, K):
            raise ValueError(
                f"next: needs probs [{B}, K] and support [K, {D}]; got {_said(probs)} and {_said(following.support)}."
            )
        return {"next.probs": probs, "next.support": following.support}
    raise TypeError(f"next: must be samples, a GaussianNext or a CategoricalNext; got {kind_of(following)}.")


def _refuse_values(following: Next) -> None:
    """Refuse deviations and probabilities that are none; those of a model were checked when they were made."""
    if isinstance(following, GaussianNext) and bool((following.std < 0.0).any()):
        raise ValueError("next.std: standard deviations must not be negative (give exp or softplus of an output).")
    if isinstance(following, CategoricalNext) and isinstance(following.probs, Tensor):
        off = (following.probs.sum(dim=1) - 1.0).abs().max()
        if not bool(off <= _SUM_TOLERANCE) or not bool((following.probs >= 0.0).all()):
            raise ValueError(f"next.probs: rows must be probabilities; sums are off by up to {float(off):.3g}.")


def _detached(following: Next) -> Next:
    if isinstance(following, Tensor):
        return following.detach()
    if isinstance(following, GaussianNext):
        return GaussianNext(following.mean.detach(), following.std.detach())
    probs = following.probs if isinstance(following.probs, TransitionRows) else following.probs.detach()
    return CategoricalNext(probs, following.support.detach())


def with_terminals(batch: Batch, done: Tensor, absorbing: Tensor | None, *, at_origin: bool) -> Batch:
    """The batch with one more state, where terminal transitions lead: it stays there, with reward 0.

    A distribution of next states is that of transitions that go on. Where the end is a matter of chance, the state's
    next ones are a mixture of it and the end, so `done` must be that chance: transports between whole distributions are
    not linear in them, and their mean over ends that were drawn is larger.

    Without an embedding for it (`absorbing` [D]) it lies at the origin, where the head allows that, and is left out
    where nothing ends. An embedding that is learned gets its gradient from the pairs with it.
    """
    if absorbing is None:
        if not bool(done.any()):
            return batch
        if not at_origin:
            raise ValueError(
                "done: transitions end, and with this head the absorbing state has no natural place. Give its "
                "embedding as absorbing= [D] (a torch.nn.Parameter, or what the encoder makes of a blank observation)."
            )
        absorbing = torch.zeros_like(batch.z[0])
    if not isinstance(absorbing, Tensor) or absorbing.shape != batch.z.shape[1:]:
        raise ValueError(f"absorbing: must be one embedding [{batch.z.shape[1]}]; got {_said(absorbing)}.")
    _refuse_others("absorbing", absorbing, batch.z)
    if not bool(torch.isfinite(absorbing).all()):
        raise ValueError("absorbing: must be finite.")
    fixed = absorbing.detach()
    return replace(
        batch,
        z=torch.cat([batch.z, absorbing[None]]),
        z_target=torch.cat([batch.z_target, fixed[None]]),
        reward=tuple(torch.cat([value, torch.zeros_like(value[:1])]) for value in batch.reward),
        following=_led(batch.following, done, fixed),
    )


def _led(following: Next, done: Tensor, absorbing: Tensor) -> Next:
    """Next states with those of terminal transitions, and of one more state, at the absorbing one."""
    if isinstance(following, Tensor):
        ended = torch.where(done.reshape(len(done), -1, 1), absorbing, following)
        return torch.cat([ended, absorbing.expand(1, following.shape[1], -1)])
    if isinstance(following, GaussianNext):
        mean, std = _gaussian_or_end(following, done[:, None], absorbing)
        return GaussianNext(torch.cat([mean, absorbing[None]]), torch.cat([std, torch.zeros_like(std[:1])]))
    if isinstance(following.probs, TransitionRows):
        raise ValueError(
            "next: TransitionRows are a whole model, and there is no state beside it to end in: make terminal states "
            "absorbing in it, and leave out absorbing=."
        )
    ends = done[:, None].to(following.probs)
    probs = torch.cat([(1.0 - ends) * following.probs, ends], dim=1)
    last = torch.zeros_like(probs[:1])
    last[0, -1] = 1.0
    return CategoricalNext(torch.cat([probs, last]), torch.cat([following.support, absorbing[None]]))


def _gaussian_or_end(following: GaussianNext, done: Tensor, absorbing: Tensor) -> GaussianNext:
    """The Gaussian with the moments of the mixture of one and the end."""
    if done.dtype == torch.bool:
        mean = torch.where(done, absorbing, following.mean)
        return GaussianNext(mean, following.std.masked_fill(done, 0.0))
    goes_on, way = 1.0 - done, absorbing - following.mean
    variance = goes_on * following.std.square() + done * goes_on * way.square()
    return GaussianNext(following.mean + done * way, variance.sqrt())


def blame(batch: Batch) -> NoReturn:
    """Say whose numbers made a loss that is not finite."""
    following = batch.following
    parts = {"z": batch.z, "z_target": batch.z_target}
    parts |= {"reward": batch.reward[0]} | {f"reward, part {k}": value for k, value in enumerate(batch.reward[1:], 2)}
    if isinstance(following, Tensor):
        parts["next"] = following
    else:
        parts |= {f"next.{name}": value for name, value in following._asdict().items() if isinstance(value, Tensor)}
    for name, tensor in parts.items():
        bad = (~torch.isfinite(tensor)).nonzero()
        if len(bad):
            place = ", ".join(str(int(k)) for k in bad[0])
            raise ValueError(f"{name}: must be finite; entry [{place}] is {float(tensor[tuple(bad[0])])}.")
    raise ValueError("the loss is not finite, though what it was given is: numbers are too large to be squared.")
