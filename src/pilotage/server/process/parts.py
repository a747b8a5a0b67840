"""The parts of a context that follow from the pool, the store and the clocks, for any server."""

from __future__ import annotations

from collections.abc import Callable

from pilotage.server.catalogue_clients import CatalogueClients
from pilotage.server.context import DutyState, Telemetry, WorkIntake
from pilotage.server.director_state import DirectorState, new_seed
from pilotage.server.failing_rows import FailingRows
from pilotage.server.metrics_cache import CachedCounts
from pilotage.server.outside_calls import OutsideCalls
from pilotage.server.prospects import Prospects
from pilotage.server.storage_clients import StorageClients
from pilotage.server.submission_gate import SubmissionGate
from pilotage.server.submit_pools import SubmitPools
from pilotage.services.pool.state import Pool
from pilotage.services.shares.corrections import UseBook
from pilotage.services.submission.job_creation import AIM, POSTGRESQL_TARGET, new_pace
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.engine.connection import Readers
from pilotage.store.tables import work_queue_depth
from pilotage.store.writer.writer import Writer


def make_work_intake(
    pool: Pool,
    writer: Writer,
    readers: Readers,
    *,
    on_file: bool,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
    outside: OutsideCalls,
    telemetry: Telemetry | None = None,
) -> WorkIntake:
    """`on_file`: the store is a file of this server, so that large writes hold up its other work.

    `outside`: makes the calls of outside catalogues and storage.
    """
    return WorkIntake(
        SubmissionGate(writer, new_pace(monotonic, AIM if on_file else POSTGRESQL_TARGET)),
        Prospects(pool, writer, clock),
        WorkQueue(pool),
        CachedCounts(readers, monotonic, work_queue_depth.read),
        CatalogueClients(outside),
        StorageClients(outside),
        telemetry,
    )


def make_duty_state(pool: Pool, clock: Callable[[], float]) -> DutyState:
    return DutyState(
        UseBook(pool.policy.accounting.history),
        FailingRows(clock),
        SubmitPools(lambda name: pool.policy.director.pool(name).max_threads),
        DirectorState(new_seed(pool.secrets)),
    )
