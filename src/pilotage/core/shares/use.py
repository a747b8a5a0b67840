"""Use: the intervals of attempts, added up in buckets of a minute, an hour and a day.

See docs/reference/rules.md, section 5.

The buckets are a cache of the attempts. `Ledger.charge` fills them from intervals, of the last minute or of all time.
Time in which the system was down (`outages`) is charged to nobody, and spans do not contain it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Entity = tuple[str, str]
"""(owner, group)."""

Unit = Literal["jobs", "cores"]

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

MINUTE, HOUR, DAY = 60, 3600, 86400

MINUTES_KEPT = 3 * HOUR
HOURS_KEPT = 8 * DAY
"""Seconds for which buckets of minutes and hours are kept. `accounting.history` is the time for buckets of a day."""


HALF_LIVES = 10
"""Half-lives that decayed use looks back over. Older use would count less than a thousandth."""


@dataclass(frozen=True, slots=True)
class Use:
    """The average number of running jobs, and of the cores that they held, of each entity over some time."""

    jobs: Mapping[Entity, float]
    cores: Mapping[Entity, float]

    _by_group: dict[Unit, dict[str, dict[str, float]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of_groups(self, unit: Unit) -> dict[str, float]:
        return {group: sum(owners.values()) for group, owners in self._grouped(unit).items()}

    def of_owners(self, group: str, unit: Unit) -> Mapping[str, float]:
        return self._grouped(unit).get(group, {})

    def _grouped(self, unit: Unit) -> dict[str, dict[str, float]]:
        grouped = self._by_group.get(unit)
        if grouped is None:
            # Completed before it is published, since several threads read it.
            grouped = {}
            for (owner, group), amount in self._in(unit).items():
                grouped.setdefault(group, {})[owner] = amount
            self._by_group[unit] = grouped
        return grouped

    def _in(self, unit: Unit) -> Mapping[Entity, float]:
        return self.jobs if unit == "jobs" else self.cores


@dataclass(frozen=True, slots=True)
class UseIntervals:
    """Attempts as columns: entity, start, end (seconds since 1970), cores."""

    entities: Places
    starts: Floats
    ends: Floats
    cores: Floats


@dataclass(frozen=True, slots=True)
class UseBucket:
    """Use in one span of time: seconds of jobs and of cores, of the entities at `places` of the ledger's list."""

    places: Places
    jobs: Floats
    cores: Floats

    def plus(self, other: UseBucket) -> UseBucket:
        places, columns = np.unique(np.concatenate((self.places, other.places)), return_inverse=True)

        def added(ours: Floats, theirs: Floats) -> Floats:
            return np.bincount(columns, np.concatenate((ours, theirs)), len(places)).astype(np.float64)

        return UseBucket(places, added(self.jobs, other.jobs), added(self.cores, other.cores))


Outage = tuple[float, float]
"""(begin, end) of a time in which the system was down or its clock stepped."""


@dataclass(slots=True)
class Ledger:
    """Use up to `as_of`, by entity. `levels` maps the span of a bucket to its buckets by start."""

    as_of: float
    history: float
    outages: list[Outage] = field(default_factory=list)
    """Ascending, without overlap."""
    entities: list[Entity] = field(default_factory=list)
    levels: dict[int, dict[int, UseBucket]] = field(default_factory=lambda: {MINUTE: {}, HOUR: {}, DAY: {}})
    _places: dict[Entity, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = {entity: place for place, entity in enumerate(self.entities)}

    def place(self, entity: Entity) -> int:
        """The place of `entity` in `entities`; new ones come at the end."""
        place = self._places.get(entity)
        if place is None:
            place = self._places[entity] = len(self.entities)
            self.entities.append(entity)
        return place

    def kept(self, span: int) -> float:
        return {MINUTE: MINUTES_KEPT, HOUR: HOURS_KEPT, DAY: max(self.history, HOURS_KEPT)}[span]

    # --- charging

    def charge(self, chunks: Iterable[UseIntervals], until: float) -> list[tuple[int, int]]:
        """Add the use of intervals between `as_of` and `until`. Returns (span, start) of the changed buckets."""
        changed: set[tuple[int, int]] = set()
        pieces = list(self._up_time(self.as_of, until))
        for intervals in chunks:
            for span, buckets in self.levels.items():
                # One bucket more than is kept: it contains the far edge.
                oldest = (until - self.kept(span)) // span * span
                for begin, end in pieces:
                    for start, bucket in spread(intervals, max(begin, oldest), end, span):
                        known = buckets.get(start)
                        buckets[start] = bucket if known is None else known.plus(bucket)
                        changed.add((span, start))
        self.as_of = max(self.as_of, until)
        return sorted(changed)

    def _up_time(self, begin: float, end: float) -> Iterator[tuple[float, float]]:
        """The parts of [begin, end) without outages."""
        for down, up in self.outages:
            if up <= begin:
                continue
            if down >= end:
                break
            if down > begin:
                yield begin, down
            begin = up
        if begin < end:
            yield begin, end

    def up_time(self, begin: float, end: float) -> float:
        """Seconds of [begin, end) without outages."""
        return sum(up - down for down, up in self._up_time(begin, end))

    def forget_old(self) -> list[tuple[int, int]]:
        """Drop the buckets that are no longer kept. Returns their (span, start)."""
        gone = []
        for span, buckets in self.levels.items():
            first = self._first(span)
            for start in [start for start in buckets if start < first]:
                del buckets[start]
                gone.append((span, start))
        return gone

    def _first(self, span: int) -> float:
        return (self.as_of - self.kept(span)) // span * span

    # --- reading

    def over(self, span: float) -> Use:
        """Average use over the last `span` seconds of up-time before `as_of`."""
        return self.between(self.look_back(span), self.as_of)

    def look_back(self, span: float) -> float:
        """The instant `span` seconds of up-time before `as_of`."""
        end, left = self.as_of, span
        for down, up in reversed(self.outages):
            if up > end:
                end = min(end, down)
                continue
            if end - up >= left:
                break
            left -= end - up
            end = down
        return end - left

    def between(self, begin: float, end: float) -> Use:
        """Average use over the up-time between two instants; at the edges a bucket counts by the part covered."""
        covered = list(self._cover(begin, end))
        if not covered:
            return Use({}, {})
        places = np.concatenate([bucket.places for bucket, _ in covered])
        fractions = np.repeat(
            [fraction for _, fraction in covered], [len(bucket.places) for bucket, _ in covered]
        )
        jobs = np.concatenate([bucket.jobs for bucket, _ in covered]) * fractions
        cores = np.concatenate([bucket.cores for bucket, _ in covered]) * fractions
        length = max(self.up_time(begin, end), 1.0)
        return Use(
            self._named(np.bincount(places, jobs) / length), self._named(np.bincount(places, cores) / length)
        )

    def decayed(self, half_life: float) -> Use:
        """The average running jobs and cores, each second weighted with 2^(-age/half_life); age is up-time.

        Seconds older than `HALF_LIVES` half-lives count nothing. Within a bucket use counts as spread evenly.
        """
        horizon = self.look_back(HALF_LIVES * half_life)
        covered = list(self._finest(horizon))
        if not covered:
            return Use({}, {})
        edges = np.array([(start, min(start + span, self.as_of)) for start, span, _ in covered])
        begins, ends = self._ages(edges[:, 0]), self._ages(edges[:, 1])
        rate = np.log(2.0) / half_life
        # The mean of the weight over the up-time of each bucket; without up-time, the weight at its end.
        lengths = np.maximum(begins - ends, 1e-9)
        means = np.exp(-rate * ends) * -np.expm1(-rate * lengths) / (rate * lengths)
        # Only the first bucket can be cut by the horizon; it counts by the part inside.
        if edges[0, 0] < horizon:
            means[0] *= self._part(horizon, self.as_of, *edges[0].tolist())
        places = np.concatenate([bucket.places for _, _, bucket in covered])
        weights = np.repeat(means, [len(bucket.places) for _, _, bucket in covered]) * rate
        jobs = np.concatenate([bucket.jobs for _, _, bucket in covered]) * weights
        cores = np.concatenate([bucket.cores for _, _, bucket in covered]) * weights
        return Use(
            self._named(np.bincount(places, jobs).astype(np.float64)),
            self._named(np.bincount(places, cores).astype(np.float64)),
        )

    def _finest(self, begin: float) -> Iterator[tuple[int, int, UseBucket]]:
        """(start, span, bucket) from `begin` on: without overlap, each of the shortest span kept for its time."""
        first_hour = -(-self._first(HOUR) // DAY) * DAY
        first_minute = -(-self._first(MINUTE) // HOUR) * HOUR
        edges = ((DAY, -np.inf, first_hour), (HOUR, first_hour, first_minute), (MINUTE, first_minute, np.inf))
        for span, first, last in edges:
            buckets = self.levels[span]
            end = min(last, self.as_of)
            for start in sorted(start for start in buckets if first <= start < end and begin < start + span):
                yield start, span, buckets[start]

    def _ages(self, instants: Floats) -> Floats:
        """Seconds of up-time between each instant and `as_of`."""
        downs = np.array([min(down, self.as_of) for down, _ in self.outages])
        ups = np.array([min(up, self.as_of) for _, up in self.outages])
        if not len(downs):
            return np.asarray(self.as_of - instants)
        # Down-time after each instant: all of the outages that begin later, and the rest of the one that it is in.
        later = np.concatenate([np.cumsum((ups - downs)[::-1])[::-1], [0.0]])
        following = np.searchsorted(downs, instants, side="left")
        inside = np.where(following > 0, np.maximum(ups[following - 1] - instants, 0.0), 0.0)
        return np.asarray(self.as_of - instants - later[following] - inside)

    def _named(self, amounts: Floats) -> dict[Entity, float]:
        return {self.entities[place]: float(amounts[place]) for place in np.flatnonzero(amounts > 0)}

    def _cover(self, begin: float, end: float) -> Iterator[tuple[UseBucket, float]]:
        """The fewest buckets that cover [begin, end), each with the part of it that counts."""
        firsts = [(span, self._first(span)) for span in (DAY, HOUR, MINUTE)]
        at = begin
        while at < end:
            for span, first in firsts:
                if at >= first and at % span == 0 and at + span <= end:
                    break
            else:
                span = next((span for span, first in reversed(firsts) if at >= first), DAY)
            start = int(at // span * span)
            till = min(start + span, end)
            bucket = self.levels[span].get(start)
            if bucket is not None:
                filled = min(start + span, self.as_of)
                whole = at == start and till >= filled
                yield bucket, 1.0 if whole else self._part(at, till, start, filled)
            at = till

    def _part(self, begin: float, end: float, start: float, filled: float) -> float:
        """The part of a bucket's up-time, [start, filled), that lies in [begin, end)."""
        whole = self.up_time(start, filled)
        return min(1.0, self.up_time(begin, min(end, filled)) / whole) if whole > 0 else 0.0


def spread(intervals: UseIntervals, begin: float, end: float, span: int) -> Iterator[tuple[int, UseBucket]]:
    """The use of `intervals` between two instants in buckets of `span` seconds: (start, bucket), ascending."""
    origin = int(begin // span * span)
    count = int(-((origin - end) // span))
    if begin >= end or not len(intervals.starts):
        return
    starts, ends = np.clip(intervals.starts, begin, end), np.clip(intervals.ends, begin, end)
    used = ends > starts
    if not used.any():
        return
    # Columns only for the entities that occur, usually few of many.
    places, columns = np.unique(intervals.entities[used], return_inverse=True)
    low, high = (starts[used] - origin) / span, (ends[used] - origin) / span
    jobs = _spread(low, high, np.ones(len(low)), columns, len(places), count) * span
    cores = _spread(low, high, intervals.cores[used], columns, len(places), count) * span
    for row in range(count):
        present = jobs[row] > 0
        if present.any():
            yield origin + row * span, UseBucket(places[present], jobs[row][present], cores[row][present])


def _spread(low: Floats, high: Floats, weight: Floats, columns: Places, width: int, count: int) -> Floats:
    """Σ weight · |[low, high) ∩ [row, row + 1)| for each row < count and column."""
    first, last = np.floor(low).astype(np.int64), np.floor(high).astype(np.int64)
    size = (count + 1) * width

    def added(rows: Places, amounts: Floats) -> Floats:
        flat = np.bincount(rows * width + columns, amounts, size).astype(np.float64)
        return flat.reshape(count + 1, width)

    # As steps at the edges: each interval's full rows by a running sum, its first and last corrected.
    steps = added(np.minimum(first, count), weight) - added(np.minimum(last, count), weight)
    whole = np.cumsum(steps, axis=0)
    whole -= added(np.minimum(first, count), weight * (low - first))
    whole += added(np.minimum(last, count), weight * (high - last))
    return np.asarray(np.maximum(whole[:count], 0.0))


def columns_of(ledger: Ledger, rows: Iterable[Sequence[object]]) -> UseIntervals:
    """Rows (owner, group, started, ended or None, processors) as columns. An attempt without end runs forever."""
    places, starts, ends, cores = [], [], [], []
    for owner, group, started, ended, processors in rows:
        places.append(ledger.place((str(owner), str(group))))
        starts.append(float(started))  # type: ignore[arg-type]
        ends.append(np.inf if ended is None else float(ended))  # type: ignore[arg-type]
        cores.append(float(processors))  # type: ignore[arg-type]
    return UseIntervals(np.array(places, np.int64), np.array(starts), np.array(ends), np.array(cores))
