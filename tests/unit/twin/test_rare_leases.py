"""A server in virtual time whose lease duty runs rarely."""

from __future__ import annotations

import asyncio
from math import inf
from pathlib import Path

from pilotage.core.policy import Ce
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission
from pilotage.server.duties.duty import Duty
from pilotage.store.tables import instance
from pilotage.twin.chance import Streams
from pilotage.twin.server import TwinServer, TwinServerSettings
from pilotage.twin.virtual_loop import VirtualLoop


class NoBatchSystems:
    """Implements `BatchClients` for a policy without CEs."""

    def adapter(self, name: str, ce: Ce) -> BatchAdapter:
        raise AssertionError

    def script(
        self, ce: str, secret: str, submission: BatchSubmission, batch: BatchAdapter, *, local: bool
    ) -> str:
        raise AssertionError

    def obstacle(self, ce: Ce) -> str:
        raise AssertionError


BEGIN, RARE = 1_700_000_000.0, 120.0
POLICY = """
[groups.people]
properties = ["NORMAL_USER"]
[users.ada]
groups = ["people"]
"""


def after_an_hour(folder: Path, longest_gap: float | None) -> tuple[float, int]:
    """The last sign of life of a server that looks at leases rarely, and the outages that it has recorded."""
    loop = VirtualLoop(BEGIN)

    def least_period(_: Duty) -> float:
        return RARE

    settings = TwinServerSettings(
        folder, POLICY, Streams(1), NoBatchSystems(), least_period=least_period, longest_gap=longest_gap
    )

    async def live() -> tuple[float, int]:
        server = TwinServer(settings, loop)
        serving = asyncio.ensure_future(server.run())
        await asyncio.sleep(3600)
        server.context.stop.set()
        await serving
        known = instance.load(server.connection)
        assert known is not None
        [outages] = server.connection.execute("SELECT count(*) FROM outages").fetchone()
        server.close()
        return known.alive_at - BEGIN, outages

    try:
        return loop.run_until_complete(live())
    finally:
        loop.close()


def test_rare_cycles_of_an_uninterrupted_server_are_no_outages(tmp_path: Path) -> None:
    alive, outages = after_an_hour(tmp_path, inf)
    assert (alive >= 3600 - RARE, outages) == (True, 0)


def test_rare_cycles_of_a_real_server_are_outages(tmp_path: Path) -> None:
    _, outages = after_an_hour(tmp_path, None)
    assert outages > 10
