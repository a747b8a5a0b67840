"""The types of jobs of requests."""

from __future__ import annotations

from collections.abc import Mapping

PROCESSING = "Processing"

TYPE_PRIORITIES: Mapping[str, int] = {
    "Harvest": 5,
    "Merge": 4,
    "Skim": 3,
    "LogCollect": 2,
    "Cleanup": 1,
    PROCESSING: 0,
}
"""The higher one goes first."""

REQUEST_TYPES = frozenset(TYPE_PRIORITIES)
