"""Queries that several lists share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pilotage.wire.limits import MAX_PAGE, Bounds, Cursor

PageSize = Annotated[int, Bounds(low=1, high=MAX_PAGE)]


@dataclass
class PageQuery:
    """A page of a list."""

    after: Cursor = 0
    """The last id of the page before."""
    limit: PageSize = 100


@dataclass
class EndedQuery:
    """A list of entries in force, or of all entries."""

    all: Annotated[bool, "ended ones too"] = False
