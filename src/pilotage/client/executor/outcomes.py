"""The results of a job, and their application to the futures."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage.client.executor.node_program import HEADER, RAISED, RETURNED
from pilotage.client.executor.plain_data import CallRaised, read_plain
from pilotage.core.errors import PilotageError

if TYPE_CHECKING:
    from pilotage.client.executor.calls import CallFuture


class CallLost(PilotageError):
    """The job of a call ended without a result of it: it crashed, or was killed."""


class ResultNotPicklable(PilotageError):
    """The result or the exception of a call could not be pickled on the node, or not be read here."""


class RemoteTraceback(Exception):
    """The cause of an exception of a call: its text is the traceback on the node."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


@dataclass(frozen=True, slots=True)
class ResultFrame:
    """A frame of the file of results: see node_program.py."""

    kind: int
    seconds: float
    body: bytes


def read_outcomes(path: Path) -> list[ResultFrame]:
    """The complete frames of a file, in the order of the calls; none if there is no file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    outcomes, place = [], 0
    while place + HEADER.size <= len(content):
        kind, seconds, length = HEADER.unpack_from(content, place)
        place += HEADER.size
        body = content[place : place + length]
        if len(body) < length:
            break
        outcomes.append(ResultFrame(kind, seconds if 0 <= seconds < math.inf else 0.0, body))
        place += length
    return outcomes


def settle(future: CallFuture[object], outcome: ResultFrame, *, data: bool) -> None:
    """Apply an outcome to its future, unless that has one. `data`: nothing but plain data is read."""
    try:
        # A pickle can run any code here: the caller trusts the nodes, or asks for plain data.
        value = read_plain(outcome.body) if data else pickle.loads(outcome.body)  # noqa: S301
        error = None if outcome.kind == RETURNED else _error(outcome.kind, *value, data=data)
    except Exception as trouble:
        future.settle(error=ResultNotPicklable(f"the outcome of the call cannot be read here: {trouble!r}"))
        return
    if error is None:
        future.settle(value)
    else:
        future.settle(error=error)


def _error(kind: int, given: Any, text: str, *, data: bool) -> BaseException:
    raised: BaseException = ResultNotPicklable(str(given))
    if kind == RAISED:
        raised = CallRaised(str(given)) if data else given
    raised.__cause__ = RemoteTraceback(text)
    return raised
