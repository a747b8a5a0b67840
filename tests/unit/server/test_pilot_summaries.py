"""Who sees the core-seconds of a pilot: the owner that it serves, and administrators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.core.policy import ADMINISTRATOR
from pilotage.server.http.routes.pilots import _summary
from pilotage.server.tokens import Caller
from pilotage.services.pool.known_pilots import KnownPilots
from pilotage.store.tables.listing import PilotSummaryRow

ROW = PilotSummaryRow(
    id=7, state="Running", site="here", ce="cluster", batch_id="12_0", hostname="n1", owner="alice", version="1",
    processors=4, finished=3, submitted=1.0, started=2.0, ended=None, reason="told: by alice", jobs=2,
    pilot_type="private", core_seconds=200.0, payload_core_seconds=150.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("user", "properties", "seen"),
    [
        ("alice", frozenset(), (200.0, 150.0, 0.75)),
        ("root", frozenset({ADMINISTRATOR}), (200.0, 150.0, 0.75)),
        ("bob", frozenset(), (0.0, 0.0, None)),
    ],
)
def test_core_seconds_are_shown_as_costs_are(
    user: str, properties: frozenset[str], seen: tuple[float, float, float | None]
) -> None:
    context: Any = SimpleNamespace(pool=SimpleNamespace(pilots=KnownPilots()))
    summary = _summary(context, Caller(user, "physics", properties, 0.0), ROW)
    assert (summary.core_seconds, summary.payload_core_seconds, summary.efficiency) == seen
    assert summary.pilot_type == "private"
