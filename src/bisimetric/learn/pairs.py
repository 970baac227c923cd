"""Which pairs of a batch a loss looks at."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """A choice of pairs."""


@dataclass(frozen=True)
class AllPairs(Pairs):
    """All B² pairs, at once: memory B² + B·D, and permuting the batch changes nothing.

    Args:
        diagonal: whether pairs (i, i) count. None: where the coupling has a true value for them. From one sample a
            state, the independent coupling of a state with itself has none: both sides would be the same sample.
    """

    diagonal: bool | None = None


@dataclass(frozen=True)
class Shuffled(Pairs):
    """B pairs: each state with that of a random place in the batch, as DBC's code does it.

    Noisier by a factor of B for the same work on embeddings. Give `generator=` to the loss for reproducible pairs.
    """

    def partners(self, count: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
        """A random permutation [B], drawn on the generator's device."""
        where = device if generator is None else generator.device
        return torch.randperm(count, generator=generator, device=where).to(device)
