"""Pool and context stay divided by concern: few fields, and the rooms that use each part are named here."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import pilotage
from pilotage.server.context import Context
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.state import Pool
from tests.writer_guard import PARTS

SOURCE = Path(pilotage.__file__).parent
MOST_FIELDS = 13

ROOMS = {
    "offers": {
        *("server/duties", "server/http/routes", "services/director", "services/jobs", "services/matching"),
        *("services/pilots", "services/policy", "services/pool", "services/why"),
    },
    "jobs": {
        *("server/duties", "server/http/routes", "services/jobs", "services/matching", "services/peers"),
        *("services/pilots", "services/submission"),
    },
    "shares": {
        *("services/director", "services/matching", "services/peers", "services/pilots", "services/policy"),
        "services/shares",
    },
    "ces": {
        *("server/duties", "server/http/routes", "services/director", "services/matching", "services/policy"),
        "services/pool",
    },
    "provisioning": {"server/duties", "services/director", "services/matching", "services/why"},
}
"""The rooms that use a part through the pool. All use `policy`, `ids`, `peers`, `queues`, `pilots` and `server`."""


@pytest.mark.parametrize("kind", [Pool, Context])
def test_pool_and_context_have_few_fields(kind: Any) -> None:
    assert len(dataclasses.fields(kind)) <= MOST_FIELDS


def test_the_writers_guard_knows_every_part_that_is_assigned_to() -> None:
    parts = {kind for kind in get_type_hints(Pool).values() if dataclasses.is_dataclass(kind)}
    # A number that was allocated stays so when its transaction fails.
    assert parts - {IdAllocators} == set(PARTS)


def test_each_part_is_used_in_its_rooms() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parent.as_posix()
        for part in re.findall(rf"\bpool\.({'|'.join(ROOMS)})\.\w", path.read_text()):
            used[part].add(room)
    assert used == ROOMS
