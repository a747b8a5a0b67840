"""The loop of an agent: sync, split, wait. One thread, so that a call is never late for another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import TypeVar

from pilotage.agent.call_attempts import CallAttempts
from pilotage.agent.calls import AgentCalls
from pilotage.agent.machine import AgentMachine
from pilotage.agent.splitting import LONGEST_FAILURE, ElementLost, ElementSplitter, Guard
from pilotage.agent.stop_flag import StopFlag
from pilotage.core.errors import (
    Conflict,
    Forbidden,
    NotAuthenticated,
    NotFound,
    Overloaded,
    PilotageError,
    Superseded,
    Unreachable,
)
from pilotage.wire.agents import JoinRequest, OfferedElement, PostMasks
from pilotage.wire.tls import refused_certificate

T = TypeVar("T")
log = logging.getLogger(__name__)

LEAVE_TIMEOUT = 5.0
JOIN_AGAIN = "join again"
"""The server's hint when it has forgotten this process. Other refusals are final."""


class Stopping(Exception):
    """The process has been told to end."""


class AgentLoop:
    """Runs one agent until it is told to stop."""

    def __init__(
        self,
        calls: AgentCalls,
        who: JoinRequest,
        stop: StopFlag,
        *,
        monotonic: Callable[[], float],
        rng: Random,
        first_patience: float,
    ) -> None:
        """`stop`: when it is set, the agent gives back all elements and ends.

        `first_patience`: seconds to wait for the server before the first join; later there is no limit.
        """
        self._calls = calls
        self._who = who
        self._machine = AgentMachine(who.nonce)
        self._monotonic = monotonic
        self._rng = rng
        self._patience = first_patience
        self._stop = stop
        self._agent = 0
        self._is_away = False

    def run(self) -> None:
        """Work until the stop flag is set. Raises errors that a person must solve."""
        try:
            self._join()
            while not self._stop.is_set:
                self._sync_if_due()
                offer = self._machine.next_element()
                if offer is not None:
                    self._split(offer)
                elif (pause := self._machine.next_sync_at() - self._monotonic()) > 0:
                    self._stop.wait(pause)
        except Stopping:
            pass
        self._leave()

    def _join(self) -> None:
        answer = self._persist(lambda: self._calls.join(self._who))
        self._agent = answer.agent
        self._patience = float("inf")
        self._machine.join(self._monotonic())
        log.info("joined", extra={"facts": {"agent": answer.agent, "team": self._who.team}})

    def _sync_if_due(self) -> None:
        if self._monotonic() >= self._machine.next_sync_at():
            self._sync()

    def _sync(self) -> None:
        try:
            self._persist(self._exchange)
        except (Superseded, NotFound) as error:
            if not error.hint.startswith(JOIN_AGAIN):
                raise Conflict(error.message, hint=error.hint) from error
            log.warning("joining again", extra={"facts": {"reason": error.message}})
            self._join()

    def _exchange(self) -> None:
        sent_at = self._monotonic()
        sent = self._machine.sync_request()
        answer = self._calls.sync(self._agent, sent)
        turn = self._machine.take_answer(sent, answer, sent_at)
        if turn.taken or turn.stopped:
            facts = {"taken": [offer.id for offer in turn.taken], "stopped": list(turn.stopped)}
            log.info("synchronized", extra={"facts": facts})

    def _split(self, offer: OfferedElement) -> None:
        facts: dict[str, object] = {"element": offer.id, "epoch": offer.epoch, "request": offer.request}

        def guard(call: Callable[[], T], /) -> T:
            self._sync_if_due()
            if not self._machine.holds(offer):
                raise ElementLost
            return self._persist(call)

        try:
            splitter = ElementSplitter(self._calls, self._agent, offer, guard)
            result = splitter.run(is_retry=self._machine.is_retry(offer))
        except ElementLost:
            self._machine.drop(offer)
            log.info("element lost", extra={"facts": facts})
        except (Stopping, NotAuthenticated, Forbidden):
            raise
        except PilotageError as error:
            self._machine.give_back(offer, error.message)
            log.warning("element given back", extra={"facts": {**facts, "reason": error.message}})
        except Exception as error:
            log.exception("splitting failed", extra={"facts": facts})
            self._fail(offer, f"{type(error).__name__}: {error}", guard)
        else:
            self._machine.finish(offer, result.made)
            log.info("split", extra={"facts": {**facts, **result._asdict()}})

    def _fail(self, offer: OfferedElement, reason: str, guard: Guard) -> None:
        """Try the element again, or report after some tries that it cannot be split."""
        if self._machine.may_retry(offer):
            return
        request = PostMasks(offer.epoch, last=True, failure=reason[:LONGEST_FAILURE])
        try:
            guard(lambda: self._calls.post_masks(self._agent, offer, request))
        except (ElementLost, Conflict, NotFound) as error:
            log.info("element lost", extra={"facts": {"element": offer.id, "reason": str(error)}})
        self._machine.drop(offer)

    def _persist(self, call: Callable[[], T]) -> T:
        """Repeat a call until the server answers. Raises Stopping when the process is told to end."""
        attempts = CallAttempts(
            self._monotonic(), self._rng, patience=self._patience, has_joined=bool(self._agent)
        )
        while True:
            if self._stop.is_set:
                raise Stopping
            try:
                answer = call()
            except (Unreachable, Overloaded) as error:
                pause = attempts.pause_after_failure(
                    self._monotonic(),
                    getattr(error, "retry_after", 0.0),
                    is_untrusted=refused_certificate(error) is not None,
                )
                if pause is None:
                    raise
                self._report_outage(error)
                self._stop.wait(pause)
            else:
                if self._is_away:
                    self._is_away = False
                    log.info("the server answers again")
                return answer

    def _report_outage(self, error: PilotageError) -> None:
        if not self._is_away:
            self._is_away = True
            log.warning("the server is away", extra={"facts": {"reason": error.message}})

    def _leave(self) -> None:
        """Give everything back. One attempt: without it the elements go back when the lease is over."""
        if not self._agent:
            return
        self._machine.drain()
        try:
            self._calls.sync(self._agent, self._machine.sync_request(), timeout=LEAVE_TIMEOUT)
        except PilotageError as error:
            log.warning("left without a word to the server", extra={"facts": {"reason": error.message}})
        else:
            log.info("left")
