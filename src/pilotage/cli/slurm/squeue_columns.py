"""The columns of squeue."""

from __future__ import annotations

import pwd
from typing import Final

from pilotage.cli.slurm.amounts import format_clock, format_moment
from pilotage.cli.slurm.batch_job import COMMAND_VARIABLE
from pilotage.cli.slurm.columns import TableColumn, fixed_columns
from pilotage.cli.slurm.job_view import CLUSTER, CONDITIONS, SlurmJob, users_group
from pilotage.cli.slurm.rows import SlurmJobRow
from pilotage.cli.slurm.states import PENDING

NOBODY: Final = 65_534
DEFAULT_FORMAT: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_NONE: Final = "(null)"
_NO_TASK: Final = "4294967294"
"""The number of a task in a name of a file that stands for several tasks, or for none."""


def user_id(name: str) -> int:
    """The number of an account of this machine; that of nobody if it has none of this name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return NOBODY


def short_host(job: SlurmJob) -> str:
    return job.summary.hostname.partition(".")[0] if job.summary.started is not None else ""


def dependency_text(job: SlurmJob) -> str:
    """The open conditions of a pending job, in the words of squeue."""
    if job.state is not PENDING:
        return ""
    kinds = dict(zip(CONDITIONS, ("afterany", "afterok", "afternotok", "aftercorr"), strict=True))
    listed = [
        (kinds[name], number)
        for name in CONDITIONS
        for parent in job.description.get(name) or ()
        if (number := job.book.open_parent(str(parent)))
    ]
    return ",".join(f"{kind}:{number}(unfulfilled)" for kind, number in listed)


def limit_text(job: SlurmJob) -> str:
    return format_clock(job.time_limit) if job.time_limit else "UNLIMITED"


def memory_text(job: SlurmJob) -> str:
    """`500M`, `2G`."""
    size, units = job.memory, "MGT"
    while size and size % 1024 == 0 and len(units) > 1:
        size, units = size // 1024, units[1:]
    return f"{size}{units[0]}" if size else "0"


def file_path(row: SlurmJobRow, field: str) -> str:
    """The path of an output, with the patterns that are known before the job runs."""
    job = row.job
    task = _NO_TASK if row.tasks or job.task is None else str(job.task)
    known = {"%j": str(job.summary.id), "%A": str(job.array or job.summary.id), "%x": job.summary.name}
    known |= {"%a": task, "%u": job.summary.owner}
    path = str(job.description.get(field) or job.description.get("stdout_file") or "")
    for pattern, value in known.items():
        path = path.replace(pattern, value)
    folder = str(job.description.get("folder") or "")
    return path if path.startswith("/") or not path else f"{folder.rstrip('/')}/{path}"


def resources_text(job: SlurmJob) -> str:
    memory = f",mem={memory_text(job)}" if job.memory else ""
    return f"cpu={job.cpus}{memory},node=1,billing={job.cpus}"


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


def _eligible(row: SlurmJobRow) -> str:
    return format_moment(None if row.job.waits_for_user else row.job.summary.submitted, "N/A")


_SAME: Final = (
    ("tres-per-node", "TRES_PER_NODE", "N/A", "b"),
    ("oversubscribe", "OVER_SUBSCRIBE", "OK", "h"),
    ("socketspernode", "SOCKETS_PER_NODE", "*", "H"),
    ("corespersocket", "CORES_PER_SOCKET", "*", "I"),
    ("threadspercore", "THREADS_PER_CORE", "*", "J"),
    ("reqnodes", "REQ_NODES", "", "n"),
    ("contiguous", "CONTIGUOUS", "0", "O"),
    ("selectjobinfo", "SELECT_JOBINFO", "", "s"),
    ("reservation", "RESERVATION", _NONE, "v"),
    ("wckey", "WCKEY", _NONE, "w"),
    ("licenses", "LICENSES", _NONE, "W"),
    ("exc_nodes", "EXC_NODES", "", "x"),
    ("corespec", "CORE_SPEC", "N/A", "X"),
    ("nice", "NICE", "0", "y"),
    ("schednodes", "SCHEDNODES", _NONE, "Y"),
    ("sct", "S:C:T", "*:*:*", "z"),
)
"""Columns that are the same for each job here: name, title, value and letter."""
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
    TableColumn("stdin", "STDIN", lambda row: "/dev/null"),
    TableColumn("stdout", "STDOUT", lambda row: file_path(row, "stdout_file")),
    TableColumn("stderr", "STDERR", lambda row: file_path(row, "stderr_file")),
    TableColumn("exit_code", "EXIT_CODE", _exit),
    TableColumn("restartcnt", "RESTART_CNT", lambda row: str(max(0, row.job.summary.attempt - 1))),
    TableColumn("groupid", "GROUP", lambda row: row.job.facts.get("SLURM_JOB_GID", str(NOBODY)), "G"),
    TableColumn("eligibletime", "ELIGIBLE_TIME", _eligible),
    TableColumn("mintmpdisk", "MIN_TMP_DISK", lambda row: str(row.job.description.get("disk") or 0), "d"),
    TableColumn("cluster", "CLUSTER", lambda row: CLUSTER),
    *fixed_columns(_SAME),
)  # fmt: skip
