"""The duty that asks batch systems about their CEs: hosts, limits, running and waiting jobs.

A question may hang for minutes, so each has a thread of its own. Answers are stored together, a few in a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from pilotage.core.errors import PilotageError
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy import Ce, Policy
from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.duties.duty import Duty
from pilotage.services.director.information import (
    CeReply,
    ProblemChange,
    forget,
    response_times,
    store_answers,
    with_response_times,
)
from pilotage.store.tables import ce_information
from pilotage.store.tables.waits import recent_waits
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

MOST_QUESTIONS = 16
"""Questions at the same time, so that a thousand CEs do not start a thousand commands at once."""

CLOSED_PERIOD = 10.0
"""Seconds to the next question to a closed CE: a controller that has just started tells so for a moment."""

SLOW = 10.0
"""Seconds after which a question holds up no others."""

ANSWERS_PER_TRANSACTION = 20

STORE = "store answers"

WAITS_PERIOD = 60.0
"""Seconds between two looks at the waits of our own pilots."""

LONGEST_PROBLEM = 500
"""Characters of a problem."""


@dataclass(eq=False, slots=True)
class _InformationQuestion:
    """A question to one batch system. Its thread sets the answer."""

    name: str
    ce: Ce
    asked: float
    answer: CeInformation | None = None
    problem: str = ""
    ended: bool = False

    def ask(self, batch: BatchAdapter) -> None:
        try:
            self.answer = batch.information()
        except PilotageError as error:
            self.problem = str(error)[:LONGEST_PROBLEM] or "the batch system does not answer"
        except Exception as error:
            # An output that nobody has foreseen: other CEs and later questions go on.
            log.exception("CE %s: its information could not be read", self.name)
            self.problem = f"its answer could not be read: {type(error).__name__}"
        finally:
            self.ended = True


class _CeAdapter(NamedTuple):
    ce: Ce
    """The section of the policy that the adapter was made for."""
    batch: BatchAdapter


class InformationDuty(Duty):
    """Asks all CEs of the policy that are batch systems, each by its own period."""

    name = "information of batch systems"
    lease = "batch pilots"
    every = 2.0
    """Seconds between two looks for CEs whose period is over: `ces.NAME.information_period`."""
    local: ClassVar[bool] = False
    """It asks the local CEs instead."""

    def __init__(self, context: Context, make: Callable[[str, Ce], BatchAdapter]) -> None:
        super().__init__(context)
        self.wake = asyncio.Event()
        """Set when an answer has come."""
        self._make = make
        self._adapters: dict[str, _CeAdapter] = {}
        self._due: dict[str, float] = {}
        """When the period of each CE is over."""
        self._questions: dict[str, _InformationQuestion] = {}
        """The questions without a stored answer."""
        self._threads = DaemonThreads("information")
        self._asked: set[asyncio.Future[None]] = set()
        """The calls that run."""
        self._cleaned_for: Policy | None = None
        """The policy whose missing CEs have no rows any more."""
        self._times: Mapping[str, tuple[int, int]] = {}
        self._times_read = -WAITS_PERIOD

    async def work(self) -> None:
        """Store the answers that have come, and ask the CEs whose period is over."""
        # A CE whose answer cannot be stored is asked again after its period.
        self._rows.leave_out(STORE)
        self._drop_outdated()
        await self._store()
        await self._forget_gone()
        now = self._context.clock()
        room = MOST_QUESTIONS - sum(now - question.asked < SLOW for question in self._questions.values())
        for name, ce in self._context.pool.policy.ces.items():
            if room <= 0:
                break
            if (
                (ce.type == "local") is self.local
                and name not in self._questions
                and self._is_due(name, ce, now)
            ):
                self._ask(name, ce, now)
                room -= 1

    def _drop_outdated(self) -> None:
        """Give up the questions of CEs that the policy has changed since: their answers may be of another cluster."""
        ces = self._context.pool.policy.ces
        for name, question in list(self._questions.items()):
            if ces.get(name) != question.ce:
                del self._questions[name]
                # Its command would hold up the thread for minutes.
                if (adapter := self._adapters.get(name)) is not None:
                    adapter.batch.close()

    def _is_due(self, name: str, ce: Ce, now: float) -> bool:
        adapter = self._adapters.get(name)
        if adapter is None or adapter.ce != ce:
            return True
        due = self._due.get(name, now)
        # A clock that stepped back ends the wait.
        return now >= due or due - now > ce.information_period

    def _ask(self, name: str, ce: Ce, now: float) -> None:
        adapter = self._adapters.get(name)
        if adapter is None or adapter.ce != ce:
            if adapter is not None:
                adapter.batch.close()
            adapter = self._adapters[name] = _CeAdapter(ce, self._make(name, ce))
        self._due[name] = now + ce.information_period
        question = self._questions[name] = _InformationQuestion(name, ce, now)
        asked = asyncio.get_running_loop().run_in_executor(self._threads, question.ask, adapter.batch)
        self._asked.add(asked)
        asked.add_done_callback(self._on_ended)

    def _on_ended(self, asked: asyncio.Future[None]) -> None:
        self._asked.discard(asked)
        self.wake.set()

    async def _store(self) -> None:
        """Store the answers, a few in each transaction."""
        ended = [question for question in self._questions.values() if question.ended]
        if not ended:
            return
        await self._read_times()
        pool = self._context.pool
        current = {q.name: q for q in ended if pool.policy.ces.get(q.name) == q.ce}
        changes: dict[str, ProblemChange] = {}

        def store(tx: Transaction, names: Sequence[str]) -> int:
            answers = [self._answer_of(current[name]) for name in names]
            for change in store_answers(pool, tx, answers, self._context.clock()):
                tx.put(changes, change.ce, change)
            return len(names)

        await self._rows.in_slices(STORE, sorted(current), store, ANSWERS_PER_TRANSACTION)
        _log_changes(changes.values(), {question.name for question in ended if question.answer is None})
        for question in ended:
            del self._questions[question.name]
            if question.answer is not None and question.answer.is_closed:
                again = question.asked + CLOSED_PERIOD
                self._due[question.name] = min(self._due[question.name], again)

    def _answer_of(self, question: _InformationQuestion) -> CeReply:
        if question.answer is None:
            return CeReply(question.name, None, question.problem)
        lifetime = question.ce.information_lifetime
        facts = replace(question.answer, updated=question.asked, expiry=lifetime)
        return CeReply(question.name, with_response_times(facts, self._times.get(question.name)))

    async def _read_times(self) -> None:
        now = self._context.clock()
        if 0 <= now - self._times_read < WAITS_PERIOD:
            return
        waits = await self._context.quick_read(recent_waits)
        self._times, self._times_read = response_times(waits, now), now

    async def _forget_gone(self) -> None:
        """Close the adapters of CEs that have gone from the policy, and delete their facts.

        The facts of a CE that is another cluster now are deleted too.
        """
        policy = self._context.pool.policy
        if policy is self._cleaned_for:
            return
        for name in [name for name in self._adapters if name not in policy.ces]:
            self._adapters.pop(name).batch.close()
            self._due.pop(name, None)
            self._questions.pop(name, None)
            self._rows.succeeded(STORE, name)
        moved = {
            name
            for name, adapter in self._adapters.items()
            if _batch_system(adapter.ce) != _batch_system(policy.ces[name])
        }
        gone = await self._context.quick_read(ce_information.names) - policy.ces.keys() | moved
        if gone:
            await self._context.writer.acall(lambda tx: forget(self._context.pool, tx, sorted(gone)))
        self._cleaned_for = policy

    def close(self) -> None:
        """Kill the commands that run. Nobody waits for the calls that hang."""
        for asked in self._asked:
            asked.cancel()
        for adapter in self._adapters.values():
            with contextlib.suppress(OSError):
                adapter.batch.close()


class LocalInformationDuty(InformationDuty):
    """Asks the CEs on this machine."""

    name = "information of local CEs"
    lease = "local pilots"
    local = True


def _batch_system(ce: Ce) -> tuple[object, ...]:
    """The settings that say which batch system a CE is, and which part of it."""
    return (ce.type, None) if ce.type == "local" else (ce.type, ce.batch_options())


def _log_changes(changes: Iterable[ProblemChange], unanswered: set[str]) -> None:
    """Log problems of facts. `unanswered`: CEs that gave no answer, which their own duty tells."""
    for change in changes:
        if change.new and change.ce not in unanswered:
            log.warning("CE %s: no information: %s", change.ce, change.new)
        elif change.new:
            log.debug("CE %s: no information: %s", change.ce, change.new)
        else:
            log.info("CE %s: information again", change.ce)
