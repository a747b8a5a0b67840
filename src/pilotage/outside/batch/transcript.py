"""The transcript of a batch system: its commands and their answers, by which an adapter is tested without the system.

A transcript is a file of JSON lines. The first line describes the CE:

    {"ce": TOML, "broken": TOML, "user": ACCOUNT, "shape": [CORES, MB, SECONDS], "files": {PATH: TEXT}}

`ce` and `broken` are tables of a policy; submissions of a broken CE are refused. `files` lie in the folder @FOLDER@.
The other lines are the cases of the contract suite, each with the calls in their order:

    {"case": NAME OF THE TEST}
    {"mark": "submit"}                       the test changes something; answers may differ from here on
    {"run": ["qstat", "-u", "me"], "output": TEXT, "errors": TEXT, "status": 0, "stdin": DIGEST, "times": 3}

`status` null stands for a command that gave no answer in time. Defaults are left out. A text that is long stands
in a line {"text": NUMBER, "is": TEXT} before, and {"text": NUMBER} stands for it. Standard input is not kept.

The words @STAMP@, @CUT@ (its beginning), @FOLDER@, @HOST@ and @PORT@ stand for values that differ each time. Between
two marks, equal commands get their answers in their order, and the last one for ever: so a test may look again as often
as it likes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.runner import TIMEOUT, CommandResult, Runner

LONG = 40
"""Characters of a text that is written once."""
CUT = 15
"""Characters of a job's name in Torque."""
MOST_TIMES = 3
"""Equal answers that are kept: only a test that waits asks more often."""
CHANGES = frozenset({"submit", "release", "cancel", "cancel_tasks"})
"""Calls of an adapter that change its batch system."""

Command = tuple[str, ...]


@dataclass
class RecordedAnswer:
    """The answer to equal commands, `times` in a row."""

    result: CommandResult
    stdin: str = ""
    times: int = 1


Phase = dict[Command, list[RecordedAnswer]]
"""The answers between two marks, by command."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


@dataclass
class Transcript:
    """The cases of one batch system. `values`: the texts of placeholders, by name without @.

    `redact` takes private words away before a text is written.
    """

    header: dict[str, Any] = field(default_factory=dict)
    cases: dict[str, list[tuple[str, Phase]]] = field(default_factory=dict)
    """Phases by case, each with the mark that begins it."""
    values: dict[str, str] = field(default_factory=dict)
    case: str = ""
    phase: int = 0
    redact: Callable[[str], str] = str

    def begin(self, case: str) -> None:
        self.case, self.phase = case, 0

    def written(self, text: str) -> str:
        """A text with placeholders."""
        for name, value in sorted(self._words().items(), key=lambda item: -len(item[1])):
            # The name of a host may be part of a word.
            edge = r"\b" if value.isalnum() else ""
            text = re.sub(f"{edge}{re.escape(value)}{edge}", f"@{name}@", text)
        return self.redact(text)

    def read(self, text: str) -> str:
        """A text without placeholders."""
        for name, value in self._words().items():
            text = text.replace(f"@{name}@", value)
        return text

    def _words(self) -> dict[str, str]:
        """The values, with the stamp as a batch system cuts it in the name of a job."""
        stamp = self.values.get("STAMP", "")
        return {**self.values, "CUT": stamp[:CUT]} if len(stamp) > CUT else self.values


class CommandRecorder:
    """A `Runner` that writes down the answers of another one.

    `volatile`: patterns of text that is left out: it is new at each call, as the time, or tells of the machine.
    """

    def __init__(self, transcript: Transcript, runner: Runner, *volatile: str) -> None:
        self.transcript = transcript
        self._runner = runner
        self._volatile = re.compile("|".join(volatile) or "(?!)", re.MULTILINE | re.DOTALL)

    @property
    def is_remote(self) -> bool:
        return self._runner.is_remote

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
            answers.append(RecordedAnswer(written, digest(known.written(text))))
        return result


class MarkedRunner(Protocol):
    """A runner that is told of changes."""

    def mark(self, name: str) -> None:
        """Something changes now."""


class MarkedAdapter:
    """An adapter that tells its runner before it changes something."""

    def __init__(self, batch: BatchAdapter, runner: MarkedRunner) -> None:
        self._batch = batch
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._batch, name)
        if name not in CHANGES:
            return member

        def change(*arguments: Any, **named: Any) -> Any:
            self._runner.mark(name)
            return member(*arguments, **named)

        return change


def marked(batch: BatchAdapter, runner: MarkedRunner) -> BatchAdapter:
    return cast(BatchAdapter, MarkedAdapter(batch, runner))


def write_transcript(transcript: Transcript) -> str:
    """The text of the file."""
    writer = _TranscriptWriter([transcript.header])
    for case, phases in sorted(transcript.cases.items()):
        if not case:
            continue
        writer.lines.append({"case": case})
        for mark, phase in phases:
            writer.lines += [{"mark": mark}] if mark else []
            for command, answers in phase.items():
                for answer in answers:
                    entry = dict(writer.told(answer))
                    writer.lines.append({"run": command, **entry})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in writer.lines)


@dataclass
class _TranscriptWriter:
    """The lines of a file, with each long text once."""

    lines: list[Mapping[str, Any]]
    texts: dict[str, int] = field(default_factory=dict)

    def shortened(self, text: str) -> Any:
        if len(text) <= LONG:
            return text
        if text not in self.texts:
            self.texts[text] = len(self.texts) + 1
            self.lines.append({"text": self.texts[text], "is": text})
        return {"text": self.texts[text]}

    def told(self, answer: RecordedAnswer) -> Iterator[tuple[str, Any]]:
        result = answer.result
        if result.status != 0:
            yield "status", result.status
        for name in ("output", "errors"):
            if text := getattr(result, name):
                yield name, self.shortened(text)
        if answer.stdin:
            yield "stdin", answer.stdin
        if answer.times > 1:
            yield "times", min(answer.times, MOST_TIMES)
