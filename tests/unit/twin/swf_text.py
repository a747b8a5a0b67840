"""Writes jobs in the Standard Workload Format."""

from __future__ import annotations

from collections.abc import Iterable

from pilotage.twin.workload import TraceJob


def swf_line(job: TraceJob, *, wait: int = -1, status: int = 1) -> str:
    memory = -1 if not job.memory else job.memory * 1024 // job.processors
    owner, group = (int(name.lstrip("usergop")) for name in (job.owner, job.group))
    fields = (
        *(job.number, int(job.submit), wait, int(job.run), job.processors, -1, -1, job.processors),
        *(int(job.wall) or -1, memory, status, owner, group, -1, -1, -1, -1, -1),
    )
    return " ".join(map(str, fields))


def swf_text(jobs: Iterable[TraceJob], header: str = "; Version: 2.2\n; MaxProcs: 64\n") -> str:
    return header + "".join(f"{swf_line(job)}\n" for job in jobs)


def job(number: int = 1, **facts: object) -> TraceJob:
    given = {"submit": 0.0, "run": 60.0, "processors": 1, "memory": 0, "wall": 0.0}
    return TraceJob(**{"number": number, "owner": "user1", "group": "group1", **given, **facts})  # type: ignore[arg-type]
