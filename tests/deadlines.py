"""How long a test waits for its event. A wait ends with the event, so only a failure meets its deadline.

`PATIENCE` is the wait for one event. A wait for more work is a multiple of it. A time that a test is about,
such as the lease of a pilot, is no deadline.
"""

from __future__ import annotations

import os

EVENT = 120.0
"""Seconds for one event on a machine that runs nothing but the tests."""
MOST = 5.0
VARIABLE = "PILOTAGE_TEST_PATIENCE"
"""Seconds that a run uses instead. All processes of a run take them from the first one."""


def patience_at(load: float, cores: int) -> float:
    """The wait on a machine with so many processes per core: each gets its part of a core only."""
    return EVENT * min(max(1.0, load / cores), MOST)


PATIENCE = float(
    os.environ.setdefault(VARIABLE, f"{patience_at(os.getloadavg()[0], os.cpu_count() or 1):.0f}")
)
OF_A_TEST = 3 * PATIENCE
"""A test that takes longer hangs."""
