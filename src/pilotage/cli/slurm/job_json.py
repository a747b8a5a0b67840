"""Jobs in the JSON of squeue and sacct: the fields that programs read."""

from __future__ import annotations

import json
from typing import Any

from pilotage import __version__
from pilotage.cli.slurm.batch_job import COMMAND_VARIABLE
from pilotage.cli.slurm.job_view import users_group
from pilotage.cli.slurm.rows import SlurmJobRow
from pilotage.cli.slurm.squeue_columns import dependency_text, expected_end, short_host, user_id


def print_document(content: dict[str, Any]) -> None:
    plugin = {"type": "openapi/v0.0.38", "name": f"pilotage {__version__}"}
    meta = {
        "plugin": plugin,
        "Slurm": {"version": {"major": 22, "minor": 5, "micro": 0}, "release": "22.05.0"},
    }
    print(json.dumps({"meta": meta, "errors": [], **content}, indent=2))


def job_document(row: SlurmJobRow) -> dict[str, Any]:
    job = row.job
    summary = job.summary
    code, signal = job.exit_code
    end = expected_end(job)
    return {
        "account": users_group(job),
        "array_job_id": job.array or 0,
        "array_task_id": job.task,
        "batch_host": short_host(job),
        "command": job.facts.get(COMMAND_VARIABLE, ""),
        "comment": job.facts.get("SLURM_JOB_COMMENT", ""),
        "cpus": job.cpus,
        "current_working_directory": job.description.get("folder") or "",
        "dependency": dependency_text(job),
        "end_time": int(end or 0),
        "exit_code": signal or code * 256,
        "features": job.facts.get("SLURM_JOB_CONSTRAINTS", ""),
        "group_name": summary.group,
        "job_id": summary.id,
        "job_state": job.state.name,
        "memory_per_node": job.memory or None,
        "name": summary.name,
        "node_count": 1,
        "nodes": short_host(job),
        "partition": job.partition,
        "priority": summary.user_priority,
        "restart_cnt": max(0, summary.attempt - 1),
        "standard_error": job.description.get("stderr_file") or "",
        "standard_output": job.description.get("stdout_file") or "",
        "start_time": int(summary.started or 0),
        "state_reason": job.reason,
        "submit_time": int(summary.submitted),
        "tasks": int(job.facts.get("SLURM_NTASKS", "1")),
        "time_limit": job.time_limit // 60 or None,
        "user_id": user_id(summary.owner),
        "user_name": summary.owner,
    }
