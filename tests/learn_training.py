"""Training of free embeddings (a vector for each state) on exact models, and models whose metrics heads represent."""

from __future__ import annotations

import numpy as np
import torch

import bisimetric as bm
from bisimetric import learn

torch.set_num_threads(1)


def exact(chain: bm.Chain) -> tuple[torch.Tensor, learn.TransitionRows, torch.Tensor]:
    """(rewards, transition probabilities, no terminals) of a chain, a state for each row of the batch."""
    reward = torch.tensor(np.array(chain.rewards))
    return reward, learn.TransitionRows.of(chain), torch.zeros(chain.n_states, dtype=torch.bool)


def fit(loss, chain: bm.Chain, dim: int, *, steps: int = 2000, lr: float = 0.03, seed: int = 0, layer=None):
    """Embeddings [S, D] trained with Adam and a falling rate, next states known exactly; `layer` is the last one."""
    generator = torch.Generator().manual_seed(seed)
    free = (0.3 * torch.randn(chain.n_states, dim, dtype=torch.float64, generator=generator)).requires_grad_()
    reward, rows, done = exact(chain)
    optimiser = torch.optim.Adam([free], lr=lr)
    for k in range(steps):
        optimiser.param_groups[0]["lr"] = lr * (1.0 - k / steps) + 1e-6
        z = free if layer is None else layer(free)
        value, _ = loss(z, z.detach(), reward, learn.CategoricalNext(rows, z.detach()), done, generator=generator)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    return (free if layer is None else layer(free)).detach()


def chain_of(P, R, gamma=0.8) -> bm.Chain:
    return bm.Chain.from_arrays(np.asarray(P, float), np.asarray(R, float), gamma)


def corridor(n: int = 6, gamma: float = 0.8, reward: float = 0.1) -> bm.Chain:
    """States on a line, each going one to the right, rewards rising: values, and so distances, lie on a line."""
    return chain_of(np.eye(n)[np.minimum(np.arange(n) + 1, n - 1)], reward * np.arange(n), gamma)


def mixing(seed: int = 0, n: int = 4, gamma: float = 0.8, reward: float = 0.1) -> bm.Chain:
    """Dense random rows: a state is far from itself under independent coupling, and states are near one another."""
    rng = np.random.default_rng(seed)
    return chain_of(rng.dirichlet(np.ones(n), size=n), reward * rng.random(n), gamma)
