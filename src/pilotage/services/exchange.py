"""The exchange with a pilot: finishes, releases, confirms, a take and a heartbeat in one transaction.

Every message about a job goes through the hand-over's table; what it decides is saved together with its event.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from pilotage.core.errors import NotAuthenticated, Superseded
from pilotage.core.handover import Answer, Decision, Effect, Fence, Message, Phase, decide
from pilotage.core.ids import JobId
from pilotage.core.jobs.states import FINAL, HELD, JobState
from pilotage.core.pilots.states import FINAL as PILOT_FINAL
from pilotage.core.pilots.states import PILOT_STATES, PilotState
from pilotage.services.finishing import apply_finish
from pilotage.services.matching import answer_take
from pilotage.services.moves import Moves
from pilotage.services.pool import Pool
from pilotage.store import attempts, jobs, pilots
from pilotage.store.events import record
from pilotage.store.jobs import JobRow
from pilotage.store.pilots import PilotRow
from pilotage.store.writer import Transaction
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Finish, Reference, Release, Verdict

UNKNOWN = "unknown"


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def pilot_of_token(pool: Pool, tx: Transaction, hashed: str) -> PilotRow:
    """The pilot that has this token, or `NotAuthenticated`."""
    pilot = pool.pilots.get(hashed)
    if pilot is None:
        pilot = pilots.by_token(tx.connection, hashed)
        if pilot is None:
            raise NotAuthenticated(
                "this pilot's token is not known", hint="it was superseded, or its server is new"
            )
        pool.remember_pilot(pilot)
    return pilot


def exchange(
    pool: Pool, tx: Transaction, hashed: str, request: ExchangeRequest, now: float
) -> ExchangeResponse:
    """Answer one message of a pilot. Raises `NotAuthenticated` and `Superseded`."""
    pilot = pilot_of_token(pool, tx, hashed)
    if request.incarnation != pool.incarnation:
        raise Superseded(
            f"the server's incarnation is {pool.incarnation}, the message is of {request.incarnation}",
            hint="the database was restored from a backup: this pilot's work is no longer its own",
        )
    conversation = _Conversation(pool, tx, pilot, now)
    return conversation.answer(request)


def phase_of(state: JobState) -> Phase:
    if state in HELD:
        return Phase.HELD
    if state is JobState.MATCHED:
        return Phase.OFFERED
    return Phase.FINAL if state in FINAL else Phase.FREE


@dataclass(slots=True)
class _Conversation:
    """One request of one pilot."""

    pool: Pool
    tx: Transaction
    pilot: PilotRow
    now: float

    def answer(self, request: ExchangeRequest) -> ExchangeResponse:
        pool, pilot, now = self.pool, self.pilot, self.now
        ce = pool.policy.ces.get(pilot.ce)
        response = ExchangeResponse(incarnation=pool.incarnation)
        events = pool.batch(now, f"pilot:{pilot.id}")
        moves = Moves(pool, self.tx, now, events)
        self._heard(moves)
        if request.finishes or request.releases or request.confirms:
            self._about_jobs(request, response, moves)
            moves.write()
        gone = pilot.state in PILOT_FINAL
        if request.take is not None and not request.leaving and not gone:
            answer_take(pool, self.tx, pilot, request.take, moves, response)
        if request.holding:
            response.stop = self._to_stop(request.holding)
        if request.leaving and not gone:
            self._leaves(request.leaving, moves)
        moves.write()
        response.lease = ce.lease if ce else 3600.0
        response.heartbeat = ce.heartbeat if ce else 30.0
        response.leave = "cancel" if gone else pilot.leave or ("drain" if pool.draining else "")
        if pool.followed:
            response.follow = self._followed(request)
        return response

    # --- the pilot itself

    def _heard(self, moves: Moves) -> None:
        """Renew the lease, written only when a third of it has gone; wake what had stalled."""
        pool, pilot = self.pool, self.pilot
        pool.seen[pilot.id] = self.now
        if pilot.state is PilotState.FAILED:
            self._comes_back()
        ce = pool.policy.ces.get(pilot.ce)
        lease = ce.lease if ce else 3600.0
        if pilot.lease_until is None or pilot.lease_until - self.now < lease * 2 / 3:
            pool.touch_pilot(self.tx, pilot)
            pilot.lease_until = self.now + lease
            pilots.update(self.tx.connection, pilot.id, lease_until=pilot.lease_until)
        if pilot.id in pool.stalled:
            pool.stalled.discard(pilot.id)
            self.tx.on_rollback(lambda: pool.stalled.add(pilot.id))
            for job in jobs.of_pilot(self.tx.connection, pilot.id):
                if job.state is JobState.STALLED:
                    moves.move(job, "heard-again", JobState.RUNNING)
            moves.write()

    def _comes_back(self) -> None:
        """Its lease ran out, but it lives: it may work again. Its old jobs are fenced by their epochs."""
        pilot = self.pilot
        PILOT_STATES.check(pilot.state, PilotState.RUNNING)
        self.pool.touch_pilot(self.tx, pilot)
        pilot.state, pilot.ended, pilot.lease_until = PilotState.RUNNING, None, None
        pilots.update(self.tx.connection, pilot.id, state=pilot.state, ended=None, reason="")
        self._pilot_event("pilot-back", PilotState.FAILED, PilotState.RUNNING, "after its lease had run out")

    def _leaves(self, reason: str, moves: Moves) -> None:
        """The pilot ends in good order; what it still has goes back."""
        pilot = self.pilot
        for job in jobs.of_pilot(self.tx.connection, pilot.id):
            moves.free(job, "released", f"pilot leaves: {reason}", pilot)
        self.pool.touch_pilot(self.tx, pilot)
        old, pilot.state, pilot.ended = pilot.state, PilotState.DONE, self.now
        PILOT_STATES.check(old, PilotState.DONE)
        pilots.update(self.tx.connection, pilot.id, state=pilot.state, ended=self.now, reason=reason)
        self.pool.pilot_ended(self.tx, pilot.id)
        self._pilot_event("pilot-left", old, PilotState.DONE, reason)

    def _pilot_event(self, kind: str, old: PilotState, new: PilotState, detail: str) -> None:
        actor = f"pilot:{self.pilot.id}"
        record(
            self.tx.connection,
            self.pool.events,
            at=self.now,
            kind=kind,
            actor=actor,
            detail=detail,
            old=old,
            new=new,
        )

    # --- its jobs

    def _about_jobs(self, request: ExchangeRequest, response: ExchangeResponse, moves: Moves) -> None:
        named = [finish.job for finish in request.finishes]
        named += [release.job for release in request.releases]
        named += [confirm.job for confirm in request.confirms]
        rows = jobs.by_ids(self.tx.connection, named)
        for finish in request.finishes:
            response.finishes.append(self._finish(finish, rows, moves))
        for release in request.releases:
            response.releases.append(self._release(release, rows, moves))
        for confirm in request.confirms:
            response.confirms.append(self._confirm(confirm, rows, moves))

    def _finish(self, finish: Finish, rows: dict[int, JobRow], moves: Moves) -> Verdict:
        digest = hashlib.blake2b(msgspec.json.encode(finish), digest_size=8).hexdigest()
        job = rows.get(finish.job)
        decision = self._decide(job, finish, Message.FINISH, digest)
        if job is not None and decision.effect is Effect.APPLY:
            if job.state is JobState.MATCHED:
                job = self._confirmed_by_finish(job, moves)
            state = apply_finish(self.pool, finish, job, self.pilot, moves)
            moves.finish_taken(job.id, finish.epoch, digest)
            # One message after another about the same job sees what the first has done.
            rows[job.id] = job._replace(
                state=state, pilot=None, finished_epoch=finish.epoch, finished_digest=digest
            )
            self._count_finished()
        return _verdict(finish, job, decision)

    def _confirmed_by_finish(self, job: JobRow, moves: Moves) -> JobRow:
        """Its confirm was lost, or comes behind: without a try on record the finish could not be known again."""
        moves.hold(job, self.pilot)
        moves.write()
        return jobs.by_ids(self.tx.connection, [job.id])[job.id]

    def _count_finished(self) -> None:
        finished, pilot = self.pool.finished, self.pilot.id
        before = finished.get(pilot, 0)
        finished[pilot] = before + 1
        self.tx.on_rollback(lambda: finished.update({pilot: before}))

    def _release(self, release: Release, rows: dict[int, JobRow], moves: Moves) -> Verdict:
        job = rows.get(release.job)
        decision = self._decide(job, release, Message.RELEASE)
        if job is not None and decision.effect is Effect.FREE:
            moves.free(job, "released", release.reason, self.pilot)
            rows[job.id] = job._replace(state=JobState.WAITING, pilot=None)
        return _verdict(release, job, decision)

    def _confirm(self, confirm: Reference, rows: dict[int, JobRow], moves: Moves) -> Verdict:
        job = rows.get(confirm.job)
        decision = self._decide(job, confirm, Message.CONFIRM)
        if job is not None and decision.effect is Effect.HOLD:
            moves.hold(job, self.pilot)
            rows[job.id] = job._replace(state=JobState.RUNNING, attempt=job.attempt + 1)
        return _verdict(confirm, job, decision)

    def _decide(
        self, job: JobRow | None, message: Finish | Release | Reference, verb: Message, digest: str = ""
    ) -> Decision:
        if job is None or not self._is_or_was_ours(job, message.epoch):
            return Decision(Answer.SUPERSEDED)
        fence = Fence(job.epoch, job.finished_epoch, job.finished_digest)
        return decide(phase_of(job.state), verb, fence.relation(message.epoch, digest))

    def _is_or_was_ours(self, job: JobRow, epoch: int) -> bool:
        """A pilot may only speak of tries that were its own."""
        if job.pilot == self.pilot.id and job.epoch == epoch:
            return True
        return attempts.pilot_of(self.tx.connection, job.id, epoch) == self.pilot.id

    def _to_stop(self, holding: list[Reference]) -> list[Verdict]:
        """Of what the pilot believes to hold: what it must stop."""
        rows = jobs.by_ids(self.tx.connection, [held.job for held in holding])
        stop = []
        for held in holding:
            job = rows.get(held.job)
            if job is not None and job.pilot == self.pilot.id and job.epoch == held.epoch:
                continue
            decision = self._decide(job, held, Message.KEEP)
            if decision.answer is Answer.SUPERSEDED:
                stop.append(_verdict(held, job, decision))
        return stop

    def _followed(self, request: ExchangeRequest) -> list[int]:
        watched = self.pool.followed
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
