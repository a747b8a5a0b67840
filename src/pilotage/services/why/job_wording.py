"""The sentences of `why` about a single job. Sentences about one that does not wait return (summary, advice)."""

from __future__ import annotations

from datetime import UTC, datetime

from pilotage.core.jobs.use_wording import NOT_TOLD, full_use, may_be_stuck, verdict
from pilotage.core.plurals import plural
from pilotage.wire.jobs import JobSummary
from pilotage.wire.why import PlaceInQueue


def after_others(place: PlaceInQueue) -> str:
    """The jobs before a waiting job, to begin its summary; empty: there are none."""
    before, beside = place.higher + place.older, place.others
    parts = []
    if before:
        parts.append(f"{plural(before, 'job')} of its queue {'goes' if before == 1 else 'go'} before it")
    if beside:
        parts.append(
            f"{plural(beside, 'job')} of other queues {'waits' if beside == 1 else 'wait'} for the same nodes"
        )
    return f"{' and '.join(parts)}; " if parts else ""


def ended(job: JobSummary) -> tuple[str, str]:
    reason = f": {job.reason}" if job.reason else ""
    advice = f"`pilotage status {job.id}` shows the details" if job.state == "Failed" else ""
    return f"job {job.id} has ended and is {job.state}{reason}", advice


def rescheduled(job: JobSummary, until: float | None, now: float) -> tuple[str, str]:
    reason = f" ({job.reason})" if job.reason else ""
    summary = f"an attempt of job {job.id} failed or was lost{reason}; the job returns to its queue"
    if until is not None:
        seconds = max(0.0, until - now)
        when = datetime.fromtimestamp(until, UTC)
        summary += f" in {seconds:.0f} s, at {when:%Y-%m-%d %H:%M:%S} UTC"
    return summary, f"`pilotage status {job.id} --events` shows the history of the job"


def blocked(job: JobSummary, limit: str) -> tuple[str, str]:
    """A job without an open condition. `limit`: how far the limit of its submission is used; "": it has none."""
    if not limit:
        return f"job {job.id} is Blocked, and moves on in a moment", ""
    advice = f"`pilotage submission parallel {job.submission} N` changes the limit"
    return f"job {job.id} waits until another one ends: {limit}", advice


def held_back(job: JobSummary) -> tuple[str, str]:
    reason = job.reason or f"held by {job.owner} at submission"
    return f"job {job.id} is {reason}", f"`pilotage release {job.id}` lets it run"


def running(job: JobSummary, limit: int, now: float) -> tuple[str, str]:
    """A job whose payload runs, and whether it may be stuck. `limit`: MB that it may have; 0: there is no limit."""
    summary, advice = held(job)
    if job.use is None:
        return f"{summary}; {NOT_TOLD}", advice
    works = "" if job.state == "Stalled" else f"{verdict(job.use)}: "
    summary += f"; {works}{full_use(job.use, limit, now)}"
    if not advice and may_be_stuck(job.use):
        advice = f"`pilotage logs {job.id}` shows its output so far, and `pilotage kill {job.id}` ends it"
    return summary, advice


def held(job: JobSummary) -> tuple[str, str]:
    node = f" ({job.hostname})" if job.hostname else ""
    holder = f"pilot {job.pilot} at site {job.site}{node}"
    if job.state == "Matched":
        return f"job {job.id} was offered to {holder} and is about to start", ""
    if job.state == "Taken":
        return f"job {job.id} is Taken: {holder} starts it when an earlier job there ends", ""
    if job.state == "Stalled":
        return f"job {job.id} is Stalled: {holder} holds it, but has been silent", (
            "if the pilot stays silent until its lease expires, the job is tried again"
        )
    return f"job {job.id} is {job.state}, held by {holder}", ""


def being_created(job: int, submission: int) -> str:
    return (
        f"job {job} is still being created: submission {submission} is accepted,"
        " and its jobs are created one after another"
    )
