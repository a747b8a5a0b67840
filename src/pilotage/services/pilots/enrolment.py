"""A pilot calls home for the first time: its secret is traded for a token."""

from __future__ import annotations

import hashlib

from pilotage.core.errors import Forbidden, IncompatibleVersion, NotAuthenticated
from pilotage.core.pilots import clocks, wall_time
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.pilots.states import FINAL, PILOT_STATES, PilotState
from pilotage.core.pilots.tokens import program_token
from pilotage.core.policy import Ce
from pilotage.core.programs import Programs
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pilots.exchange import token_hash
from pilotage.services.pilots.lifecycle import DEFAULT_LEASE, PilotEnd, end_silent_pilot
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.store.tables import jobs, node_clocks, pilots
from pilotage.store.tables.events import record
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import PROTOCOL, SUPPORTED, EnrolRequest, EnrolResponse

RESTARTED = "its batch job was started again by the batch system"
"""The reason of a pilot whose batch job has begun a second time, although it was submitted to begin once."""

PROBE = "probe"
"""The type of a pilot that examines its node and is given no job."""


def secret_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def enrol(pool: Pool, tx: Transaction, request: EnrolRequest, now: float) -> EnrolResponse:
    """Trade (secret, index, nonce) for a token.

    The same nonce again is the same program, whose answer was lost, or a late copy of its message: both get the same
    token, and nothing changes. Another nonce supersedes the earlier program: its token dies, its jobs go back, and
    an alarm stands in the event log. A program that was superseded gets no token any more.

    A pilot that was given up comes back with its first exchange, which proves that it has the token.
    A batch job that the batch system has started again gets no token, and must leave; its jobs go back.
    """
    pilot = _find_pilot(tx, request)
    token = program_token(request.secret, request.index, request.nonce)
    ce = pool.policy.ces.get(pilot.ce)
    lease = ce.lease if ce else DEFAULT_LEASE
    programs = Programs.of(pilot.nonce)
    if programs.is_present(request.nonce):
        return _settings(pool, pilot, ce, token, lease)
    if programs.was_superseded(request.nonce):
        raise Forbidden("another program has enrolled as this pilot since", hint="this one should leave")
    pool.pilots.rows.forget(pilot)
    if programs.nonces:
        if request.restarts > 0:
            return _send_away(pool, tx, pilot, now)
        _supersede(pool, tx, pilot, now)
        pilot.take_number = 0
    _compare_batch_ids(pool.ids, tx, pilot, request.batch_id, now)
    pilots.update(
        tx.connection,
        pilot.id,
        nonce=programs.followed_by(request.nonce),
        clock_offset=_offset_of_clock(pool.ids, tx, pilot, request, now),
        take_number=pilot.take_number,
        token_hash=token_hash(token),
        hostname=request.hostname,
        version=request.version,
        started=pilot.started or now,
        server=pool.peers.server,
        cores_from=_begin_of_cores(pilot, request, now),
    )
    if pilot.state not in FINAL:
        _begin(pool, tx, pilot, request.hostname, lease, now)
    if pool.peers.shared:
        pool.peers.publish(tx, PeerUpdate(pilots=[pilot.id]))
    return _settings(pool, pilot, ce, token, lease)


def _begin(pool: Pool, tx: Transaction, pilot: PilotRow, hostname: str, lease: float, now: float) -> None:
    """The pilot runs from now on."""
    if pilot.state is not PilotState.RUNNING:
        _record_enrolment(pool.ids, tx, pilot, hostname, now)
    pilots.update(
        tx.connection,
        pilot.id,
        state=PilotState.RUNNING,
        lease_until=now + lease,
        reason=pilot.reason if pilot.leave else "",
    )
    tx.put(pool.pilots.last_seen, pilot.id, now)
    tx.put(pool.pilots.heard, pilot.id, now)
    pool.pilots.watch.add(pilot.id, pilot.ce, now)


def _offset_of_clock(
    ids: IdAllocators, tx: Transaction, pilot: PilotRow, request: EnrolRequest, now: float
) -> float | None:
    """Seconds that the clock of the pilot's node is ahead; None: it does not tell. One that is off is recorded."""
    offset = clocks.offset_of(request.clock, now) if request.clock else None
    if offset is not None and clocks.is_off(offset):
        _report_clock(ids, tx, pilot, request.hostname, offset, now)
    return offset


def _report_clock(
    ids: IdAllocators, tx: Transaction, pilot: PilotRow, hostname: str, offset: float, now: float
) -> None:
    """Record that a node's clock is off, unless the last pilot of this node has reported it."""
    last = node_clocks.last_offset(tx.connection, pilot.ce, hostname)
    if last is None or not clocks.is_off(last):
        detail = f"CE {pilot.ce}: the clock of node {hostname} is {clocks.describe(offset)}"
        actor = f"pilot:{pilot.id}"
        record(tx.connection, ids.events, at=now, kind="clock", actor=actor, detail=detail)


def _begin_of_cores(pilot: PilotRow, request: EnrolRequest, now: float) -> float:
    """When the batch job began. A pilot that was started again is the same batch job."""
    if pilot.started is not None and pilot.cores_from is not None:
        return pilot.cores_from
    # The pilot knows best; a listing sees a batch job only some time after its start.
    reported = max(pilot.submitted, now - max(0.0, request.age))
    return min(now, reported if pilot.cores_from is None or request.age else pilot.cores_from)


def _find_pilot(tx: Transaction, request: EnrolRequest) -> PilotRow:
    """The pilot of a request, if it may enrol."""
    if request.protocol not in SUPPORTED:
        raise IncompatibleVersion(
            f"this pilot speaks protocol {request.protocol}, the server {', '.join(map(str, SUPPORTED))}",
            hint=f"submit pilots of this server's version (protocol {PROTOCOL})",
        )
    pilot = pilots.by_secret(tx.connection, secret_hash(request.secret), request.index)
    if pilot is None:
        raise NotAuthenticated("unknown pilot secret", hint="the pilot was submitted by another server")
    if pilot.state in FINAL and pilot.state is not PilotState.FAILED:
        raise Forbidden(f"this pilot is {pilot.state}", hint="its place has been given up: it should leave")
    if pilot.leave == LeaveOrder.KILL and pilot.started is None:
        raise Forbidden("this pilot has been cancelled", hint="its batch job is about to be cancelled too")
    return pilot


def _record_enrolment(ids: IdAllocators, tx: Transaction, pilot: PilotRow, hostname: str, now: float) -> None:
    PILOT_STATES.check(pilot.state, PilotState.RUNNING)
    record(
        tx.connection,
        ids.events,
        at=now,
        kind="pilot-enrolled",
        actor=f"pilot:{pilot.id}",
        detail=hostname,
        old=pilot.state,
        new=PilotState.RUNNING,
    )


def _settings(pool: Pool, pilot: PilotRow, ce: Ce | None, token: str, lease: float) -> EnrolResponse:
    """The settings of an enrolled pilot. `ce` is None if the policy no longer has its CE."""
    # The batch system was asked for the wall time of the submission, even if the policy has changed since.
    wall = pilot.wall or (ce.wall if ce else 0.0)
    return EnrolResponse(
        pilot=pilot.id,
        token=token,
        incarnation=pool.server.incarnation,
        site=pilot.site,
        ce=pilot.ce,
        lease=lease,
        heartbeat=ce.heartbeat if ce else 30.0,
        idle=ce.idle if ce else 60.0,
        cpu_power=ce.cpu_power if ce else 1.0,
        wall=wall,
        margin=wall_time.margin(wall) if wall else wall_time.MARGIN,
        least=wall_time.least(wall) if wall else wall_time.LEAST,
        processors=pilot.processors,
        memory=pilot.memory,
        disk=ce.pilot_disk if ce else 0,
        tags=list(ce.tags) if ce else [],
        isolation=ce.isolation if ce else "none",
        visible=list(ce.visible) if ce else [],
        max_output_file=pool.policy.jobs.max_output_file,
        send_log=pool.peers.shared if ce is None or ce.type == "local" else not ce.log_folder,
        probe=pilot.pilot_type == PROBE,
    )


def _compare_batch_ids(ids: IdAllocators, tx: Transaction, pilot: PilotRow, said: str, now: float) -> None:
    """Log a batch id that differs from the director's. It never replaces that: the stamp is the identity.

    A pilot takes its word from variables that its environment may have inherited from another batch job.
    """
    known = pilot.batch_id
    if said and known.partition("@")[0] and said != known:
        detail = f"pilot {pilot.id} says that it runs in batch job {said}; its director knows it as {known}"
        actor = f"pilot:{pilot.id}"
        record(tx.connection, ids.events, at=now, kind="batch-id", actor=actor, detail=detail)


def _send_away(pool: Pool, tx: Transaction, pilot: PilotRow, now: float) -> EnrolResponse:
    """The batch system has started a batch job again. Its first program may live on a node that was cut off."""
    if pilot.state not in FINAL:
        end_silent_pilot(pool, tx, pilot, PilotEnd.RESTARTED, RESTARTED, now)
    ce = pool.policy.ces.get(pilot.ce)
    answer = _settings(pool, pilot, ce, "", ce.lease if ce else DEFAULT_LEASE)
    answer.leave = RESTARTED
    return answer


def _supersede(pool: Pool, tx: Transaction, pilot: PilotRow, now: float) -> None:
    """Another program has come with the same secret: a restarted batch job, or a stolen secret."""
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, "server"))
    for job in jobs.of_pilots(tx.connection, [pilot.id]):
        moves.free(job, "pilot-superseded", f"pilot {pilot.id} was started again", pilot)
    moves.write()
    record(
        tx.connection,
        pool.ids.events,
        at=now,
        kind="alarm",
        actor=f"pilot:{pilot.id}",
        detail=f"a second program has enrolled as pilot {pilot.id} ({pilot.stamp}): the batch system restarted it,"
        " or its secret is known to somebody else",
    )
