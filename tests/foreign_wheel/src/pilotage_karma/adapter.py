"""The adapter of CEs of the type karma: processes of this machine."""

from __future__ import annotations

from pilotage.core.policy import Ce
from pilotage.outside.batch.local import LocalBatch
from pilotage.outside.batch.registry import ServerMachine
from pilotage_karma.options import KarmaOptions


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> LocalBatch:
    """The adapter of a CE. Its lane is a variable of its pilots."""
    lane = ce.options_as(KarmaOptions).lane
    return LocalBatch({**machine.environment, "KARMA_LANE": lane}, machine.logs)
