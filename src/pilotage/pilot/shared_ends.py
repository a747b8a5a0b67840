"""The end of a payload that may be the end of its whole pilot.

A batch system that ends a pilot kills all its processes, and may reach the payload first. If the pilot reported this
end at once, the job would fail. It runs again if the pilot is lost without a report.
"""

from __future__ import annotations

import signal

from pilotage.wire.pilot import Finish

SHARED_END_GRACE = 1.0
"""Seconds until a doubtful end is reported."""
_SHELL_OFFSET = 128
"""A shell ends with this plus the number of the signal that ended its command."""


def is_doubtful(finish: Finish) -> bool:
    """Whether a process that is not the pilot may have killed the payload, or the last command of its shell."""
    ended_by = finish.signal or (finish.exit_code or 0) - _SHELL_OFFSET
    return not finish.failure and ended_by in (signal.SIGKILL, signal.SIGTERM)
