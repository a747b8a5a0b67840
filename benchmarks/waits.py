"""Where jobs wait between their submission and their end, from their events and attempts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from statistics import median

from pilotage.client import Client
from pilotage.wire.jobs import JobDetail, JobEvent, Selection

PHASES = ("first offer", "offer", "confirm", "start and report", "run")
"""Until the first job of the submission is offered, and of each job: from its submission to its offer, from there to
its confirm, from there to its end but for its run, and its run as the pilot measured it."""
SAMPLE = 100
"""Jobs of a submission that are looked at."""

Waits = dict[str, float]
"""Seconds by phase."""


def waits_of(events: Sequence[JobEvent], detail: JobDetail) -> Waits:
    """The phases of one job that ran once."""
    at = {event.kind: event.at for event in events}
    [attempt] = detail.attempts
    return {
        "offer": at["offered"] - at["submitted"],
        "confirm": at["confirmed"] - at["offered"],
        "start and report": max(0.0, at["finished"] - at["confirmed"] - attempt.wall),
        "run": attempt.wall,
    }


def waits_in(client: Client, submission: int) -> Waits:
    """The medians of some jobs of a submission that is over."""
    jobs = [job.id for job in client.jobs(Selection(submission=submission))]
    sample = jobs[:: max(1, len(jobs) // SAMPLE)]
    waits = [waits_of(client.events(job), client.job(job)) for job in sample]
    return {"first offer": min(job["offer"] for job in waits), **medians(waits)}


def waits_alone(client: Client, executable: str, times: int) -> list[Waits]:
    """The phases of single jobs, each submitted when the pilots have been without work for two seconds."""
    alone = []
    for _ in range(times):
        time.sleep(2.0)
        sent = client.submit({"executable": executable})
        selection = Selection(submission=sent.submission)
        while not client.counts(selection).final:
            time.sleep(0.02)
        alone.append(waits_in(client, sent.submission))
    return alone


def medians(waits: Iterable[Waits]) -> Waits:
    """The median of each phase."""
    phases: dict[str, list[float]] = {}
    for job in waits:
        for phase, seconds in job.items():
            phases.setdefault(phase, []).append(seconds)
    return {phase: median(seconds) for phase, seconds in phases.items()}


def told_waits(waits: Waits) -> str:
    return ", ".join(f"{phase} {waits[phase] * 1000:,.1f}" for phase in PHASES)
