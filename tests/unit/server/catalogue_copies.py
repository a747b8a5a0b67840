"""A pool whose duties of outside catalogues meet a catalogue on paper, or the adapter of Rucio on recorded answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from pilotage.outside.catalogue.adapter import (
    CatalogueAdapter,
)
from pilotage.server.duties.catalogue_work import CatalogueWork
from pilotage.server.duties.catalogues import CatalogueDuty
from pilotage.server.duties.registrations import RegistrationDuty
from pilotage.services.catalogue import following
from pilotage.store.tables import catalogues, datasets, followed_datasets, location_sets
from pilotage.store.tables.datasets import BlockRow, DataSetRow
from tests.paper_catalogue import PaperCatalogue
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import POLICY, QueueBench

NAME = "c:data:one"
CATALOGUE = """
[catalogues.c]
type = "rucio"
period = 600
retry = 60
[catalogues.c.rucio]
url = "https://rucio.example.org"
"""


class Copies:
    """A pool with a catalogue on paper."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str = CATALOGUE) -> None:
        self.bench = Bench(folder, POLICY.replace("[requests]", f"{policy}\n[requests]"))
        self.pool = Pool(QueueBench(self.bench), monkeypatch)
        self.paper = PaperCatalogue()
        self.catalogue: CatalogueAdapter = self.paper
        self.pool.context.work.catalogues = SimpleNamespace(
            adapter=lambda policy, name: self.catalogue, close=lambda: None
        )
        self.duty = CatalogueDuty(self.pool.context)
        self.registrations = RegistrationDuty(self.pool.context)

    def run(self, duty: CatalogueWork | None = None) -> None:
        """One cycle, and the work that it begins."""
        duty = duty or self.duty

        async def cycle() -> None:
            await duty.cycle()
            await asyncio.gather(*duty._running.values())

        asyncio.run(cycle())

    def follow(self) -> None:
        self.bench.do(
            lambda tx: following.follow(
                tx, self.bench.pool.policy, NAME, owner="alice", group="physics", now=self.bench.now
            )
        )

    def use(self) -> None:
        """A request reads the data set from now on, so it is read again and again."""
        self.pool.queue.request(inputs=[self.dataset.id])

    @property
    def dataset(self) -> DataSetRow:
        row = datasets.by_name(self.bench.connection, NAME)
        assert row is not None
        return row

    def blocks(self) -> dict[str, BlockRow]:
        return {row.name: row for row in datasets.block_page(self.bench.connection, self.dataset.id, 0, 1000)}

    def sites(self, block: str) -> frozenset[str] | None:
        number = self.blocks()[block].location_set
        return location_sets.sites_of(self.bench.connection, [number]).get(number)

    @property
    def followed(self) -> followed_datasets.FollowedRow:
        row = followed_datasets.of_dataset(self.bench.connection, self.dataset.id)
        assert row is not None
        return row

    @property
    def problem(self) -> str:
        return catalogues.by_name(self.bench.connection)["c"].problem
