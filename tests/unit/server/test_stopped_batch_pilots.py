"""A server that stops cancels pilots at batch systems; the next one does not take that for failures of the CE."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.core.pilots.states import PilotState
from pilotage.server.duties.batch_clients import OwnBatchClients
from pilotage.server.duties.ce import CeDuty
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.store.tables import ces, pilots
from pilotage.store.tables.ces import CeSwitch
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import NODE
from tests.unit.services.test_batch_director import MAX_WAITING, SETTLE, Site
from tests.unit.services.workqueue.queue_bench import QueueBench


@pytest.mark.parametrize("waiting_only", [True, False])
def test_pilots_that_a_stopping_server_cancels_are_no_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting_only: bool
) -> None:
    site = Site(tmp_path, max_failures=MAX_WAITING)
    site.bench.submit(10)
    site.cycle()
    ordered = [pilot.id for pilot in pilots.live(site.bench.connection, "batch")]
    assert len(ordered) == MAX_WAITING
    context = Pool(QueueBench(site.bench), monkeypatch).context
    duty = CeDuty(context, site.director, cast(Any, site.batch), OwnBatchClients(context, 64))
    asyncio.run(duty.cancel_all(waiting_only=waiting_only))
    duty.close()
    assert not site.batch.list_pilots().tasks

    site.director = CeDirector("batch", IterationOrders(NODE.platform))
    for _ in range(3):
        site.bench.now += SETTLE
        site.cycle()
    ended = pilots.by_ids(site.bench.connection, ordered)
    assert {pilot.state for pilot in ended} == {PilotState.DELETED}
    assert ces.by_name(site.bench.connection, "batch").switch is CeSwitch.ON
    [summary] = [summary for summary in site.summaries() if summary.name == "batch"]
    assert summary.state == "active"
    site.close()
