"""Messages about outside catalogues, and the data sets that are copied from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional

from pilotage.wire.call import DATA, PERSON, ApiCall, NoRequest
from pilotage.wire.datasets import DataSetSummary
from pilotage.wire.limits import GivenName, Name


@dataclass
class DataSetFollow:
    """Copy a data set from the outside catalogue that its name begins with. If it is copied, read it at once."""

    name: GivenName
    """CATALOGUE:NAME THERE, such as rucio:data26:run.2026.AOD."""
    group: Name = ""
    """Empty: the caller's group."""


@dataclass
class DataSetFollowed:
    dataset: DataSetSummary
    warnings: List[str] = field(default_factory=list)


@dataclass
class FollowedSummary:
    """A data set that is copied from an outside catalogue."""

    name: str
    read: Optional[float] = None
    """When the last complete reading began; None: there was none."""
    problem: str = ""
    """Why the last reading failed; empty: it did not."""
    note: str = ""
    """Blocks that the last complete reading left out, and why."""


@dataclass
class CatalogueSummary:
    name: str
    type: str
    datasets: int
    """Data sets that are copied from it."""
    software: str = ""
    """Its software, version and account, as it has told."""
    problem: str = ""
    """Why it does not serve; empty: it does, or nobody has asked it."""
    since: Optional[float] = None
    """Since when it serves, or has this problem; None: nobody has asked it."""
    answered: Optional[float] = None
    """When it last answered; None: never."""
    oldest: Optional[float] = None
    """The oldest reading among its data sets."""
    registered: int = 0
    """Blocks of outputs that are registered there."""
    waiting: int = 0
    """Blocks of outputs that are not registered yet."""
    registration_problem: str = ""
    """Why one of them is not registered; empty: none has a problem."""


@dataclass
class CatalogueReport:
    """An outside catalogue, and the data sets that are copied from it."""

    catalogue: CatalogueSummary
    datasets: List[FollowedSummary] = field(default_factory=list)


LIST_CATALOGUES = ApiCall("GET", "/v1/catalogues", NoRequest, List[CatalogueSummary], PERSON)
SHOW_CATALOGUE = ApiCall("GET", "/v1/catalogues/{catalogue}", NoRequest, CatalogueReport, PERSON)
TEST_CATALOGUE = ApiCall(
    "POST", "/v1/catalogues/{catalogue}/test", NoRequest, CatalogueSummary, PERSON, repeatable=True
)
FOLLOW_DATASET = ApiCall("POST", "/v1/datasets/follow", DataSetFollow, DataSetFollowed, DATA, repeatable=True)
