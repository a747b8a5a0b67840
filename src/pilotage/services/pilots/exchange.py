"""The exchange with a pilot: finishes, releases, confirms, a take and a heartbeat in one transaction.

Every message about a job goes through the hand-over's table. Each decision is saved together with its event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from pilotage.core.errors import NotAuthenticated, PilotageError, Superseded
from pilotage.core.handover import Answer, Decision, Effect, Fence, decide
from pilotage.core.handover import Message as Verb
from pilotage.core.ids import JobId, PilotId
from pilotage.core.jobs.states import JobState, custody_of
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.pilots.states import FINAL as PILOT_FINAL
from pilotage.core.pilots.states import PilotState
from pilotage.core.shares.turns import SHARE, next_owner
from pilotage.services.jobs.data_orders import OfferedRequestJob, add_orders
from pilotage.services.jobs.results import apply_finish, save_result
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.matching.match import Match
from pilotage.services.pilots.come_back import come_back, contradict_absence, lapsed_attempt
from pilotage.services.pilots.held_claims import HeldClaims, reported_jobs
from pilotage.services.pilots.lifecycle import PilotEnd, end_of_goodbye, end_pilot
from pilotage.services.pilots.payload_uses import note_uses
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.store.tables import attempts, pilots
from pilotage.store.tables.events import SEVERAL_PILOTS
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Handler, Transaction
from pilotage.wire.pilot import (
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Reference,
    Release,
    StartedPayload,
    Verdict,
)

UNKNOWN = "unknown"

# Looked up once: an attribute of an enumeration is dear where every message asks for it.
_FAILED, _RUNNING = PilotState.FAILED, PilotState.RUNNING

_GONE = PILOT_FINAL - {_FAILED}
"""A pilot in one of these states never works again. One that has Failed may come back."""


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def pilot_of_token(pool: Pool, tx: Transaction, hashed: str) -> PilotRow:
    """The pilot that has this token, or `NotAuthenticated`."""
    pilot = pool.pilots.rows.use(hashed)
    if pilot is None:
        pilot = next(iter(pilots.by_tokens(tx.connection, [hashed])), None)
        if pilot is None:
            raise NotAuthenticated(
                "this pilot's token is not known", hint="it was superseded, or its server is new"
            )
        pool.pilots.rows.remember(pilot)
        # The row has this transaction's own changes: it is read again if the transaction fails.
        pool.pilots.rows.touch(tx, pilot)
    return pilot


PilotMessage = tuple[str, ExchangeRequest]
"""The hash of a pilot's token, and its request."""


def exchange_handler(pool: Pool, clock: Callable[[], float]) -> Handler:
    """Makes one transaction of the messages that the writer groups."""

    def handle(
        tx: Transaction, messages: Sequence[PilotMessage]
    ) -> Sequence[ExchangeResponse | PilotageError]:
        return exchange_many(pool, tx, messages, clock())

    return handle


def exchange_many(
    pool: Pool, tx: Transaction, messages: Sequence[PilotMessage], now: float
) -> list[ExchangeResponse | PilotageError]:
    """Answer messages of pilots, one after another, in one transaction.

    Each gets its answer or, if nothing was done for it, `NotAuthenticated` or `Superseded`. The number of statements
    does not grow with that of the messages.
    """
    if pool.peers.shared:
        pool.pilots.rows.reload(tx, [hashed for hashed, _ in messages])
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, SEVERAL_PILOTS))
    claims = HeldClaims(moves)
    requests: list[PilotRequest] = []
    # By their place in `messages`.
    refused: dict[int, PilotageError] = {}
    for hashed, message in messages:
        try:
            requests.append(PilotRequest(pool, tx, _admit(pool, tx, hashed, message), message, claims))
        except PilotageError as error:
            refused[len(requests) + len(refused)] = error
    living = [request.pilot.id for request in requests if request.pilot.state not in _GONE]
    tx.put_all(pool.pilots.last_seen, living, now)
    # No rollback takes a sign of life back.
    pool.pilots.heard.update(dict.fromkeys(living, now))
    messages_of = [(request.pilot.id, request.request) for request in requests]
    claims.load(messages_of)
    note_uses(pool, tx, messages_of, now)
    for request in requests:
        request.carry_out()
    moves.write()
    _replace_lost_offers(moves, requests)
    pool.queues.index.prefetch_heads()
    pool.jobs.submissions.load(
        tx, [job.submission for request in requests if request.match for job in request.match.given]
    )
    of_requests: list[OfferedRequestJob] = []
    answers: list[ExchangeResponse | PilotageError] = [request.answer(of_requests) for request in requests]
    add_orders(pool, tx, of_requests)
    # Ascending places, so that each one is right when its error is inserted.
    for place, refusal in refused.items():
        answers.insert(place, refusal)
    return answers


def _admit(pool: Pool, tx: Transaction, hashed: str, request: ExchangeRequest) -> PilotRow:
    pilot = pool.pilots.rows.use(hashed) or pilot_of_token(pool, tx, hashed)
    if request.incarnation != pool.server.incarnation:
        raise Superseded(
            f"the server's incarnation is {pool.server.incarnation}, the message is of {request.incarnation}",
            hint="the database was restored from a backup: this pilot's work is no longer its own",
        )
    return pilot


def _replace_lost_offers(moves: JobTransitions, requests: Sequence[PilotRequest]) -> None:
    """Draw again for pilots that lost the race for an offered job, a bounded number of times."""
    for last in (False, False, True):
        if not moves.lost:
            return
        lost, moves.lost = moves.lost, set()
        # Queues are read again while all is written: only then does anybody draw from them.
        losers = [request for request in requests if request.drop_lost_offers(lost)]
        if last:
            moves.write()
            return
        for request in losers:
            request.draw_again()
        moves.write()


class PilotRequest:
    """One request of one pilot."""

    __slots__ = (
        *("_tries", "gone", "has_reports", "held_claims", "match", "moves"),
        *("now", "pilot", "pool", "request", "response", "tx"),
    )

    def __init__(
        self, pool: Pool, tx: Transaction, pilot: PilotRow, request: ExchangeRequest, claims: HeldClaims
    ) -> None:
        self.pool, self.tx, self.pilot, self.request = pool, tx, pilot, request
        self.held_claims, self.moves = claims, claims.moves
        self.now = self.moves.now
        self.response = ExchangeResponse(incarnation=pool.server.incarnation)
        self.match: Match | None = None
        self._tries: set[tuple[int, int]] | None = None
        """The tries (job, epoch) of jobs in the request that were this pilot's. None: not read yet."""
        self.gone = False
        """The pilot had ended before this request."""
        self.has_reports = bool(request.finishes or request.releases or request.confirms)

    def carry_out(self) -> None:
        """Apply the reports, match the take, answer the rest. Offers are certain only once they are written."""
        pool, pilot, request, response = self.pool, self.pilot, self.request, self.response
        self.moves.pilot = pilot.id
        ce = pool.policy.ces.get(pilot.ce)
        response.lease, response.heartbeat = (ce.lease, ce.heartbeat) if ce else (3600.0, 30.0)
        gone = self.gone = pilot.state is not _RUNNING and pilot.state in _GONE
        if not gone:
            self._heard(response.lease)
        if self.has_reports:
            self._apply_reports()
        # Before the take, which could offer a job to the pilot that works on it.
        if request.holding:
            response.stop = self._jobs_to_stop(request.holding)
        # After that, so that it finds the jobs of a pilot that has come back.
        for start in request.starts:
            self._start(start)
        if request.take is not None and not request.leaving and not gone:
            self.match = Match(pool, self.tx, pilot, request.take, self.moves)
            self.match.run()
        if request.leaving and not gone:
            self._leaves(request.leaving)
        if gone or pilot.leave or pool.server.draining:
            response.leave = self._leave_order(gone)
        if pool.jobs.followed:
            response.follow = self._followed(request)

    def _leave_order(self, gone: bool) -> str:
        if gone:
            return "cancel"
        leave = self.pilot.leave
        if leave == LeaveOrder.KILL:
            return "cancel"
        if next_owner(leave) is not None or (not leave and self.pool.server.draining):
            return "drain"
        return leave

    def drop_lost_offers(self, lost: set[tuple[PilotId, JobId]]) -> bool:
        """Drop offers of jobs that another pilot was given; whether this pilot had any."""
        return self.match is not None and self.match.drop_lost(lost)

    def draw_again(self) -> None:
        """Replace the offers that were lost, unless the pilot has left since."""
        if self.match is not None and self.pilot.state not in PILOT_FINAL:
            self.moves.pilot = self.pilot.id
            self.match.run()

    def answer(self, of_requests: list[OfferedRequestJob]) -> ExchangeResponse:
        """The response, once everything is written. Offered jobs of requests are added to `of_requests`."""
        if self.match is not None:
            of_requests += self.match.fill_in(self.response)
        return self.response

    # --- the pilot itself

    def _heard(self, lease: float) -> None:
        """Renew the lease, written only when a third of it has gone; resume stalled jobs."""
        pool, pilot = self.pool, self.pilot
        if pilot.state is _FAILED:
            come_back(pool, self.tx, pilot, self.now)
        if pilot.lease_until is None or pilot.lease_until - self.now < lease * 2 / 3:
            pool.pilots.rows.touch(self.tx, pilot)
            pilot.lease_until = self.now + lease
            pilots.update(self.tx.connection, pilot.id, lease_until=pilot.lease_until)
        if pilot.absent_since is not None:
            contradict_absence(pool, self.tx, pilot, self.now)
        stalled = pilot.id in pool.pilots.stalled
        if pilot.server != pool.peers.server:
            # It spoke to another server before, which may have found it silent.
            stalled, pilot.server = True, pool.peers.server
            pool.peers.publish(self.tx, PeerUpdate(pilots=[pilot.id]))
            pilots.update(self.tx.connection, pilot.id, server=pilot.server)
        if stalled:
            self.tx.discard(pool.pilots.stalled, pilot.id)
            pool.pilots.watch.add(pilot.id, pilot.ce, self.now)
            # The list has every job of the pilot, and maybe more.
            for job in self.moves.of_pilot(pilot.id) if pilot.jobs else ():
                if job.state is JobState.STALLED:
                    self.moves.move(job, "heard-again", JobState.RUNNING)

    def _leaves(self, reason: str) -> None:
        """End the pilot in good order; its jobs wait again."""
        pilot = self.pilot
        if next_owner(pilot.leave) is not None:
            reason = SHARE
        elif pilot.leave and pilot.reason:
            # The reason of the order says more than the pilot, which only knows that it was told to leave.
            reason = pilot.reason
        if self.request.log:
            pilots.update(self.tx.connection, pilot.id, log=self.request.log)
        end_pilot(self.moves, pilot, PilotEnd.UNFIT if self.request.unfit else end_of_goodbye(pilot), reason)

    # --- its jobs

    def _apply_reports(self) -> None:
        request, response = self.request, self.response
        for finish in request.finishes:
            response.finishes.append(self._finish(finish))
        for release in request.releases:
            response.releases.append(self._release(release))
        ahead = set(request.ahead)
        for confirm in request.confirms:
            response.confirms.append(self._confirm(confirm, ahead=confirm.job in ahead))

    def _finish(self, finish: Finish) -> Verdict:
        moves = self.moves
        digest = hashlib.blake2b(msgspec.json.encode(finish), digest_size=8).hexdigest()
        job = moves.row(finish.job)
        decision = self._decide(job, finish, Verb.FINISH, digest)
        verdict = _verdict(finish, job, decision)
        if job is not None and decision.effect is Effect.APPLY:
            if job.state is JobState.MATCHED:
                # The confirm was lost, or is late. The finish records the try, so that a repeated finish is recognized.
                job = self._hold(job)
            apply_finish(self.pool, finish, job, self.pilot, moves)
            moves.finish_taken(moves.rows[job.id], finish.epoch, digest)
            self._count_finished()
        elif job is not None and self._was_killed(job, finish.epoch):
            # It ended before its pilot heard of the kill: its output is kept.
            save_result(finish, moves)
        return verdict

    def _was_killed(self, job: JobRow, epoch: int) -> bool:
        """Whether somebody killed this very try of this pilot's."""
        return job.state is JobState.KILLED and job.epoch == epoch and self._is_own_try(job, epoch)

    def _count_finished(self) -> None:
        finished, pilot = self.pool.pilots.finished, self.pilot.id
        if self.gone:
            # Memory holds nothing of a pilot that has ended: nobody would write it down.
            pilots.add_finished(self.tx.connection, pilot, 1)
            return
        self.tx.put(finished, pilot, finished.get(pilot, 0) + 1)

    def _release(self, release: Release) -> Verdict:
        job = self.moves.row(release.job)
        decision = self._decide(job, release, Verb.RELEASE)
        if job is not None and decision.effect is Effect.FREE:
            self.moves.free(job, "released", release.reason, self.pilot, release.ran)
        return _verdict(release, job, decision)

    def _start(self, start: StartedPayload) -> None:
        """A payload that was taken ahead runs. Without effect if its job is another one's, or was known to run."""
        job = self.moves.row(start.job)
        decision = self._decide(job, start, Verb.KEEP)
        if job is not None and decision.answer is not Answer.SUPERSEDED and job.state is JobState.TAKEN:
            self.moves.begin(job, start.ran)

    def _confirm(self, confirm: Reference, *, ahead: bool) -> Verdict:
        job = self.moves.row(confirm.job)
        decision = self._decide(job, confirm, Verb.CONFIRM)
        if job is not None and decision.effect is Effect.HOLD:
            self._hold(job, ahead=ahead)
        elif (
            job is not None
            and job.state is JobState.TAKEN
            and not ahead
            and decision.answer is Answer.ACCEPTED
        ):
            # The first answer was lost, and there is room by now.
            self.moves.begin(job, 0.0)
        return _verdict(confirm, job, decision)

    def _decide(
        self, job: JobRow | None, message: Finish | Release | Reference, verb: Verb, digest: str = ""
    ) -> Decision:
        if job is None or not self._is_own_try(job, message.epoch):
            return Decision(Answer.SUPERSEDED)
        fence = Fence(job.epoch, job.finished_epoch, job.finished_digest)
        return decide(custody_of(job.state), verb, fence.relation(message.epoch, digest))

    def _is_own_try(self, job: JobRow, epoch: int) -> bool:
        """A pilot may only speak of tries that were its own."""
        if job.pilot == self.pilot.id and job.epoch == epoch:
            return True
        if self._tries is None:
            self.moves.write()
            named = {*reported_jobs(self.request), *(held.job for held in self.request.holding)}
            self._tries = attempts.tries_of_pilot(self.tx.connection, self.pilot.id, named)
        return (job.id, epoch) in self._tries

    def _hold(self, job: JobRow, *, ahead: bool = False) -> JobRow:
        if self._tries is not None:
            self._tries.add((job.id, job.epoch))
        return self.moves.hold(job, self.pilot, ahead=ahead)

    def _jobs_to_stop(self, holding: list[Reference]) -> list[Verdict]:
        """The jobs among `holding` that the pilot must stop."""
        pilot = self.pilot
        stop = []
        for held in self.held_claims.differing(pilot.id, holding):
            job = self.moves.rows.get(held.job)
            lapsed = None if job is None or self.gone else lapsed_attempt(self.moves, job, held.epoch, pilot)
            decision = self._decide(job, held, Verb.RESUME if lapsed else Verb.KEEP)
            if job is not None and lapsed is not None and decision.effect is Effect.RESUME:
                self.moves.resume(job, pilot, lapsed)
                continue
            if decision.answer is Answer.SUPERSEDED:
                verdict = _verdict(held, job, decision)
                if job is not None and job.epoch == held.epoch:
                    verdict.keep_streams = job.state is JobState.KILLED
                stop.append(verdict)
        return stop

    def _followed(self, request: ExchangeRequest) -> list[int]:
        watched = self.pool.jobs.followed
        return [held.job for held in request.holding if watched.get(JobId(held.job), 0.0) > self.now]


def _verdict(message: Finish | Release | Reference, job: JobRow | None, decision: Decision) -> Verdict:
    if job is None:
        return Verdict(message.job, message.epoch, UNKNOWN, "no such job")
    reason = ""
    if decision.answer is Answer.SUPERSEDED:
        reason = (
            f"the job is {job.state}" if job.epoch == message.epoch else f"epoch {job.epoch} has been given"
        )
    return Verdict(message.job, message.epoch, str(decision.answer), reason)
