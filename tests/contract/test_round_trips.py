"""A batch system behind ssh is asked as often as one that is here: each command is one session, and no more of them.

`tests/unit/outside/test_ssh_runner.py` counts the sessions of a command.
"""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pilotage.core.policy import parse
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission
from pilotage.outside.batch.registry import ServerMachine, make_adapter_of
from pilotage.outside.batch.runner import TIMEOUT, CommandResult, LocalRunner, Runner
from pilotage.outside.batch.submission import SubmissionFailed
from tests.contract.test_batch_systems import POLICY, SHAPE, SLEEP, TRANSCRIPTS
from tests.doubles import cluster as doubles
from tests.transcripts import load

STAMP = "pilotage-0123456789abcdef"
LOCATES = "sh"
"""The command that reads on the login node which host Grid Engine's master has now. Here it is a file."""


class Counted:
    """A `Runner` that counts the commands of another one."""

    def __init__(self, runner: Callable[[Sequence[str], str], CommandResult], *, is_remote: bool) -> None:
        self.is_remote = is_remote
        self.commands = list[str]()
        self._run = runner

    def close(self) -> None:
        pass

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        self.commands.append(command[0])
        return self._run(command, text)


class Remembered:
    """The first good answer of a transcript to each command, whatever has happened before it."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._known = load(file)
        self._known.values = {
            **{"LOGS": str(folder / "logs"), "FOLDER": str(folder), "HOST": "host1", "PORT": "6444"},
            "STAMP": STAMP,
        }
        self.user = self._known.header["user"]
        self.section = self._known.read(self._known.header["ce"])
        for path, text in self._known.header.get("files", {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(self._known.read(text))
        self._cell = f"cell 6444 {folder}/default\nhost1\n"

    def run(self, command: Sequence[str], text: str) -> CommandResult:
        if command[0] == LOCATES:
            return CommandResult(0, self._cell)
        written = tuple(self._known.written(word) for word in command)
        for phases in self._known.cases.values():
            for _, phase in phases:
                for answer in phase.get(written, []):
                    if answer.result.succeeded:
                        result = answer.result
                        return CommandResult(
                            0, self._known.read(result.output), self._known.read(result.errors)
                        )
        return CommandResult(1, errors="the transcript has no answer")


@contextmanager
def answers_of(system: str, folder: Path) -> Iterator[tuple[str, str, Callable[..., CommandResult]]]:
    """The section of a CE, its account, and what runs its commands."""
    if system in TRANSCRIPTS:
        remembered = Remembered(TRANSCRIPTS[system], folder)
        yield remembered.section, remembered.user, remembered.run
        return
    with doubles.double(system) as made:
        runner: Runner = LocalRunner(made.environment)
        section = f'type = "{system}"\nwall = 120\n[ces.ce.{system}]\n'
        yield section, getpass.getuser(), lambda command, text: runner.run(command, text=text)


def submit(batch: BatchAdapter) -> None:
    # The answer of a transcript may be that to a submission of another size.
    with suppress(SubmissionFailed):
        batch.submit(BatchSubmission(STAMP, 1, SHAPE, SLEEP, {}))


CALLS: dict[str, Callable[[BatchAdapter], object]] = {
    "describe": lambda batch: batch.describe(),
    "check": lambda batch: batch.check(SHAPE),
    "information": lambda batch: batch.information(),
    "submit": submit,
    "release": lambda batch: batch.release([STAMP]),
    "list_pilots": lambda batch: batch.list_pilots(),
    "list_pilots of one submission": lambda batch: batch.list_pilots([STAMP]),
    "properties": lambda batch: batch.properties(),
    "cancel": lambda batch: batch.cancel([STAMP]),
}


def commands_of_calls(system: str, folder: Path, *, is_remote: bool) -> dict[str, list[str]]:
    with answers_of(system, folder) as (section, user, run):
        runner = Counted(run, is_remote=is_remote)
        machine = ServerMachine({"SGE_ROOT": str(folder)}, user, folder, runner=lambda environment: runner)
        batch = make_adapter_of(parse(f"{POLICY}{section}").ces["ce"], machine)
        counted = {}
        for name, call in CALLS.items():
            runner.commands.clear()
            call(batch)
            counted[name] = list(runner.commands)
        return counted


@pytest.mark.parametrize(
    "system",
    [
        *("slurm", "sge", "htcondor"),
        *(pytest.param(system, marks=pytest.mark.slow) for system in doubles.COMMANDS),
    ],
)
def test_a_call_runs_as_many_commands_over_ssh_as_here(system: str, tmp_path: Path) -> None:
    here = commands_of_calls(system, tmp_path, is_remote=False)
    there = commands_of_calls(system, tmp_path, is_remote=True)
    for name, commands in here.items():
        assert commands, f"{name} asks {system} nothing, so it counts nothing"
        more = Counter(there[name])
        more.subtract(commands)
        # Each question about the start of the master, and each about the hosts, is preceded by one about its place.
        allowed = Counter({LOCATES: commands.count("qping") + (name == "information")})
        assert +more <= (allowed if system == "sge" else Counter()), (name, commands, there[name])
        assert not -more, f"{name}: {commands} here, {there[name]} over ssh"
