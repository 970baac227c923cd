"""Options for work on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from .models import ModelOptions, load
from .words import BadInputError

if TYPE_CHECKING:
    from ..model import MDP, Chain
    from ..model.parts import ModelParts


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Who does the sweeps."""

    cluster: str | None = None
    """Address of a Dask scheduler, such as tcp://host:8786, whose workers do the sweeps."""
    store: Path | None = None
    """With --cluster: a folder that all workers see; the same command goes on from what is in it."""

    @property
    def where(self) -> dict[str, Any]:
        """As functions want it."""
        if self.store is not None and self.cluster is None:
            raise BadInputError("--store is for work on a cluster; give --cluster too.")
        return {"cluster": self.cluster, "store": self.store}


HERE = ClusterOptions()


def subject(
    spec: str, options: ModelOptions, match: str | None, *, in_parts: bool, cluster: str | None
) -> MDP | Chain | ModelParts:
    """A model, or the chain of its uniform policy where nothing is matched; read whole, or in parts by workers."""
    if not in_parts:
        mdp = load(spec, options).mdp
        return mdp if match else mdp.under(mdp.uniform_policy())
    if cluster is None:
        raise BadInputError("--in-parts is for work on a cluster; give --cluster too.")
    if options.costs or options.label or options.absorb or options.constants:
        raise BadInputError("--in-parts takes a model as its file has it: leave out --costs, --label, --absorb.")
    from ..formats import read_parts

    reward = options.reward
    parts = read_parts(spec, options.gamma, reward="" if reward is None else None if reward == "none" else reward)
    return parts if match else parts.under_uniform()
