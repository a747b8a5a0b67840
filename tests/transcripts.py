"""The recorded world: the player of transcripts, whose form `pilotage.outside.batch.transcript` tells.

A call over HTTPS stands there as a command of its method, its target, and the id of a job that it asks about. Its
status is that of HTTP, 200 and 201 included, and `errors` is the reason behind it.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pilotage.outside.batch.https_connection import BatchConnection, HttpReply
from pilotage.outside.batch.runner import TIMEOUT, CommandResult, Runner
from pilotage.outside.batch.transcript import (
    Command,
    Phase,
    RecordedAnswer,
    Transcript,
    digest,
    write_transcript,
)

FOLDER = Path(__file__).parent / "contract" / "transcripts"
MOST_REPEATS = 100
"""Times that the last answer is given."""


class Player:
    """A `Runner` that answers from a transcript. A command that is not in it fails the test."""

    is_remote = False

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._asked: dict[tuple[str, int, Command], int] = {}

    def close(self) -> None:
        pass

    def mark(self, name: str) -> None:
        known = self.transcript
        known.phase += 1
        phases = known.cases[known.case]
        assert known.phase < len(phases), f"the transcript of {known.case} ends before {name}"
        wanted = phases[known.phase][0]
        assert wanted == name, f"the transcript of {known.case} has {wanted}, the test does {name}"

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        known = self.transcript
        written = tuple(known.written(word) for word in command)
        mark, phase = known.cases[known.case][known.phase]
        assert written in phase, f"{known.case}, after {mark!r}: no answer to {written}, but to {list(phase)}"
        key = (known.case, known.phase, written)
        left = self._asked[key] = self._asked.get(key, -1) + 1
        for answer in phase[written]:
            if left < answer.times:
                break
            left -= answer.times
        assert left < MOST_REPEATS, (
            f"{known.case}, after {mark!r}: the test waits for another answer to {written}"
        )
        assert answer.stdin in ("", digest(known.written(text))), f"{written} got another standard input"
        result = answer.result
        return CommandResult(result.status, known.read(result.output), known.read(result.errors))


class HttpsRunner:
    """A `Runner` of calls over HTTPS: the command is method and target, and perhaps the id of a job."""

    is_remote = False

    def __init__(self, connection: BatchConnection, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self._headers = headers

    def close(self) -> None:
        self._connection.close()

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        method, target, *ids = command
        content = text or "".join(f"<jobs><job><id>{id_}</id></job></jobs>" for id_ in ids)
        try:
            reply = self._connection.send(method, target, content.encode(), self._headers)
        except (OSError, http.client.HTTPException) as error:
            return CommandResult(None, errors=str(error))
        told = f"{reply.length} {reply.reason}" if method == "HEAD" else reply.reason
        return CommandResult(reply.status, reply.text, told)


class RunnerConnection:
    """An `BatchConnection` over a recorder or a player."""

    def __init__(self, make: Callable[[Mapping[str, str]], Runner]) -> None:
        """`make`: the runner for a call with these headers."""
        self._make = make

    def close(self) -> None:
        pass

    def send(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        runner, text = self._make(headers), body.decode()
        # A question about several jobs is recorded as one about each: a test may look at them at other times.
        if ids := re.findall("<id>([^<]*)</id>", text):
            replies = [_sent(runner, [method, target, id_], "") for id_ in ids]
            jobs = "".join(reply.text.partition("<jobs>")[2].rpartition("</jobs>")[0] for reply in replies)
            return replies[0]._replace(body=f"<jobs>{jobs}</jobs>".encode())
        return _sent(runner, [method, target], text)


def _sent(runner: Runner, command: Sequence[str], text: str) -> HttpReply:
    done = runner.run(command, text=text)
    if done.status is None:
        raise TimeoutError
    length, _, reason = done.errors.partition(" ") if command[0] == "HEAD" else ("0", "", done.errors)
    return HttpReply(done.status, reason, done.output.encode(), int(length))


def load(file: Path) -> Transcript:
    texts: dict[int, str] = {}

    def text_of(value: str | dict[str, int]) -> str:
        return value if isinstance(value, str) else texts[value["text"]]

    first, *lines = (json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip())
    transcript = Transcript(first)
    phases: list[tuple[str, Phase]] = []
    for line in lines:
        if "is" in line:
            texts[line["text"]] = line["is"]
        elif "case" in line:
            phases = transcript.cases[line["case"]] = [("", {})]
        elif "mark" in line:
            phases.append((line["mark"], {}))
        else:
            result = CommandResult(
                line.get("status", 0), text_of(line.get("output", "")), text_of(line.get("errors", ""))
            )
            answer = RecordedAnswer(result, line.get("stdin", ""), line.get("times", 1))
            phases[-1][1].setdefault(tuple(line["run"]), []).append(answer)
    return transcript


def save(transcript: Transcript, file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(write_transcript(transcript), "utf-8")
