"""What must hold at each look at a history that goes on, faults included."""

from __future__ import annotations

from collections.abc import Iterator

from pilotage.outside.batch.submission import NativeState
from pilotage.services.pilots.lifecycle import LEASE_OVER
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse
from tests.simulation.broken import need
from tests.simulation.payloads import PayloadBooks, PayloadEntry
from tests.simulation.policy import CES, LEASE, OFFER_TIMEOUT
from tests.simulation.processes import SimulationLoop
from tests.simulation.server_host import ServerHosts
from tests.simulation.sites import PilotProcess, Sites
from tests.simulation.stores import Rows

STEADY = 60.0
"""Seconds for which a server must have run, and its clock must not have jumped, until it has caught up."""
CONTACT = 40.0
"""Seconds in which a pilot in contact is heard at least once."""
STRAY = 75.0
"""Seconds after which a pilot in contact must have ended a payload that is no longer its own."""

Stray = tuple[str, int, int]


class Looks:
    """Looks again and again, and remembers what it saw before."""

    def __init__(
        self, loop: SimulationLoop, hosts: ServerHosts, sites: Sites, payloads: PayloadBooks, late: float
    ) -> None:
        """`late`: seconds after which a duty that was due has surely run."""
        self._late = late
        self._loop, self._hosts, self._sites, self._payloads = loop, hosts, sites, payloads
        self._seen = 0
        """The last event."""
        self._strays: dict[Stray, float] = {}
        self._stalled: dict[tuple[int, int], float] = {}

    def look(self, connection: Rows) -> None:
        now, hosts = self._loop.time(), self._hosts
        self._pilots_within_bounds(connection)
        steady = now - hosts.jumped_at > STEADY + LEASE
        if steady:
            self._no_pilot_in_contact_was_given_up(connection)
        [self._seen] = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
        if not hosts.running or now - hosts.steady_since < STEADY * len(hosts.all) or not steady:
            self._strays.clear()
            self._stalled.clear()
            return
        self._nothing_is_overdue(connection)
        self._no_payload_strays(connection)
        self._the_heard_are_not_stalled(connection)

    def _nothing_is_overdue(self, connection: Rows) -> None:
        wall = self._loop.time() + self._hosts.clock_offset
        for what, sql, since in (
            ("offers", "SELECT id FROM jobs WHERE state = 'Matched' AND started < ?", OFFER_TIMEOUT),
            ("delays of jobs", "SELECT id FROM jobs WHERE state = 'Rescheduled' AND not_before < ?", 0.0),
            ("leases of pilots", "SELECT id FROM pilots WHERE ended IS NULL AND lease_until < ?", 0.0),
            (
                "elements of silent agents",
                "SELECT e.id FROM elements e JOIN agents a ON a.id = e.agent_id"
                " WHERE e.state IN ('Negotiating', 'Acquired', 'CancelRequested') AND a.lease_until < ?",
                0.0,
            ),
        ):
            found = connection.execute(sql, (wall - since - self._late,)).fetchall()
            need(not found, f"{what} are overdue: {found[:5]}")

    def _pilots_within_bounds(self, connection: Rows) -> None:
        counts = dict(connection.execute("SELECT ce, count(*) FROM pilots WHERE ended IS NULL GROUP BY ce"))
        for ce in CES:
            # A pilot that was given up and has come back is one more.
            came_back = connection.execute(
                "SELECT count(*) FROM events WHERE kind = 'pilot-back'"
            ).fetchone()[0]
            found = counts.get(ce.name, 0)
            need(found <= ce.most + came_back, f"CE {ce.name}: {found} pilots of {ce.most}")

    def _in_contact(self, process: PilotProcess) -> bool:
        link = process.link
        assert link is not None
        return bool(link.heard) and self._loop.time() - link.heard[-1] < CONTACT and not link.is_alone

    def _no_payload_strays(self, connection: Rows) -> None:
        """A pilot in contact has only payloads of tries that are its own."""
        now = self._loop.time()
        found: dict[Stray, float] = {}
        for process in self._sites.live_pilots():
            assert process.pilot is not None
            if self._in_contact(process):
                for entry in self._payloads.running_on(process.pilot):
                    if not _is_own(connection, process.stamp, entry):
                        stray = process.stamp, entry.job, entry.epoch
                        found[stray] = self._strays.get(stray, now)
        for stray, since in found.items():
            need(now - since < STRAY, f"pilot {stray[0]} runs job {stray[1]} try {stray[2]} of others")
        self._strays = found

    def _the_heard_are_not_stalled(self, connection: Rows) -> None:
        now, found = self._loop.time(), {}
        heard = {process.stamp: process.link.exchanges for process in self._sites.pilots if process.link}
        for job, event, stamp in connection.execute(
            "SELECT j.id, j.last_event, p.stamp FROM jobs j JOIN pilots p ON p.id = j.pilot_id"
            " WHERE j.state = 'Stalled'"
        ):
            since = found[job, event] = self._stalled.get((job, event), now)
            spoke = [at for at in heard.get(stamp, ()) if since < at < now - 5]
            need(not spoke, f"job {job} is stalled, but its pilot {stamp} spoke at {spoke}")
        self._stalled = found

    def _no_pilot_in_contact_was_given_up(self, connection: Rows) -> None:
        alive: dict[str, PilotProcess] = {process.stamp: process for process in self._sites.live_pilots()}
        for at, stamp, reason in self._given_up(connection):
            process = alive.get(stamp)
            if process is None or process.link is None:
                continue
            instant = at - self._hosts.clock_offset
            heard = [one for one in process.link.heard if one < instant - 0.5]
            if not heard:
                continue
            if reason == LEASE_OVER:
                up = self._hosts.uptime(heard[-1], instant)
                need(up > LEASE / 2, f"pilot {stamp}: its lease ran out {up:.0f} s after it was heard")
            elif process.task.state is NativeState.RUNNING:
                need(
                    self._hosts.uptime(heard[-1], instant) > CONTACT,
                    f"pilot {stamp} was given up {instant - heard[-1]:.0f} s after it was heard: {reason}",
                )

    def _given_up(self, connection: Rows) -> Iterator[tuple[float, str, str]]:
        """When which pilot was ended without a word since the last look, and why."""
        events = connection.execute(
            "SELECT at, detail FROM events WHERE kind = 'pilot-lost' AND id > ?", (self._seen,)
        ).fetchall()
        for at, detail in events:
            pilot, _, reason = detail.removeprefix("pilot ").partition(": ")
            row = connection.execute("SELECT stamp FROM pilots WHERE id = ?", (int(pilot),)).fetchone()
            yield at, row[0], reason


def _is_own(connection: Rows, stamp: str, entry: PayloadEntry) -> bool:
    row = connection.execute(
        "SELECT j.epoch, p.stamp FROM jobs j LEFT JOIN pilots p ON p.id = j.pilot_id WHERE j.id = ?",
        (entry.job,),
    ).fetchone()
    return row is not None and tuple(row) == (entry.epoch, stamp)


def check_kept(connection: Rows, request: ExchangeRequest, answer: ExchangeResponse, wall: float) -> None:
    """A pilot that is answered may keep only tries that somebody holds, or did a second ago by the server's clock."""
    stopped = {(one.job, one.epoch) for one in answer.stop}
    for kept in request.holding:
        if (kept.job, kept.epoch) in stopped:
            continue
        row = connection.execute(
            "SELECT j.epoch, j.pilot_id, e.at FROM jobs j LEFT JOIN events e ON e.id = j.last_event WHERE j.id = ?",
            (kept.job,),
        ).fetchone()
        if row is None or row[2] is None or row[2] > wall - 1:
            # It may have changed after the answer, in the same transaction.
            continue
        need(
            row[0] == kept.epoch and row[1] is not None,
            f"a pilot may keep job {kept.job} try {kept.epoch}, whose try and pilot are {row}",
        )
