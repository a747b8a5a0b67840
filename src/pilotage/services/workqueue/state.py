"""The memory of a server about the work queue, kept between messages. All of it can be read again from the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotage.core.sites import SiteState
from pilotage.core.workqueue.coverage import ElementCoverage
from pilotage.core.workqueue.eligibility import Locations, SiteRules, Sites, eligible_sites
from pilotage.core.workqueue.thresholds import SlotRules
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.state import Pool
from pilotage.services.workqueue.loads import LoadBook
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import dataset_blocks, location_sets
from pilotage.store.tables.queued_requests import QueuedRequest, QueuedStep

MAX_COVERAGES = 64
"""Elements whose masks are in memory."""
MAX_SITE_SETS = 100_000
MAX_COUNTS = 10_000
DATASET_AGE = 30.0
"""Seconds for which the sites of a whole data set are remembered."""
ALL_SITES = "*"
NONE = "[]"
"""No data sets, in a column."""


@dataclass(slots=True)
class WorkQueue:
    """The state that the use cases of the work queue share. Only the writer's requests use it, but for `loads`."""

    pool: Pool
    coverages: LruCache[tuple[int, int], ElementCoverage] = field(
        default_factory=lambda: LruCache(MAX_COVERAGES)
    )
    """The coverage of a try at an element, by element and epoch."""
    loads: LoadBook = field(default_factory=LoadBook)
    group_counts: dict[int, int] = field(default_factory=dict)
    """The number of location sets of a request's available elements, at its last pull."""
    element_counts: LruCache[int, int] = field(default_factory=lambda: LruCache(MAX_COUNTS))
    """The number of a request's elements, as long as this server makes them."""
    _location_sets: dict[int, Sites] = field(default_factory=dict)
    _last_set: int = 0
    _rules: LruCache[tuple[str, str, int, int], SiteRules] = field(default_factory=lambda: LruCache(10_000))
    _eligible: LruCache[tuple[object, ...], Sites] = field(default_factory=lambda: LruCache(MAX_SITE_SETS))
    _datasets: dict[int, tuple[float, Sites | None]] = field(default_factory=dict)

    @property
    def slot_rules(self) -> SlotRules:
        settings = self.pool.policy.requests
        return SlotRules(settings.pending_fraction, settings.queue_depth, settings.site_floor)

    def site_states(self) -> dict[str, SiteState]:
        """The state of each site of the policy."""
        return {site: self.pool.site_state(site) for site in self.pool.policy.sites}

    def closed_by_policy(self) -> frozenset[str]:
        """The sites whose state the policy decides: `site enable` does not open them."""
        sites = self.pool.policy.sites
        return frozenset(name for name, site in sites.items() if site.banned or site.draining)

    def eligible(
        self, connection: Connection, request: QueuedRequest, step: QueuedStep, location_set: int, now: float
    ) -> Sites:
        """The sites of the policy where an element of this step may run."""
        lists = (request.sites, request.banned_sites, request.trust_input, request.trust_pileup)
        data: Locations | None = None
        key: tuple[object, ...] = (*lists, location_set, self.pool.server.policy_version)
        if step.further_inputs != NONE or step.pileup != NONE:
            data = self.locations(connection, step, location_set, now)
            key = (*lists, data, self.pool.server.policy_version)
        known = self._eligible.get(key)
        if known is None:
            data = data or self.locations(connection, step, location_set, now)
            known = eligible_sites(self.pool.policy.sites, self.rules(request), data)
            self._eligible[key] = known
        return known

    def locations(self, connection: Connection, step: QueuedStep, location_set: int, now: float) -> Locations:
        """Where the data of an element of this step is. `location_set`: of its input."""
        further = [self._dataset_sites(connection, dataset, now) for dataset in _ids(step.further_inputs)]
        pileups = [self._dataset_sites(connection, dataset, now) for dataset in _ids(step.pileup)]
        return Locations((self._sites_of_set(connection, location_set), *further), (), tuple(pileups))

    def rules(self, request: QueuedRequest) -> SiteRules:
        """The lists and flags of a request."""
        key = (request.sites, request.banned_sites, request.trust_input, request.trust_pileup)
        rules = self._rules.use(key)
        if rules is None:
            rules = self._rules[key] = site_rules(request)
        return rules

    def known_location_sets(self, connection: Connection) -> Sequence[int]:
        """All sets of the store. Rows of sets never change, so only new ones are read."""
        self._read_sets_after(connection, self._last_set)
        if len(self._location_sets) != location_sets.count(connection):
            # Another server has stored a set with a smaller id in a longer transaction.
            self._location_sets.clear()
            self._read_sets_after(connection, 0)
        return tuple(self._location_sets)

    def _read_sets_after(self, connection: Connection, last: int) -> None:
        for number, sites in location_sets.after(connection, last):
            self._location_sets[number] = sites
            self._last_set = number

    def load_location_sets(self, connection: Connection, ids: Sequence[int]) -> None:
        """Read the sets that are not in memory, in one query."""
        missing = {number for number in ids if number and number not in self._location_sets}
        self._location_sets.update(location_sets.sites_of(connection, sorted(missing)))

    def forget_location_sets(self) -> None:
        """Call it when a transaction that may have stored a set is rolled back: its id may be used again."""
        self._location_sets.clear()
        self._eligible.clear()
        self._last_set = 0

    def _sites_of_set(self, connection: Connection, number: int) -> Sites | None:
        """None: the location is not known."""
        if number == location_sets.UNKNOWN:
            return None
        if number not in self._location_sets:
            self.load_location_sets(connection, [number])
        return self._location_sets.get(number)

    def _dataset_sites(self, connection: Connection, dataset: int, now: float) -> Sites | None:
        """The sites with all closed blocks of a data set; None: not known."""
        at, sites = self._datasets.get(dataset, (-DATASET_AGE, None))
        if now - at >= DATASET_AGE:
            sites = self.common_sites(connection, dataset_blocks.location_sets_of(connection, dataset))
            self._datasets[dataset] = now, sites
        return sites

    def common_sites(self, connection: Connection, sets: Sequence[int]) -> Sites | None:
        """The sites that are in all of these sets; None: a set is not known, or there is none."""
        common: Sites | None = None
        for number in sets:
            sites = self._sites_of_set(connection, number)
            if sites is None:
                return None
            if common is None or ALL_SITES in common:
                common = sites
            elif ALL_SITES not in sites:
                common &= sites
        return common


def site_rules(request: QueuedRequest) -> SiteRules:
    """The lists and flags of a request, read from its row."""
    listed = frozenset(json.loads(request.sites))
    return SiteRules(
        None if ALL_SITES in listed else listed,
        frozenset(json.loads(request.banned_sites)),
        bool(request.trust_input),
        bool(request.trust_pileup),
    )


def _ids(text: str) -> list[int]:
    return [] if text == NONE else [int(number) for number in json.loads(text)]
