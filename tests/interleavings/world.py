"""The common world of all cases: servers on one database, and the names of what is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pilotage.core.splitting.mask import Mask
from tests.interleavings.paper import PaperAgent, PaperPilot
from tests.interleavings.server import SERVERS, PairServer, VirtualClock
from tests.interleavings.snapshot import Snapshot
from tests.simulation.shared_server import SharedDatabase


@dataclass
class World:
    """Servers on one database, and the names of what is there."""

    database: SharedDatabase
    clock: VirtualClock
    servers: list[PairServer]
    third: PairServer
    """Only for three transactions at once. It is not told what the others have done."""
    jobs: dict[str, int] = field(default_factory=dict)
    submissions: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    pilots: dict[str, PaperPilot] = field(default_factory=dict)
    agents: dict[str, PaperAgent] = field(default_factory=dict)
    session: psycopg.Connection[Any] = field(init=False)
    snapshot: Snapshot = field(init=False)
    masks: dict[str, list[Mask]] = field(default_factory=dict)
    """The masks of the first held element of each agent."""
    token: int = 0
    begin: float = 0.0

    def __post_init__(self) -> None:
        self.session = self.database.session()
        self.snapshot = Snapshot(self.session)

    @property
    def first(self) -> PairServer:
        return self.servers[0]

    @property
    def second(self) -> PairServer:
        return self.servers[1]

    def save(self) -> None:
        """All cases begin from here."""
        self.begin = self.clock.now
        self.snapshot.save()

    def restore(self, *, as_seen: bool = False) -> None:
        """`as_seen`: as of `Snapshot.restore`."""
        self.clock.set(self.begin)
        self.snapshot.restore(as_seen=as_seen)
        for server in self.servers:
            server.forget_all("case")

    @contextmanager
    def with_third(self) -> Iterator[None]:
        """A third server is there for as long as this lasts. Nobody waits for it afterwards."""
        sql = "INSERT INTO servers SELECT (jsonb_populate_record(s, %s)).* FROM servers s WHERE name = %s"
        self.session.execute(sql, (Jsonb({"name": SERVERS[2]}), SERVERS[0]))
        self.third.forget_all("case")
        yield
        self.session.execute("DELETE FROM servers WHERE name = %s", (SERVERS[2],))

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.session.execute(sql.encode(), values).fetchall()

    def later(self, seconds: float) -> None:
        """Time passes, in which both servers are alive."""
        self.clock.set(self.clock.now + seconds)
        self.session.execute("UPDATE instance SET alive_at = %s", (self.clock.now,))
        self.session.execute("UPDATE servers SET alive_at = %s", (self.clock.now,))
