"""Messages of costs: where the core-seconds of pilots went.

Rules of bodies, instants and errors: wire/__init__.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, List, Literal, Optional

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.ces import CeName
from pilotage.wire.limits import MAX_INSTANT, Bounds


@dataclass
class CostRow:
    """Core-seconds of pilots. Each one is payload, startup, idle or lost."""

    name: str
    """A CE, owner, group or month ("2026-11", UTC). Empty: an owner or group of time that belongs to nobody."""
    payload: float
    """Cores that attempts held."""
    startup: float
    """From the start of a batch job to the pilot's first call."""
    idle: float
    """Cores of pilots that no attempt held."""
    lost: float
    """Core-seconds of pilots that never called, or ended without a word: then from their last sign of life on."""
    total: float
    efficiency: Optional[float]
    """payload / total; None: there is nothing."""


@dataclass
class CostReport:
    begin: float
    """The start of the first hour that counts."""
    end: float
    by: str
    rows: List[CostRow]
    total: CostRow


@dataclass
class CostQuery:
    """Which core-seconds, and how they are summed up."""

    by: Annotated[Literal["ce", "owner", "group", "month"], "the meaning of a row"] = "ce"
    ce: Annotated[CeName, "only this CE; it need not be in the policy any more"] = ""
    since: Annotated[
        Optional[Annotated[float, Bounds(low=1, high=MAX_INSTANT)]],
        "only the last seconds, in whole hours; default: all",
    ] = None


COSTS = ApiCall("GET", "/v1/costs", CostQuery, CostReport, PERSON)
