"""A rehearsal at a CE as the text of a transcript, without secrets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import msgspec

from pilotage.core.errors import Unreachable
from pilotage.core.policy import Ce
from pilotage.core.policy.reach import parse_reach
from pilotage.outside.batch.adapter import Shape
from pilotage.outside.batch.redaction import ACCOUNT, Redactor
from pilotage.outside.batch.registry import ServerMachine, make_adapter_of
from pilotage.outside.batch.rehearsal import CASE, rehearse
from pilotage.outside.batch.submission import STAMP_PREFIX, SubmissionFailed
from pilotage.outside.batch.transcript import CommandRecorder, Transcript, marked, write_transcript

MOST_LOOKS = 60
"""Looks at one step of a rehearsal."""
PAUSE = 1.0
"""Seconds between two looks."""


def record_rehearsal(ce: Ce, machine: ServerMachine, timeout: float, chance: str) -> tuple[str, str]:
    """The transcript of a rehearsal, and why it did not go through; empty: it did.

    `chance`: letters and digits that make the stamp its own.
    """
    nothing = f"a CE of type {ce.type} runs no commands that could be recorded"
    if ce.type == "local":
        return "", nothing
    if ce.reach:  # the commands that run there are recorded, not ssh
        machine = machine.over_ssh(parse_reach(ce.reach))
        ce = msgspec.structs.replace(ce, reach="", relay="")
    redactor = Redactor(machine.user, (machine.host,) if machine.host else ())
    stamp = f"{STAMP_PREFIX}{chance}"
    shape = Shape(ce.pilot_processors, ce.pilot_memory, ce.wall)
    header = {
        "about": f"recorded by `pilotage ce test NAME --record FILE` at a CE of type {ce.type}",
        "ce": _section(ce, redactor),
        "user": ACCOUNT,
        "shape": [*shape],
    }
    transcript = Transcript(header, values={"STAMP": stamp}, redact=redactor)
    transcript.begin(CASE)
    recorders: list[CommandRecorder] = []

    def recorded(environment: object) -> CommandRecorder:
        assert isinstance(environment, dict)
        recorders.append(CommandRecorder(transcript, machine.runner(environment)))
        return recorders[-1]

    adapter = make_adapter_of(ce, replace(machine, runner=recorded), timeout)
    if not recorders:
        return "", nothing
    failure = ""
    try:
        rehearse(marked(adapter, recorders[0]), stamp, shape, wait_until)
    except (Unreachable, SubmissionFailed, TimeoutError) as error:
        failure = str(error)
    return write_transcript(transcript), redactor(failure)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again. `TimeoutError`: it takes too long."""
    pause = threading.Event()
    for _ in range(MOST_LOOKS):
        if condition():
            return
        pause.wait(PAUSE)
    raise TimeoutError(f"{what} has not come after {MOST_LOOKS} looks")


def _section(ce: Ce, redact: Callable[[str], str]) -> str:
    """The table of a CE, as a transcript has it."""
    lines = [f'type = "{ce.type}"', f"wall = {ce.wall:.0f}", f"[ces.ce.{ce.type}]"]
    for key, value in msgspec.to_builtins(ce.batch_options()).items():
        if value:
            known = redact(value) if isinstance(value, str) else value
            lines.append(f"{key} = {msgspec.json.encode(known).decode()}")
    return "\n".join(lines) + "\n"
