"""The unfinished jobs of agents by site and request, as far as the server knows them.

Counting them costs a query over all unfinished jobs of an agent. So a server that is the only one uses a count for some
seconds; jobs that are posted meanwhile are added to it. It is then too high rather than too low: no threshold is
exceeded by it. One of several servers counts for each message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock

from pilotage.store.engine.connection import Connection
from pilotage.store.tables import agent_loads
from pilotage.store.tables.agent_loads import LoadCount

AGE = 3.0
"""Seconds for which a count is used."""
FEW, SHORT_AGE = 1000, 0.2
"""A count of fewer jobs costs little, so it is used for this time only."""


@dataclass(slots=True)
class AgentLoad:
    """The unfinished jobs of one agent. Jobs that pause after a failure are not part of it."""

    at: float
    waiting: dict[tuple[str, int], int] = field(default_factory=dict)
    """Jobs that are made or in the pool, and not running; by site and request."""
    running: dict[str, int] = field(default_factory=dict)
    """Running jobs, by site."""
    in_pool: int = 0

    @classmethod
    def of_counts(cls, counts: Iterable[LoadCount], at: float) -> AgentLoad:
        load = cls(at)
        for count in counts:
            load.in_pool += count.jobs if count.is_released else 0
            if count.is_running:
                load.running[count.site] = load.running.get(count.site, 0) + count.jobs
            else:
                load.add_waiting(count.site, count.request_id, count.jobs)
        return load

    @classmethod
    def read(cls, connection: Connection, agent: int, now: float) -> AgentLoad:
        return cls.of_counts(agent_loads.of_agent(connection, agent), now)

    @property
    def jobs(self) -> int:
        return sum(self.waiting.values()) + sum(self.running.values())

    def add_waiting(self, site: str, request: int, jobs: int) -> None:
        key = (site, request)
        self.waiting[key] = self.waiting.get(key, 0) + jobs


@dataclass(slots=True)
class LoadBook:
    """The last count of each agent."""

    _loads: dict[int, AgentLoad] = field(default_factory=dict)
    _added: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)
    """Site, request and number of jobs that were posted for an agent since its last count began."""
    _lock: Lock = field(default_factory=Lock)
    """Counts are made beside the writer, which adds jobs meanwhile."""

    def known(self, agent: int, now: float, *, shared: bool) -> AgentLoad | None:
        """The count of an agent; None: there is none that is new enough.

        `shared`: the agent may have posted jobs by way of another server, which no count in memory has.
        """
        load = self._loads.get(agent)
        if load is None or shared:
            return None
        age = SHORT_AGE if load.jobs < FEW else AGE
        return load if 0 <= now - load.at < age else None

    def count(self, connection: Connection, agent: int, now: float) -> AgentLoad:
        """Count the jobs of an agent, in any thread. Jobs posted during the count may count twice."""
        with self._lock:
            self._added[agent] = []
        load = AgentLoad.read(connection, agent, now)
        with self._lock:
            for site, request, jobs in self._added[agent]:
                load.add_waiting(site, request, jobs)
            self._loads[agent] = load
        return load

    def add(self, agent: int, site: str, request: int, jobs: int) -> None:
        """Add jobs that an agent has posted."""
        with self._lock:
            self._added.setdefault(agent, []).append((site, request, jobs))
            load = self._loads.get(agent)
            if load is not None:
                load.add_waiting(site, request, jobs)
