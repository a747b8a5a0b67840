"""Jobs in the JSON of squeue and sacct: the fields that programs read."""

from __future__ import annotations

import json
from signal import Signals
from typing import Any

from pilotage import __version__
from pilotage.cli.slurm.amounts import parse_megabytes
from pilotage.cli.slurm.batch_job import COMMAND_VARIABLE
from pilotage.cli.slurm.job_view import CLUSTER, SlurmJob, users_group
from pilotage.cli.slurm.rows import SlurmJobRow
from pilotage.cli.slurm.squeue_columns import (
    NOBODY,
    dependency_text,
    expected_end,
    file_path,
    resources_text,
    short_host,
    user_id,
)
from pilotage.core.errors import InvalidInput


def print_document(content: dict[str, Any]) -> None:
    plugin = {"type": "openapi/v0.0.38", "name": f"pilotage {__version__}"}
    meta = {
        "plugin": plugin,
        "Slurm": {"version": {"major": 22, "minor": 5, "micro": 0}, "release": "22.05.0"},
    }
    print(json.dumps({"meta": meta, "errors": [], **content}, indent=2))


def queue_document(row: SlurmJobRow) -> dict[str, Any]:
    """A job in the JSON of squeue, with the names of its version 0.0.38."""
    job = row.job
    summary = job.summary
    code, signal = job.exit_code
    document = _submitted(row) | {
        "array_job_id": job.array or 0,
        "array_task_id": job.task,
        "batch_host": short_host(job),
        "dependency": dependency_text(job),
        "eligible_time": 0 if job.waits_for_user else int(summary.submitted),
        "end_time": int(expected_end(job) or 0),
        "exit_code": signal or code * 256,
        "job_id": summary.id,
        "job_state": job.state.name,
        "nodes": short_host(job),
        "partition": job.partition,
        "restart_cnt": max(0, summary.attempt - 1),
        "standard_error": file_path(row, "stderr_file"),
        "standard_output": file_path(row, "stdout_file"),
        "start_time": int(summary.started or 0),
        "state_reason": job.reason,
    }
    return dict(sorted(document.items()))


def _submitted(row: SlurmJobRow) -> dict[str, Any]:
    """The facts that are known since the submission."""
    job = row.job
    summary, facts = job.summary, job.facts
    for_core = facts.get("SLURM_MEM_PER_CPU", "")
    return {
        "account": users_group(job),
        "array_max_tasks": job.parallel,
        "array_task_string": "",
        "batch_flag": True,
        "cluster": CLUSTER,
        "command": facts.get(COMMAND_VARIABLE, ""),
        "comment": facts.get("SLURM_JOB_COMMENT", ""),
        "cpus": job.cpus,
        "cpus_per_task": _number(facts.get("SLURM_CPUS_PER_TASK", "")) or None,
        "current_working_directory": job.description.get("folder") or "",
        "features": facts.get("SLURM_JOB_CONSTRAINTS", ""),
        "group_id": _number(facts.get("SLURM_JOB_GID", ""), NOBODY),
        "group_name": summary.group,
        "memory_per_cpu": _megabytes(for_core),
        "memory_per_node": None if for_core else job.memory or None,
        "minimum_cpus_per_node": job.cpus,
        "minimum_tmp_disk_per_node": int(job.description.get("disk") or 0),
        "name": summary.name,
        "node_count": 1,
        "priority": summary.user_priority,
        "qos": facts.get("SLURM_JOB_QOS", "normal"),
        "requeue": True,
        "standard_input": "/dev/null",
        "submit_time": int(summary.submitted),
        "tasks": _number(facts.get("SLURM_NTASKS", ""), 1),
        "time_limit": job.time_limit // 60 or None,
        "tres_req_str": resources_text(job),
        "user_id": user_id(summary.owner),
        "user_name": summary.owner,
    }


def _number(text: str, otherwise: int = 0) -> int:
    """The number of a variable, which a user may have set to anything."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else otherwise


def _megabytes(text: str) -> int | None:
    try:
        return parse_megabytes(text, "SLURM_MEM_PER_CPU")
    except InvalidInput:
        return None


def record_document(row: SlurmJobRow) -> dict[str, Any]:
    """A job in the JSON of sacct, with the names of its version 0.0.38."""
    job = row.job
    summary, facts, host = job.summary, job.facts, short_host(job)
    account = users_group(job)
    return {
        "account": account,
        "allocation_nodes": int(bool(host)),
        "array": {
            "job_id": job.array or 0,
            "limits": {"max": {"running": {"tasks": job.parallel}}},
            "task": None,
            "task_id": job.task,
        },
        "association": {"account": account, "cluster": CLUSTER, "partition": None, "user": summary.owner},
        "cluster": CLUSTER,
        "comment": {"administrator": None, "job": facts.get("SLURM_JOB_COMMENT"), "system": None},
        "constraints": facts.get("SLURM_JOB_CONSTRAINTS", ""),
        "derived_exit_code": {"status": "SUCCESS", "return_code": 0},
        "exit_code": _exit_document(job),
        "group": summary.group,
        "job_id": summary.id,
        "name": summary.name,
        "nodes": host or "None assigned",
        "partition": job.partition,
        "priority": summary.user_priority,
        "qos": facts.get("SLURM_JOB_QOS", "normal"),
        "required": {"CPUs": job.cpus, "memory": job.memory},
        "state": {"current": job.state.name, "reason": job.reason},
        "steps": _steps(row),
        "time": _times(row) | {"limit": job.time_limit // 60, "submission": int(summary.submitted)},
        "user": summary.owner,
        "working_directory": job.description.get("folder") or "",
    }


def _steps(row: SlurmJobRow) -> list[dict[str, Any]]:
    """The batch step, if it has begun."""
    job = row.job
    if job.summary.started is None:
        return []
    hosts = [host for host in [short_host(job)] if host]
    batch = {
        "exit_code": _exit_document(job),
        "nodes": {"list": hosts, "count": len(hosts), "range": ",".join(hosts)},
        "state": job.state.name,
        "step": {"job_id": job.summary.id, "id": "batch", "name": "batch"},
        "tasks": {"count": 1},
        "time": _times(row),
    }
    return [batch]


def _exit_document(job: SlurmJob) -> dict[str, Any]:
    code, signal = job.exit_code
    if signal:
        return {
            "status": "SIGNALED",
            "return_code": 0,
            "signal": {"signal_id": signal, "name": _name(signal)},
        }
    return {"status": "ERROR" if code else "SUCCESS", "return_code": code}


def _name(number: int) -> str:
    known = {int(signal): signal.name.removeprefix("SIG") for signal in Signals}
    return known.get(number, str(number))


def _times(row: SlurmJobRow) -> dict[str, int]:
    summary = row.job.summary
    return {
        "elapsed": int(row.job.elapsed(row.now)),
        "eligible": int(summary.submitted),
        "end": int(summary.ended or 0),
        "start": int(summary.started or 0),
        "suspended": 0,
    }
