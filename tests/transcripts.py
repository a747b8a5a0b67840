"""The recorded world: commands of a batch system and their answers, so that an adapter is tested without the system.

A transcript is a file of JSON lines. The first line describes the CE:

    {"ce": TOML, "broken": TOML, "user": ACCOUNT, "farewell": SIGNAL, "files": {PATH: TEXT}}

`ce` and `broken` are tables of a policy; submissions of a broken CE are refused. `files` lie in the folder @FOLDER@.
The other lines are the cases of the contract suite, each with the calls in their order:

    {"case": NAME OF THE TEST}
    {"mark": "submit"}                       the test changes something; answers may differ from here on
    {"run": ["qstat", "-u", "me"], "output": TEXT, "errors": TEXT, "status": 0, "stdin": DIGEST, "times": 3}

`status` null stands for a command that gave no answer in time. Defaults are left out. A text that is long stands
in a line {"text": NUMBER, "is": TEXT} before, and {"text": NUMBER} stands for it.

A call over HTTPS stands there as a command of its method, its target, and the id of a job that it asks about. Its
status is that of HTTP, 200 and 201 included, and `errors` is the reason behind it.

The words @STAMP@, @FOLDER@, @HOST@ and @PORT@ stand for values that differ each time. Between two marks, equal commands
get their answers in their order, and the last one for ever: so a test may look again as often as it likes.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.https_connection import BatchConnection, HttpReply
from pilotage.outside.batch.runner import TIMEOUT, CommandResult, Runner

FOLDER = Path(__file__).parent / "contract" / "transcripts"
LONG = 40
"""Characters of a text that is written once."""
MOST_TIMES = 3
"""Equal answers that are kept: only a test that waits asks more often."""
MOST_REPEATS = 100
"""Times that the last answer is given."""
CHANGES = frozenset({"submit", "release", "cancel", "cancel_tasks"})
"""Calls of an adapter that change its batch system."""

Command = tuple[str, ...]


@dataclass
class Answer:
    """The answer to equal commands, `times` in a row."""

    result: CommandResult
    stdin: str = ""
    times: int = 1


Phase = dict[Command, list[Answer]]
"""The answers between two marks, by command."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


@dataclass
class Transcript:
    """The cases of one batch system. `values`: what the placeholders stand for, by name without @."""

    header: dict[str, Any] = field(default_factory=dict)
    cases: dict[str, list[tuple[str, Phase]]] = field(default_factory=dict)
    """By name, the phases with the mark that begins each."""
    values: dict[str, str] = field(default_factory=dict)
    case: str = ""
    phase: int = 0

    def begin(self, case: str) -> None:
        self.case, self.phase = case, 0

    def written(self, text: str) -> str:
        """A text with placeholders."""
        for name, value in sorted(self.values.items(), key=lambda item: -len(item[1])):
            # The name of a host may be part of a word.
            edge = r"\b" if value.isalnum() else ""
            text = re.sub(f"{edge}{re.escape(value)}{edge}", f"@{name}@", text)
        return text

    def read(self, text: str) -> str:
        """A text without placeholders."""
        for name, value in self.values.items():
            text = text.replace(f"@{name}@", value)
        return text


class Recorder:
    """A `Runner` that writes down what another one answers.

    `volatile`: patterns of text that is left out: it is new at each call, as the time, or tells of the machine.
    """

    def __init__(self, transcript: Transcript, runner: Runner, *volatile: str) -> None:
        self.transcript = transcript
        self._runner = runner
        self._volatile = re.compile("|".join(volatile) or "(?!)", re.MULTILINE | re.DOTALL)

    def close(self) -> None:
        self._runner.close()

    def mark(self, name: str) -> None:
        known = self.transcript
        known.cases.setdefault(known.case, [("", {})]).append((name, {}))

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        result, known = self._runner.run(command, text=text, timeout=timeout), self.transcript
        output = known.written(self._volatile.sub("", result.output))
        written = CommandResult(result.status, output, known.written(result.errors))
        phase = known.cases.setdefault(known.case, [("", {})])[-1][1]
        answers = phase.setdefault(tuple(known.written(word) for word in command), [])
        if answers and answers[-1].result == written:
            answers[-1].times += 1
        else:
            answers.append(Answer(written, digest(known.written(text))))
        return result


class Player:
    """A `Runner` that answers from a transcript. A command that is not in it fails the test."""

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


class MarkedAdapter:
    """An adapter that tells its runner before it changes something."""

    def __init__(self, batch: BatchAdapter, runner: Recorder | Player) -> None:
        self._batch = batch
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._batch, name)
        if name not in CHANGES:
            return found

        def change(*arguments: Any, **named: Any) -> Any:
            self._runner.mark(name)
            return found(*arguments, **named)

        return change


def marked(batch: BatchAdapter, runner: Recorder | Player) -> BatchAdapter:
    return cast(BatchAdapter, MarkedAdapter(batch, runner))


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
            answer = Answer(result, line.get("stdin", ""), line.get("times", 1))
            phases[-1][1].setdefault(tuple(line["run"]), []).append(answer)
    return transcript


def save(transcript: Transcript, file: Path) -> None:
    lines: list[Mapping[str, Any]] = [transcript.header]
    texts: dict[str, int] = {}

    def shortened(text: str) -> Any:
        if len(text) <= LONG:
            return text
        if text not in texts:
            texts[text] = len(texts) + 1
            lines.append({"text": texts[text], "is": text})
        return {"text": texts[text]}

    def told(answer: Answer) -> Iterator[tuple[str, Any]]:
        result = answer.result
        if result.status != 0:
            yield "status", result.status
        for name in ("output", "errors"):
            if text := getattr(result, name):
                yield name, shortened(text)
        if answer.stdin:
            yield "stdin", answer.stdin
        if answer.times > 1:
            yield "times", min(answer.times, MOST_TIMES)

    for case, phases in sorted(transcript.cases.items()):
        if not case:
            continue
        lines.append({"case": case})
        for mark, phase in phases:
            lines += [{"mark": mark}] if mark else []
            for command, answers in phase.items():
                for answer in answers:
                    entry = dict(told(answer))
                    lines.append({"run": command, **entry})
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
