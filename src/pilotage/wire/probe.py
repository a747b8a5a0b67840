"""The findings of a pilot that examines its node for `pilotage ce test`. It follows the rules of `wire/pilot.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List

from .limits import Bounds, Instant, Message, Name


@dataclass
class ProbeCheck:
    """One finding of a probe about its node."""

    name: Name
    state: Name
    """ok, warning or failed."""
    text: Message = ""


@dataclass
class ProbeReport:
    """POST /v1/pilot/probe: the findings of a probe, which ends with this message."""

    checks: Annotated[List[ProbeCheck], Bounds(longest=100)] = field(default_factory=list)
    clock: Instant = 0.0
    """Seconds since 1970 by the node's clock. It is compared, and nothing is computed with it."""


@dataclass
class ProbeAnswer:
    """The server has stored the report."""

    stored: bool = True
