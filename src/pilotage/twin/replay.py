"""Replays the record of a server: the same code gets the same inputs at the same instants, and must answer the same."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pilotage import __version__
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural
from pilotage.server.context import Context
from pilotage.server.http.app import Application
from pilotage.server.private_files import write_private
from pilotage.server.process.front import HeaderFields
from pilotage.server.process.home import Home
from pilotage.server.process.recorded_rim import RecordedRim, stream
from pilotage.server.process.recorded_run import replay_key
from pilotage.server.process.run import run_server
from pilotage.server.process.settings import Settings
from pilotage.server.recording.lines import (
    MADE_AGAIN,
    Answered,
    CallOutcome,
    Ended,
    Input,
    Inputs,
    KnownSecret,
    LaterLine,
    ListeningEnded,
    ReceivedMessage,
    ReceivedSignal,
    RecordBegin,
    read_record,
)
from pilotage.server.recording.loop import DecisionLoop
from pilotage.server.recording.messages import MessageService, plain_routes_inline
from pilotage.server.recording.redaction import SeededSecrets
from pilotage.server.recording.tape import Tape, WholeAnswer, answer_line
from pilotage.store.admin.database import database_at
from pilotage.store.tables.digests import digest_of_tables, replace_secret
from pilotage.wire.pilot import Node

if TYPE_CHECKING:
    from pilotage.server.process.tls import ServerTls


class _ReplayOver(BaseException):
    """The record has ended, or a difference was found. No duty may take it for a failure of its own."""


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    messages: int = 0
    answers: int = 0
    begin: float = 0.0
    until: float = 0.0
    """The instant of the last line that was compared."""
    ended: bool = False
    """Whether the record goes to the end of its server."""
    difference: str = ""
    """The first difference, for people; empty: there is none."""


class Player(Tape):
    """The tape of a replay."""

    live = False

    def __init__(self, lines: Iterator[LaterLine], begin: float) -> None:
        super().__init__()
        self._lines = lines
        self.result = Replayed(begin=begin, until=begin)
        self._messages: dict[int, ReceivedMessage] = {}
        """Messages without an answer."""
        self._next: LaterLine | None = None
        self._read_on()

    def next_inputs(self, now: float, due: float | None) -> tuple[float, Sequence[Callable[[], object]]]:
        line = self._next
        if self.at_end:
            raise _ReplayOver
        if isinstance(line, Inputs) and (due is None or line.at < due):
            return self._take_inputs(line)
        if due is None or (line is not None and due > line.at):
            self._differ(now, f"the record has {self._words(line)}, and nothing in the replay")
            raise _ReplayOver
        return due, ()

    @property
    def at_end(self) -> bool:
        """Whether nothing is left to compare."""
        line = self._next
        return line is None or bool(self.result.difference) or (isinstance(line, Ended) and bool(line.reason))

    def _take_inputs(self, line: Inputs) -> tuple[float, Sequence[Callable[[], object]]]:
        if line.changes != self.changes():
            self._differ(
                line.at,
                f"the server had changed {plural(line.changes, 'row')} until then, and {self.changes()} in the replay",
            )
            raise _ReplayOver
        self._advance(line.at)
        for given in line.inputs:
            if isinstance(given, ReceivedMessage):
                self.result.messages += 1
                self._messages[given.number] = given
        return line.at, [self._hand_in(self._whole(given)) for given in line.inputs]

    def _whole(self, given: Input) -> Input:
        """An input as the server had it."""
        if not isinstance(given, CallOutcome):
            return given
        if given.repeated:
            last = self._last[given.call]
            return msgspec.structs.replace(given, value=last.value, error=last.error)
        self._last[given.call] = given
        return given

    def _outcome(self, call: str, number: int, make: Callable[[], CallOutcome]) -> CallOutcome:
        line = self._next
        if isinstance(line, CallOutcome) and (line.call, line.number) == (call, number):
            self._advance(line.at)
            self._last[call] = line
            return line
        if self.at_end:
            raise _ReplayOver
        if call not in self._last:
            self._differ(
                self.clock(),
                f"the replay makes the call '{call}', and the record has {self._words(line)}",
            )
            raise _ReplayOver
        return self._last[call]

    def _await_outcome(self, make: Callable[[], CallOutcome]) -> None:
        """The record has it among the later inputs."""

    def answered(self, message: ReceivedMessage, answer: WholeAnswer) -> None:
        del self._messages[message.number]
        if self.at_end:
            return
        line, made = self._next, answer_line(self.clock(), message, answer.status, answer.body)
        if not isinstance(line, Answered) or line.number != made.number:
            self._differ(
                made.at, f"{_described(message)} is answered, and the record has {self._words(line)}"
            )
        elif (line.status, line.digest) != (made.status, made.digest):
            self._differ(
                made.at,
                f"{_described(message)} was answered with {_answer_words(line)} and is answered with"
                f" {_answer_words(made)}",
            )
        elif line.at != made.at:
            self._differ(made.at, f"{_described(message)} was answered {line.at - made.at:+.6f} s later")
        else:
            self.result.answers += 1
            self._advance(line.at)

    def ended(self, tables: Callable[[], dict[str, str]]) -> None:
        line = self._next
        if self.at_end:
            return
        if not isinstance(line, Ended):
            self._differ(
                self.clock(), f"the server of the replay stops, and the record has {self._words(line)}"
            )
            return
        made = tables()
        other = sorted(name for name, digest in line.tables.items() if made.get(name) != digest)
        if other:
            self._differ(line.at, f"other rows at the end: {', '.join(other)}")
            return
        self.result.ended = True
        self._advance(line.at)

    def _advance(self, at: float) -> None:
        self.result.until = at
        self._read_on()

    def _read_on(self) -> None:
        """Go to the next line. The store has the secrets already."""
        self._next = next((line for line in self._lines if not isinstance(line, KnownSecret)), None)

    def _differ(self, at: float, words: str) -> None:
        if not self.result.difference:
            self.result.difference = f"at {at - self.result.begin:.6f} s: {words}"

    def _words(self, line: LaterLine | None) -> str:
        match line:
            case None:
                return "its end"
            case Answered(number=number):
                message = self._messages.get(number)
                shown = _described(message) if message is not None else f"message {number}"
                return f"the answer to {shown}"
            case CallOutcome(call=call):
                return f"the call '{call}'"
            case Ended() | KnownSecret():
                return "the end of the server"
            case Inputs(inputs=inputs):
                return _input_words(inputs[0])


def _input_words(given: Input) -> str:
    match given:
        case ReceivedMessage():
            return _described(given)
        case ReceivedSignal(number=number):
            return f"the signal {number}"
        case ListeningEnded():
            return "the end of the connections"
        case CallOutcome(call=call):
            return f"the outcome of the call '{call}'"


def _described(message: ReceivedMessage) -> str:
    return f"message {message.number} ({message.method} {message.path})"


def _answer_words(answer: Answered) -> str:
    return f"{answer.status}, {plural(answer.size, 'byte')}: {answer.begin}"


class TapedFront:
    """Implements `Front`: messages come over a tape."""

    tls: ServerTls | None = None
    open_files = 1024

    def __init__(self, url: str, tape: Tape) -> None:
        self.url = url
        self._tape = tape

    async def start(self, context: Context, application: Application) -> None:
        self._tape.serve = MessageService(context, application, self._tape.answered).serve

    def publish(self, fields: HeaderFields) -> None:
        """Nobody reads headers."""

    async def stop(self) -> None:
        ended = asyncio.get_running_loop().create_future()
        self._tape.listening_ended = lambda: ended.set_result(None)
        await ended


def replay(path: Path, database_url: str = "") -> Replayed:
    """Replay a record on a store of its own. Raises `InvalidInput` for a bad record.

    `database_url`: an empty database, for the record of a server on PostgreSQL.
    """
    header, lines = read_record(path)
    if header.version != __version__:
        raise InvalidInput(
            f"{path} is a record of Pilotage {header.version}, and this is {__version__}", hint=MADE_AGAIN
        )
    _check_database(header, path, database_url)
    with tempfile.TemporaryDirectory(prefix="pilotage-replay-") as folder, plain_routes_inline():
        player = Player(lines, header.begin)
        home = Home.at(Path(folder), database_url)
        home.make()
        _make_store(header, home, path)
        write_private(home.folder / "secrets" / "signing.key", replay_key(header.seed))
        _run(header, player, home)
    return player.result


def _check_database(header: RecordBegin, record: Path, database_url: str) -> None:
    """Refuse a database of another kind, and one that has anything in it."""
    if header.server.dialect == "sqlite":
        if database_url:
            raise InvalidInput(f"{record} is of a server on SQLite", hint="leave --database-url out")
        return
    if not database_url:
        raise InvalidInput(
            f"{record} is of a server on PostgreSQL",
            hint="--database-url names an empty database for the replay",
        )
    database = database_at(database_url)
    if not database.is_empty():
        raise InvalidInput(
            f"the database {database.shown} is not empty",
            hint="a replay needs one of its own: CREATE DATABASE NAME",
        )


def _make_store(header: RecordBegin, home: Home, record: Path) -> None:
    """Make the store with which the server began: an empty one, or the copy beside the record."""
    if header.server.dialect == "postgresql":
        home.database.upgrade(home.folder / "backups", "replay")
    if not header.store:
        return
    copy, file = record.with_name(header.store), home.database.file
    assert file is not None
    try:
        shutil.copyfile(copy, file)
    except OSError as error:
        raise InvalidInput(
            f"{copy}, the store at the start of the record, cannot be read: {error.strerror}"
        ) from None
    _, lines = read_record(record)
    with closing(home.database.open(home.folder / "backups", "replay")) as connection:
        for line in lines:
            if isinstance(line, KnownSecret):
                replace_secret(connection, line.digest, hashlib.sha256(line.shown.encode()).hexdigest())


def _run(header: RecordBegin, player: Player, home: Home) -> None:
    connection = home.database.open(home.folder / "backups", "replay")
    loop = DecisionLoop(header.begin, player)
    try:
        front = TapedFront(header.server.url, player)
        secrets = SeededSecrets(stream(header.seed, "secrets"))
        rim = RecordedRim(header, player, loop, front, secrets)
        try:
            loop.run_until_complete(run_server(settings_of(header, home), connection, rim))
            player.ended(lambda: digest_of_tables(connection))
        except _ReplayOver:
            pass
    finally:
        player.abandon()
        _abandon(loop)
        connection.close()


def _abandon(loop: DecisionLoop) -> None:
    """Drop the unfinished tasks, as the death of a process would."""
    for task in asyncio.all_tasks(loop):
        task.cancel()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine = task.get_coro()
        if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()  # else Python warns of a coroutine that nobody has awaited
    loop.set_exception_handler(lambda _loop, _context: None)
    loop.close()


def settings_of(header: RecordBegin, home: Home) -> Settings:
    """The settings of a recorded server, for its replay in another home."""
    server = header.server
    return Settings(
        home=home,
        host="",
        port=0,
        pilot_server=server.pilot_server,
        owner=server.owner,
        node=msgspec.convert(server.node, Node),
        announce=lambda url: None,
        policy=server.policy,
        least_free=server.least_free,
    )
