"""Private or generic pilots: a private pilot serves one owner and group, a generic one serves everybody."""

from __future__ import annotations

from random import Random

from pilotage.core.policy.director import Director
from pilotage.core.policy.model import PilotType
from pilotage.core.queues.identity import QueueIdentity

PRIVATE: PilotType = "private"
GENERIC: PilotType = "generic"


def required_type(queue: QueueIdentity) -> PilotType | None:
    """The only type that the queue accepts; None: both. ForceGeneric comes before PilotTypes."""
    if queue.force_generic:
        return GENERIC
    return PRIVATE if PRIVATE in queue.pilot_types else None


def choose_type(queue: QueueIdentity, settings: Director, rng: Random) -> PilotType:
    """The type of pilots to submit for `queue` in this iteration. Draws only if the queue accepts both."""
    required = required_type(queue)
    if required is not None:
        return required
    # The document compares the other way round, against its own description of the fraction.
    return PRIVATE if rng.random() < settings.private_pilot_fraction else GENERIC


def type_at(chosen: PilotType, required: PilotType | None, allowed: frozenset[str]) -> PilotType | None:
    """The type for a CE that takes the types `allowed`; None: no pilot for this queue may go there.

    A queue that accepts both types follows the type that the CE takes.
    """
    if chosen in allowed:
        return chosen
    other = GENERIC if chosen == PRIVATE else PRIVATE
    return other if required is None and other in allowed else None
