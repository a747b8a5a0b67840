"""What the machine of a local CE says about its pilots, taken in as the duty of the CE does."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from pilotage.core.ids import PilotId
from pilotage.outside.batch.adapter import split_stamp
from pilotage.outside.batch.submission import BatchListing, ListedTask, NativeState
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.listing_comparison import compare
from pilotage.services.director.observing import note_unchanged, observe_some
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilots
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import Bench


def take_in(
    pool: Pool,
    tx: Transaction,
    director: CeDirector,
    state: NativeState,
    now: float,
    *,
    listed: float | None = None,
    batch_id: str = "1:2",
    words: str = "",
    only: Collection[PilotId] | None = None,
) -> None:
    """The machine says this about all live pilots of the CE, or about `only` these; the others run."""
    tasks = []
    for pilot in pilots.with_batch_jobs(tx.connection, director.ce):
        said = state if only is None or pilot.id in only else NativeState.RUNNING
        id_ = batch_id if said is NativeState.RUNNING else pilot.batch_id
        tasks.append(ListedTask(*split_stamp(pilot.stamp), id_, said, "", words, ""))
    listing = BatchListing("boot", tuple(tasks))
    at = now if listed is None else listed
    comparison = compare(tx.connection, director.ce, director.unchanged, listing, at)
    observe_some(director, pool, tx, comparison, comparison.observations, now)
    note_unchanged(director, tx, comparison)


def answer(
    bench: Bench, director: CeDirector, state: NativeState, *, listed: float | None = None, words: str = ""
) -> None:
    """The machine says this about all live pilots of the CE."""
    told = partial(
        take_in, bench.pool, director=director, state=state, now=bench.now, listed=listed, words=words
    )
    bench.do(lambda tx: told(tx))
