"""`pilotage ce test`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import LONG_PATIENCE, Session, TimeoutOption, connected
from pilotage.cli.time_format import parse_duration

if TYPE_CHECKING:
    from pilotage.cli.console import CommandOutput
    from pilotage.client import Client
    from pilotage.wire.ces import CeProbe, CeProbeStep

FAILED = 1

_REACHED = ("ok", "warning", "failed")


@connected
def probe(
    session: Session,
    name: Annotated[str, CommandArgument("A CE of the policy", "NAME")],
    timeout: TimeoutOption = "15m",
    record: Annotated[
        str,
        CommandOption(
            "Write what the batch system answers to two short batch jobs, without secrets; no probe is submitted",
            "FILE",
        ),
    ] = "",
) -> int | None:
    """Submit one probe to a CE and report each step. The CE may be disabled.

    The exit code is 0 if all steps work, and 1 if one fails or the probe still waits at the end of the timeout.
    """
    if record:
        return _record(session, name, record)
    limit = parse_duration(timeout)
    with session.client(patience=LONG_PATIENCE) as client:
        current = client.probe_ce(name)
        if not session.as_json:
            session.screen.note(f"probe {current.number} of CE {name}")
        reported: set[str] = set()
        waiting = ""
        for state in _follow(client, current, limit):
            current = state
            if not session.as_json:
                waiting = _report_new_steps(session.screen, current, reported, waiting)
    session.screen.json(current)
    return _conclude(session, current)


def _record(session: Session, name: str, file: str) -> int:
    """Write the transcript of a rehearsal."""
    with session.client(patience=LONG_PATIENCE) as client:
        recording = client.record_ce(name)
    if recording.transcript:
        Path(file).write_text(recording.transcript, encoding="utf-8")
    if session.as_json:
        session.screen.json({"ce": name, "file": file, "failure": recording.failure})
    elif recording.failure:
        session.screen.note(f"the rehearsal at CE {name} did not go through: {recording.failure}")
    else:
        session.screen.line(f"{file} has the answers of CE {name}; read it before you pass it on")
    return FAILED if recording.failure else 0


def _follow(client: Client, probe: CeProbe, limit: float) -> Iterator[CeProbe]:
    """The probe after each change, until it has ended or failed, or the time is over."""
    from pilotage.client.polling import PollInterval

    pace, until, before = PollInterval(0.2, 3.0), time.monotonic() + limit, None
    while True:
        if probe != before:
            yield probe
        if probe.ended or _failed(probe) or time.monotonic() > until:
            return
        pace.pause(probe != before, at_most=until - time.monotonic())
        before, probe = probe, client.ce_probe(probe.ce)


def _failed(probe: CeProbe) -> bool:
    return any(step.state == "failed" for step in probe.steps)


def _report_new_steps(screen: CommandOutput, probe: CeProbe, reported: set[str], waiting: str) -> str:
    """Print the steps that were reached since the last call; the step that it waits for."""
    for step in probe.steps:
        if step.state in _REACHED and f"{step.name}: {step.state}" not in reported:
            reported.add(f"{step.name}: {step.state}")
            screen.line(_line(step))
        elif step.state == "waiting" and f"{step.name}: {_reason(step)}" != waiting:
            waiting = f"{step.name}: {_reason(step)}"
            screen.note(f"waits: {step.name} {step.text}")
    return waiting


def _reason(step: CeProbeStep) -> str:
    """The text of a waiting step without its seconds."""
    return step.text.partition(": ")[2]


def _line(step: CeProbeStep) -> str:
    return f"{step.state:<8} {step.name:<13} {step.text}".rstrip()


def _conclude(session: Session, probe: CeProbe) -> int:
    if _failed(probe):
        if not session.as_json:
            session.screen.note(probe.advice)
            for line in probe.log.splitlines():
                session.screen.line(f"  {line}")
        return FAILED
    if not probe.ended:
        if not session.as_json:
            session.screen.note(f"the probe still waits; follow it with `pilotage ce test {probe.ce}`")
        return FAILED
    if not session.as_json:
        warnings = sum(step.state == "warning" for step in probe.steps)
        session.screen.line(f"CE {probe.ce} works" + (f"; warnings: {warnings}" if warnings else ""))
    return 0
