"""The columns of squeue."""

from __future__ import annotations

import pwd
from typing import Final

from pilotage.cli.slurm.amounts import format_clock, format_moment
from pilotage.cli.slurm.batch_job import COMMAND_VARIABLE
from pilotage.cli.slurm.columns import TableColumn
from pilotage.cli.slurm.job_view import CONDITIONS, SlurmJob, users_group
from pilotage.cli.slurm.rows import SlurmJobRow
from pilotage.cli.slurm.states import PENDING

NOBODY: Final = 65_534
DEFAULT_FORMAT: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_NONE: Final = "(null)"


def user_id(name: str) -> int:
    """The number of an account of this machine; that of nobody if it has none of this name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return NOBODY


def short_host(job: SlurmJob) -> str:
    return job.summary.hostname.partition(".")[0] if job.summary.started is not None else ""


def dependency_text(job: SlurmJob) -> str:
    """The conditions of a pending job, in the words of --dependency."""
    kinds = dict(zip(CONDITIONS, ("afterany", "afterok", "afternotok", "aftercorr"), strict=True))
    parts = [f"{kinds[name]}:{parent}" for name in CONDITIONS for parent in job.description.get(name) or ()]
    return ",".join(parts) if job.state is PENDING else ""


def limit_text(job: SlurmJob) -> str:
    return format_clock(job.time_limit) if job.time_limit else "UNLIMITED"


def memory_text(job: SlurmJob) -> str:
    """`500M`, `2G`."""
    size, units = job.memory, "MGT"
    while size and size % 1024 == 0 and len(units) > 1:
        size, units = size // 1024, units[1:]
    return f"{size}{units[0]}" if size else "0"


def expected_end(job: SlurmJob) -> float | None:
    if job.summary.ended is not None or job.summary.started is None or not job.time_limit:
        return job.summary.ended
    return job.summary.started + job.time_limit


def _left(row: SlurmJobRow) -> str:
    if not row.job.time_limit:
        return "UNLIMITED"
    return format_clock(row.job.time_limit - row.job.elapsed(row.now))


def _node_or_reason(row: SlurmJobRow) -> str:
    return (
        short_host(row.job) if row.job.state is not PENDING and short_host(row.job) else f"({row.job.reason})"
    )


def _exit(row: SlurmJobRow) -> str:
    code, signal = row.job.exit_code
    return str(signal or code * 256)


COLUMNS: Final[tuple[TableColumn[SlurmJobRow], ...]] = (
    TableColumn("jobarrayid", "JOBID", lambda row: row.number, "i"),
    TableColumn("jobid", "JOBID", lambda row: str(row.job.summary.id), "A"),
    TableColumn("arrayjobid", "ARRAY_JOB_ID", lambda row: str(row.job.array or row.job.summary.id), "F"),
    TableColumn("arraytaskid", "ARRAY_TASK_ID", lambda row: row.task_text or "N/A", "K"),
    TableColumn("partition", "PARTITION", lambda row: row.job.partition, "P"),
    TableColumn("name", "NAME", lambda row: row.job.summary.name, "j"),
    TableColumn("username", "USER", lambda row: row.job.summary.owner, "u"),
    TableColumn("userid", "UID", lambda row: str(user_id(row.job.summary.owner)), "U"),
    TableColumn("statecompact", "ST", lambda row: row.job.state.code, "t"),
    TableColumn("state", "STATE", lambda row: row.job.state.name, "T"),
    TableColumn("timeused", "TIME", lambda row: format_clock(row.job.elapsed(row.now)), "M"),
    TableColumn("timelimit", "TIME_LIMIT", lambda row: limit_text(row.job), "l"),
    TableColumn("timeleft", "TIME_LEFT", _left, "L"),
    TableColumn("numnodes", "NODES", lambda row: "1", "D"),
    TableColumn("numcpus", "CPUS", lambda row: str(row.job.cpus), "C"),
    TableColumn("numtasks", "TASKS", lambda row: row.job.facts.get("SLURM_NTASKS", "1")),
    TableColumn("mincpus", "MIN_CPUS", lambda row: str(row.job.cpus), "c"),
    TableColumn("minmemory", "MIN_MEMORY", lambda row: memory_text(row.job), "m"),
    TableColumn("reasonlist", "NODELIST(REASON)", _node_or_reason, "R"),
    TableColumn("reason", "REASON", lambda row: row.job.reason, "r"),
    TableColumn("nodelist", "NODELIST", lambda row: short_host(row.job), "N"),
    TableColumn("batchhost", "EXEC_HOST", lambda row: short_host(row.job) or "n/a", "B"),
    TableColumn("account", "ACCOUNT", lambda row: users_group(row.job), "a"),
    TableColumn("groupname", "GROUP", lambda row: row.job.summary.group, "g"),
    TableColumn("qos", "QOS", lambda row: row.job.facts.get("SLURM_JOB_QOS", "normal"), "q"),
    TableColumn("prioritylong", "PRIORITY", lambda row: str(row.job.summary.user_priority), "Q"),
    TableColumn("priority", "PRIORITY", lambda row: f"{row.job.summary.user_priority / 10:.14f}", "p"),
    TableColumn("submittime", "SUBMIT_TIME", lambda row: format_moment(row.job.summary.submitted, "N/A"), "V"),
    TableColumn("starttime", "START_TIME", lambda row: format_moment(row.job.summary.started, "N/A"), "S"),
    TableColumn("endtime", "END_TIME", lambda row: format_moment(expected_end(row.job), "N/A"), "e"),
    TableColumn("dependency", "DEPENDENCY", lambda row: dependency_text(row.job) or _NONE, "E"),
    TableColumn("feature", "FEATURES", lambda row: row.job.facts.get("SLURM_JOB_CONSTRAINTS", _NONE), "f"),
    TableColumn("workdir", "WORK_DIR", lambda row: row.job.description.get("folder") or _NONE, "Z"),
    TableColumn("command", "COMMAND", lambda row: row.job.facts.get(COMMAND_VARIABLE, _NONE), "o"),
    TableColumn("comment", "COMMENT", lambda row: row.job.facts.get("SLURM_JOB_COMMENT", _NONE), "k"),
    TableColumn("stdout", "STDOUT", lambda row: row.job.description.get("stdout_file") or _NONE),
    TableColumn("stderr", "STDERR", lambda row: row.job.description.get("stderr_file") or _NONE),
    TableColumn("exit_code", "EXIT_CODE", _exit),
    TableColumn("restartcnt", "RESTART_CNT", lambda row: str(max(0, row.job.summary.attempt - 1))),
)  # fmt: skip
