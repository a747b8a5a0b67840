"""The results of a job, and their application to the futures."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from pilotage.client.executor.node_program import RAISED, RETURNED
from pilotage.client.executor.plain_data import CallRaised, read_plain
from pilotage.core.errors import PilotageError

if TYPE_CHECKING:
    from pilotage.client.executor.calls import CallFuture
    from pilotage.client.executor.result_files import ResultFrame


class ResultNotPicklable(PilotageError):
    """The result or the exception of a call could not be pickled on the node, or not be read here."""


class RemoteTraceback(Exception):
    """The cause of an exception of a call: its text is the traceback on the node."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def settle(future: CallFuture[Any], outcome: ResultFrame, *, data: bool) -> None:
    """Apply an outcome to its future, unless that has one. `data`: nothing but plain data is read."""
    if future.keeps_frame:
        future.settle(outcome)
    else:
        value, error = read_outcome(outcome, data=data)
        future.settle(value, error)


def read_outcome(outcome: ResultFrame, *, data: bool) -> tuple[Any, BaseException | None]:
    """The result of a call from its file, or the exception of the call, or ResultNotPicklable."""
    try:
        body = outcome.read()
        # A pickle can run any code here: the caller trusts the nodes, or asks for plain data.
        value = read_plain(body) if data else pickle.loads(body)  # noqa: S301
        if outcome.kind == RETURNED:
            return value, None
        return None, _error(outcome.kind, *value, data=data)
    except (Exception, SystemExit) as trouble:  # a pickle may end a process
        return None, ResultNotPicklable(f"the outcome of the call cannot be read here: {trouble!r}")


def _error(kind: int, given: Any, text: str, *, data: bool) -> BaseException:
    raised: BaseException = ResultNotPicklable(str(given))
    if kind == RAISED:
        raised = CallRaised(str(given)) if data else given
    raised.__cause__ = RemoteTraceback(text)
    return raised
