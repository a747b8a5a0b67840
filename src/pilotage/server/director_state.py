"""The iterations of this server's director, for the duty that runs them and the route that explains them."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.core.secret_source import SecretSource
from pilotage.services.director.demand import Iteration
from pilotage.wire.director import SEEDS


def new_seed(secrets: SecretSource) -> int:
    return secrets.randbelow(SEEDS)


@dataclass(frozen=True, slots=True)
class ActedIteration:
    """An iteration whose orders were given to the CEs."""

    number: int
    seed: int
    work: Iteration
    pilots: int
    """Pilots that were ordered."""


@dataclass(slots=True)
class DirectorState:
    """The last iteration of this server, and the seed of its next one."""

    next_seed: int
    last: ActedIteration | None = None
    """None: this server has not run an iteration since it started."""
