"""The hooks of sites for requirements: run in the thread of their CE, with answers that are kept for a while."""

from __future__ import annotations

from collections.abc import Callable

from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.hook import read_arguments, with_arguments
from pilotage.core.policy import Ce
from pilotage.outside.batch.hook import HOOK_TIMEOUT, HookHung, HookRunner
from pilotage.outside.batch.submission import SubmissionFailed, SubmissionRefusal
from pilotage.server.outside_calls import OutsideCalls
from pilotage.services.director.forwarding import HookCall
from pilotage.services.director.submissions import SubmissionOrder

KEPT = 300.0
"""Seconds for which an answer is used again."""
HANG_PAUSE = 60.0
"""Seconds without a run after one that hung. Each run holds up the listings of its CE."""
MOST_KEPT = 1000
"""Answers of one CE."""


class ForwardHook:
    """The hook of one CE. Failures are not kept, so that a repaired hook counts at once.

    Only a hook that hangs is not run for `HANG_PAUSE`.
    """

    def __init__(
        self, monotonic: Callable[[], float], outside: OutsideCalls, timeout: float = HOOK_TIMEOUT
    ) -> None:
        self._monotonic, self._outside, self._timeout = monotonic, outside, timeout
        self._runner = HookRunner()
        self._answers: dict[HookCall, tuple[float, dict[str, str]]] = {}
        self._hung = 0.0, ""
        """The end of the pause after a run that hung, and its reason."""

    def close(self) -> None:
        """Kill a run that is under way, from any thread. Further submissions with a hook are refused."""
        self._runner.close()

    def flags(self, ce: Ce | None, order: SubmissionOrder) -> tuple[str, ...]:
        """The flags of a submission with the arguments of the hook. `SubmissionFailed`: the hook is of no use."""
        if order.hook is None or ce is None:
            return order.flags
        table, own = ce.forward_table, ce.batch_options()
        try:
            options = self._answer(ce, order.hook)
            return with_arguments(order.flags, options, table, own.own_features, own.own_requests)
        except InvalidInput as error:
            raise SubmissionFailed(
                SubmissionRefusal.REFUSED, f"forward_hook {order.hook.program}: {error.message}"
            ) from None

    def _answer(self, ce: Ce, call: HookCall) -> dict[str, str]:
        now, known = self._monotonic(), self._answers.get(call)
        if known is not None and now < known[0] + KEPT:
            return known[1]
        if now < self._hung[0]:
            raise InvalidInput(self._hung[1])
        answer = read_arguments(self._run(call), ce.forward_table)
        if len(self._answers) >= MOST_KEPT:
            self._answers.clear()
        self._answers[call] = now, answer
        return answer

    def _run(self, call: HookCall) -> str:
        text, failure, hung = self._outside.ask(
            "forward hook", tuple[str, str, bool], lambda: self._output(call)
        )
        if hung:
            self._hung = self._monotonic() + HANG_PAUSE, failure
        if failure:
            raise InvalidInput(failure)
        return text

    def _output(self, call: HookCall) -> tuple[str, str, bool]:
        """The output of a run, why it failed, and whether it hung."""
        try:
            return self._runner.run(call.program, dict(call.environment), self._timeout), "", False
        except InvalidInput as error:
            return "", error.message, isinstance(error, HookHung)
