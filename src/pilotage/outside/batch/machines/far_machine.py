"""One plain machine as the server sees it: its answers, or the reason why it is away."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

from pilotage.core.errors import Unreachable
from pilotage.outside.batch.script import PYTHONS
from pilotage.outside.batch.ssh.connection import SshConnection
from pilotage.outside.batch.ssh.runner import SshRunner
from pilotage.outside.batch.submission import in_short

_LOADER = "import sys; sys.version_info < (3, 9) and sys.exit(69); exec(sys.argv.pop(1))"
_TRY_PYTHONS = (
    f'for python in {" ".join(PYTHONS)}; do "$python" -c "$@"; status=$?;'
    " [ $status = 69 ] || [ $status = 127 ] || exit $status; done; echo 'no Python 3.9 or newer' >&2; exit 1"
)
"""Runs a program by the first Python that is new enough. One that is too old ends before it reads anything."""


class FarPilot(msgspec.Struct, frozen=True):
    """A process that is a pilot."""

    stamp: str
    pid: int
    started: int
    properties: str = ""


class MachineSurvey(msgspec.Struct, frozen=True):
    """A machine, and the pilots on it."""

    boot: str
    host: str
    architecture: str
    cores: int
    """The cores that pilots may use."""
    free: int
    memory: int
    """MB."""
    pilots: tuple[FarPilot, ...]


class StartedProcess(msgspec.Struct, frozen=True):
    index: int
    pid: int
    started: int


class StartAnswer(msgspec.Struct, frozen=True):
    """The answer to an order to start pilots."""

    boot: str = ""
    started: tuple[StartedProcess, ...] = ()
    full: str = ""
    """Why none was started; empty: all were."""


class EndAnswer(msgspec.Struct, frozen=True):
    ended: int


class TailAnswer(msgspec.Struct, frozen=True):
    output: str


class FarSideFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failure: str


Answer = TypeVar("Answer", MachineSurvey, StartAnswer, EndAnswer, TailAnswer)


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Pilots to start on one machine."""

    stamp: str
    indexes: tuple[int, ...]
    processors: int
    properties: str


@cache
def _program() -> str:
    return (files(__package__) / "far_side.py").read_text()


class FarMachine:
    """A machine. Its calls raise `Unreachable` while it is away."""

    def __init__(self, connection: SshConnection, cores: int, timeout: float) -> None:
        """`cores`: the number that pilots may use; 0: all."""
        self._connection = connection
        self._cores = cores
        self._timeout = timeout
        self._runner = SshRunner(connection, {})

    @property
    def name(self) -> str:
        """Its name in the policy, without the account."""
        return self._connection.reach.machine

    def survey(self) -> MachineSurvey:
        return self._ask(MachineSurvey, {"action": "survey", "cores": self._cores})

    def start(self, order: StartOrder, script: str) -> StartAnswer:
        """StartAnswer pilots. `Unreachable`: perhaps they were started."""
        request = {
            "action": "start",
            "cores": self._cores,
            "stamp": order.stamp,
            "indexes": order.indexes,
            "processors": order.processors,
            "properties": order.properties,
        }
        return self._ask(StartAnswer, request, script)

    def end(self, stamps: list[str], ids: list[str]) -> None:
        """Ask pilots to leave, by the stamps of their submissions or by their ids."""
        self._ask(EndAnswer, {"action": "end", "stamps": stamps, "ids": ids})

    def tail(self, stamp: str, most: int) -> str:
        """The end of the output of the pilot with this stamp."""
        return self._ask(TailAnswer, {"action": "tail", "stamp": stamp, "most": most}).output

    def _ask(self, kind: type[Answer], request: dict[str, Any], text: str = "") -> Answer:
        if away := self._connection.open_without_questions():
            raise Unreachable(f"{self.name} is away: {away}")
        command = ["sh", "-c", _TRY_PYTHONS, "sh", _LOADER, _program(), json.dumps(request)]
        result = self._runner.run(command, text=text, timeout=self._timeout)
        if not result.succeeded:
            reason = result.unreached or in_short(result.errors) or "it did not answer in time"
            raise Unreachable(f"{self.name}: {reason}")
        try:
            return msgspec.json.decode(result.output, type=kind)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"{self.name}: {_failure(result.output) or error}") from None

    def close(self) -> None:
        self._runner.close()


def _failure(output: str) -> str:
    try:
        return msgspec.json.decode(output, type=FarSideFailure).failure
    except msgspec.MsgspecError:
        return ""
