"""`pilotage twin record`: the history of a server, as a workload of the twin. The server is only asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import parse_duration
from pilotage.core.errors import InvalidInput
from pilotage.core.pilots.states import PilotState
from pilotage.core.plurals import plural
from pilotage.core.policy import Policy, parse
from pilotage.twin.ces_file import ces_text
from pilotage.twin.pilot_lives import RecordedPilot, ces_of_pilots
from pilotage.twin.record import RecordHeader, WorkRecord, read_record, write_record
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload import TraceJob, TraceJobs
from pilotage.twin.workload.seen_numbers import SeenNumbers

if TYPE_CHECKING:
    from pilotage.cli.console import Advance
    from pilotage.client import Client
    from pilotage.wire.history import EndedJobFacts

LONGEST_PERIOD: Final = 100 * 365 * 86400.0
GAVE_WAY: Final = "share"
"""The reason with which a pilot left for another owner's turn."""
FAILED: Final = frozenset({PilotState.FAILED, PilotState.ABORTED})


@connected
def record(
    session: Session,
    out: Annotated[Path, CommandOption("New file for the record", "FILE")],
    since: Annotated[str, CommandOption("The period that ends now, such as 7d", "TIME")] = "30d",
    names: Annotated[
        bool, CommandOption("Keep the names of owners and groups, and the policy; else they have numbers")
    ] = False,
) -> None:
    """Record the jobs of a server for `twin run --history` (administrators). Nothing on the server changes."""
    made = ask_server(session, parse_period(since), names=names)
    write_record(made, out)
    for note in made.notes:
        session.screen.note(f"note: {note}")
    shown = {"file": str(out), "jobs": len(made.jobs), "ces": [ce.name for ce in made.ces]}
    session.screen.json({**shown, "left_out": made.header.left_out, "whole_since": made.header.whole_since})
    session.screen.line(f"{out} has {plural(len(made.jobs), 'job')}, and {plural(len(made.ces), 'CE')}")


def record_of(history: str, session: Session) -> WorkRecord:
    """The record in a file; or, if no file has the name, that of a period such as 30d, which the server is asked."""
    path = Path(history)
    if path.exists():
        return read_record(path)
    try:
        period = parse_period(history)
    except InvalidInput:
        raise InvalidInput(
            f"there is no file {history}, and it is no period such as 30d",
            hint="write a record with `pilotage twin record --out FILE`",
        ) from None
    return ask_server(session, period, names=True)


def parse_period(text: str) -> float:
    """The seconds of a period. Raises `InvalidInput`."""
    period = parse_duration(text)
    if not 0 < period <= LONGEST_PERIOD:
        raise InvalidInput(f"the period {text} must be longer than 0 s and at most 100 years")
    return period


def ask_server(session: Session, period: float, *, names: bool) -> WorkRecord:
    """Ask the server for its last `period` seconds. Without `names`, owners and groups get numbers."""
    with session.client() as client, session.screen.progress("record") as advance:
        end = time.time()
        document = client.policy()
        policy = parse(document.text)
        jobs = _RecordedJobs(end - period, names=names)
        jobs.read(client, advance)
        pilots = list(_pilots(client, policy, end - period, advance))
        unended = client.counts()
    largest = int(jobs.jobs.rows["processors"].max()) if len(jobs.jobs) else 1
    ces, remarks = ces_of_pilots(policy, pilots, end - period, end, largest)
    if len(jobs.jobs) and not ces:
        raise InvalidInput("no CE of the policy had pilots in the period", hint="record a longer period")
    text = document.text if names else policy_of_trace(jobs.jobs, ces, jobs.shares(policy))
    if not names:
        remarks += ("without --names the policy is a plain one, with the shares in force",)
    jobs.left_out["have not ended yet"] = unended.total - unended.final
    header = RecordHeader(
        begin=end - period,
        end=end,
        whole_since=jobs.whole_since,
        named=names,
        policy_version=document.version,
        policy=text,
        ces=ces_text(ces),
        jobs=len(jobs.jobs),
        left_out=dict(jobs.left_out),
        remarks=remarks,
    )
    return WorkRecord(header, jobs.jobs, ces)


class _RecordedNames:
    """The names of the record: the server's own, or numbered ones in the order in which they are met."""

    def __init__(self, word: str, *, keep: bool) -> None:
        self._word, self._keep = word, keep
        self.numbered: dict[str, str] = {}

    def of(self, name: str) -> str:
        if self._keep:
            return name
        return self.numbered.setdefault(name, f"{self._word}{len(self.numbered) + 1}")


class _RecordedJobs:
    """The jobs that came in a period."""

    def __init__(self, begin: float, *, names: bool) -> None:
        self._begin = begin
        self._seen = SeenNumbers()
        self._owners, self._groups = _RecordedNames("user", keep=names), _RecordedNames("group", keep=names)
        self.jobs = TraceJobs()
        self.left_out: Counter[str] = Counter()
        self.whole_since = 0.0

    def read(self, client: Client, advance: Advance) -> None:
        for page in client.ended_jobs(self._begin):
            self.whole_since = max(self.whole_since, page.whole_since)
            for job in page.jobs:
                # A job that was rescheduled meanwhile may end twice.
                if job.submitted >= self._begin and self._seen.add(job.id):
                    self._add(job)
            advance(0, 0, plural(len(self.jobs), "job"))
        self.jobs.sort()

    def _add(self, job: EndedJobFacts) -> None:
        if job.run is None:
            self.left_out["ended without a run"] += 1
        elif job.run <= 0:
            self.left_out["ran for 0 s"] += 1
        else:
            self.jobs.append(
                TraceJob(
                    job.id,
                    job.submitted - self._begin,
                    job.run,
                    job.processors,
                    job.memory,
                    job.wall_time,
                    self._owners.of(job.owner),
                    self._groups.of(job.group),
                    job.cpu_time,
                )
            )

    def shares(self, policy: Policy) -> dict[str, float]:
        """The shares in force, by the numbered names of the groups."""
        shares = policy.shares()
        return {name: shares[group] for group, name in self._groups.numbered.items() if group in shares}


def _pilots(client: Client, policy: Policy, begin: float, advance: Advance) -> Iterator[RecordedPilot]:
    """The pilots that may have run in the period."""
    longest = max((ce.wall for ce in policy.ces.values()), default=0.0)
    for number, pilot in enumerate(client.pilots()):
        if pilot.submitted < begin - longest:
            return
        if number % 1000 == 0:
            advance(0, 0, plural(number, "pilot"))
        if pilot.pilot_type != "probe" and (pilot.ended is None or pilot.ended >= begin):
            yield RecordedPilot(
                pilot.ce,
                pilot.processors,
                pilot.submitted,
                pilot.started,
                pilot.ended,
                pilot.state in FAILED,
                gave_way=pilot.reason == GAVE_WAY,
            )
