"""All that is known of one job, as names and values for a person."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pilotage.cli.time_format import format_duration, format_instant, format_size
from pilotage.core.jobs.states import GIVEN_BACK, TAKEN_AHEAD, WITH_USE
from pilotage.core.jobs.use_wording import NOT_TOLD, full_use

if TYPE_CHECKING:
    from pilotage.wire.jobs import JobDetail

Fact = tuple[str, object]


def job_facts(detail: JobDetail, now: float, *, exact: bool) -> Iterator[Fact]:
    """Labelled facts of one job: identity, requests, results. Callers leave out empty values."""
    job = detail.job
    yield "job", job.id
    yield "state", job.state
    yield "reason", job.reason
    yield "name", job.name
    yield "submission", job.submission
    yield "owner", f"{job.owner} ({job.group})"
    yield "job group", job.job_group
    yield from _request_facts(detail)
    yield "queue", job.queue
    yield "site", job.site
    yield "node", job.hostname
    yield "pilot", job.pilot
    yield "exit code", job.exit_code
    yield "submitted", format_instant(job.submitted, now, exact=exact)
    yield "started", format_instant(job.started, now, exact=exact)
    yield "ended", format_instant(job.ended, now, exact=exact)
    if job.use is not None:
        yield "use", full_use(job.use, detail.description.get("memory") or 0, now)
    elif job.state in WITH_USE:
        yield "use", NOT_TOLD
    yield from _result_facts(detail)


def _request_facts(detail: JobDetail) -> Iterator[Fact]:
    description = detail.description
    command = [str(description.get("executable", "")), *map(str, description.get("arguments", []))]
    yield "command", shlex.join(command) if command[0] else ""
    yield "parameters", ", ".join(f"{name or '%s'}={value}" for name, value in detail.parameters.items())
    for name in ("sites", "banned_sites", "grid_ces", "platforms", "tags", "submit_pools"):
        yield f"asks for {name.replace('_', ' ')}", ", ".join(map(str, description.get(name, [])))
    yield "asks for", ", ".join(_resources(description))
    yield "requirements", description.get("requirements")
    yield "host requirements", description.get("host_requirements")
    yield "output SE", description.get("output_se")
    yield "container", description.get("container")
    yield (
        "environment",
        " ".join(
            f"{name}={shlex.quote(str(value))}" for name, value in description.get("environment", {}).items()
        ),
    )
    yield "setup", "; ".join(map(str, description.get("setup_lines", [])))
    yield "inputs", ", ".join(str(file.get("name", "")) for file in description.get("input_sandbox", []))
    yield "brings back", ", ".join(map(str, description.get("output_sandbox", [])))


def _resources(description: dict[str, Any]) -> Iterator[str]:
    processors = description.get("processors", 1)
    yield f"{processors} core{'' if processors == 1 else 's'}"
    if description.get("memory"):
        yield f"{description['memory']} MB"
    if description.get("disk"):
        yield f"{description['disk']} MB of disk"
    for name, words in (("cpu_time", "CPU"), ("wall_time", "wall")):
        if description.get(name):
            yield f"{format_duration(description[name])} {words}"


def _result_facts(detail: JobDetail) -> Iterator[Fact]:
    for attempt in detail.attempts:
        place = f"{attempt.site} {attempt.hostname}".strip()
        if attempt.outcome in (TAKEN_AHEAD, GIVEN_BACK):
            yield f"attempt {attempt.attempt}", "; ".join(part for part in (place, attempt.outcome) if part)
            continue
        used = (
            f"{format_duration(attempt.wall)} wall, {format_duration(attempt.cpu)} CPU, {attempt.max_rss} MB"
            if attempt.ended
            else "runs"
        )
        end = " ".join(part for part in (attempt.outcome, attempt.failure, attempt.message) if part)
        yield f"attempt {attempt.attempt}", "; ".join(part for part in (place, used, end) if part)
    yield "outputs", ", ".join(f"{output.name} ({format_size(output.size)})" for output in detail.outputs)
    yield "missing outputs", ", ".join(detail.missing_outputs)
    for file in detail.refused_outputs:
        yield "not stored", f"{file.name}: {file.reason}"
