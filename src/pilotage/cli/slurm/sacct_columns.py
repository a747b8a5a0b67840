"""The columns of sacct."""

from __future__ import annotations

from typing import Final

from pilotage.cli.slurm.amounts import format_long_clock, format_moment
from pilotage.cli.slurm.columns import TableColumn, fixed_columns
from pilotage.cli.slurm.job_view import CLUSTER, users_group
from pilotage.cli.slurm.rows import SlurmJobRow
from pilotage.cli.slurm.squeue_columns import memory_text, short_host, user_id
from pilotage.cli.slurm.states import CANCELLED, PENDING, TIMEOUT
from pilotage.core.jobs.states import JobState

DEFAULT_FIELDS: Final = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF_FIELDS: Final = "jobid,state,exitcode"
LONG_FIELDS: Final = (
    "jobid,jobidraw,jobname,partition,maxrss,ntasks,alloccpus,elapsed,state,exitcode,reqmem,totalcpu,nodelist"
)


def _state(row: SlurmJobRow) -> str:
    state = row.job.state
    if row.step:
        return "CANCELLED" if state in (CANCELLED, TIMEOUT) else state.name
    # Nobody has cancelled a job whose condition could not come true.
    by_somebody = state is CANCELLED and row.job.summary.state != JobState.SKIPPED
    return f"CANCELLED by {user_id(row.job.summary.owner)}" if by_somebody else state.name


def _exit(row: SlurmJobRow) -> str:
    code, signal = row.job.exit_code
    if row.step and row.job.state in (CANCELLED, TIMEOUT):
        signal = signal or 15
    return f"{code}:{signal}"


def _cores(row: SlurmJobRow) -> int:
    return 0 if row.job.state is PENDING else row.job.cpus


def _elapsed(row: SlurmJobRow) -> float:
    return row.job.elapsed(row.now)


def _total_cpu(row: SlurmJobRow) -> str:
    attempt = row.job.last_attempt
    seconds = attempt.cpu if attempt is not None else 0.0
    whole = format_long_clock(seconds)
    return (
        f"{whole[3:] if whole.startswith('00:') else whole}.{int(seconds % 1 * 1000):03}"[:9]
        if seconds < 3600
        else whole
    )


def _max_rss(row: SlurmJobRow) -> str:
    """The peak of the job, in its batch row as in Slurm."""
    attempt = row.job.last_attempt
    return f"{attempt.max_rss * 1024}K" if row.step and attempt is not None and attempt.max_rss else ""


def _of_job(row: SlurmJobRow, text: str) -> str:
    """A value that Slurm leaves empty in the row of a step."""
    return "" if row.step else text


def _time_limit(row: SlurmJobRow) -> str:
    return format_long_clock(row.job.time_limit) if row.job.time_limit else "UNLIMITED"


def _resources(row: SlurmJobRow) -> str:
    memory = f",mem={memory_text(row.job)}" if row.job.memory else ""
    return f"billing={row.job.cpus},cpu={row.job.cpus}{memory},node=1"


def _constraints(row: SlurmJobRow) -> str:
    return _of_job(row, row.job.facts.get("SLURM_JOB_CONSTRAINTS", ""))


def _start(row: SlurmJobRow) -> str:
    return format_moment(row.job.summary.started, "None" if row.job.state is CANCELLED else "Unknown")


def _reserved(row: SlurmJobRow) -> str:
    """The time between submission and start."""
    summary = row.job.summary
    return _of_job(
        row, "" if summary.started is None else format_long_clock(summary.started - summary.submitted)
    )


def _raw_number(row: SlurmJobRow) -> str:
    return f"{row.job.summary.id}{f'.{row.step}' if row.step else ''}"


_EMPTY: Final = (
    "AdminComment", "AssocID", "AveCPUFreq", "AveDiskRead", "AveDiskWrite", "AvePages", "AveVMSize", "BlockID",
    "ConsumedEnergy", "ConsumedEnergyRaw", "Container", "DBIndex", "Flags", "Layout", "MaxDiskRead", "MaxDiskReadNode",
    "MaxDiskReadTask", "MaxDiskWrite", "MaxDiskWriteNode", "MaxDiskWriteTask", "MaxPages", "MaxPagesNode",
    "MaxPagesTask", "MaxRSSNode", "MaxRSSTask", "MaxVMSize", "MaxVMSizeNode", "MaxVMSizeTask", "McsLabel", "MinCPU",
    "MinCPUNode", "MinCPUTask", "QOSRAW", "ReqCPUFreq", "ReqCPUFreqGov", "ReqCPUFreqMax", "ReqCPUFreqMin",
    "Reservation", "ReservationId", "ResvCPU", "ResvCPURAW", "SubmitLine", "SystemComment", "SystemCPU",
    "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInMaxNode", "TRESUsageInMaxTask", "TRESUsageInMin",
    "TRESUsageInMinNode", "TRESUsageInMinTask", "TRESUsageInTot", "TRESUsageOutAve", "TRESUsageOutMax",
    "TRESUsageOutMaxNode", "TRESUsageOutMaxTask", "TRESUsageOutMin", "TRESUsageOutMinNode", "TRESUsageOutMinTask",
    "TRESUsageOutTot", "UserCPU", "WCKey", "WCKeyID",
)  # fmt: skip
"""Columns of which nothing is known here: they are empty."""
COLUMNS: Final[tuple[TableColumn[SlurmJobRow], ...]] = (
    TableColumn("jobid", "JobID", lambda row: row.number, width=12),
    TableColumn("jobidraw", "JobIDRaw", _raw_number, width=12),
    TableColumn("jobname", "JobName", lambda row: row.step or row.job.summary.name, width=10),
    TableColumn("partition", "Partition", lambda row: _of_job(row, row.job.partition), width=10),
    TableColumn("account", "Account", lambda row: users_group(row.job), width=10),
    TableColumn("user", "User", lambda row: _of_job(row, row.job.summary.owner), width=9),
    TableColumn("uid", "UID", lambda row: _of_job(row, str(user_id(row.job.summary.owner))), width=6),
    TableColumn("group", "Group", lambda row: _of_job(row, row.job.summary.group), width=9),
    TableColumn("cluster", "Cluster", lambda row: CLUSTER, width=10),
    TableColumn("alloccpus", "AllocCPUS", lambda row: str(_cores(row)), width=10),
    TableColumn("ncpus", "NCPUS", lambda row: str(_cores(row)), width=10),
    TableColumn("reqcpus", "ReqCPUS", lambda row: str(row.job.cpus), width=8),
    TableColumn("reqnodes", "ReqNodes", lambda row: "1", width=8),
    TableColumn("nnodes", "NNodes", lambda row: "1", width=8),
    TableColumn("allocnodes", "AllocNodes", lambda row: "0" if row.job.state is PENDING else "1", width=10),
    TableColumn("ntasks", "NTasks", lambda row: "1" if row.step else "", width=8),
    TableColumn("state", "State", _state, width=10),
    TableColumn("exitcode", "ExitCode", _exit, width=8),
    TableColumn("derivedexitcode", "DerivedExitCode", lambda row: _of_job(row, "0:0"), width=15),
    TableColumn("reason", "Reason", lambda row: _of_job(row, row.job.reason), width=22),
    TableColumn("submit", "Submit", lambda row: format_moment(row.job.summary.submitted, ""), width=19),
    TableColumn("eligible", "Eligible", lambda row: format_moment(row.job.summary.submitted, ""), width=19),
    TableColumn("start", "Start", _start, width=19),
    TableColumn("end", "End", lambda row: format_moment(row.job.summary.ended, "Unknown"), width=19),
    TableColumn("reserved", "Reserved", _reserved, width=10),
    TableColumn("elapsed", "Elapsed", lambda row: format_long_clock(_elapsed(row)), width=10),
    TableColumn("elapsedraw", "ElapsedRaw", lambda row: str(int(_elapsed(row))), width=10),
    TableColumn("cputime", "CPUTime", lambda row: format_long_clock(int(_elapsed(row)) * _cores(row)), width=10),
    TableColumn("cputimeraw", "CPUTimeRAW", lambda row: str(int(_elapsed(row)) * _cores(row)), width=10),
    TableColumn("totalcpu", "TotalCPU", _total_cpu, width=10),
    TableColumn("maxrss", "MaxRSS", _max_rss, width=10),
    TableColumn("reqmem", "ReqMem", lambda row: _of_job(row, memory_text(row.job)), width=10),
    TableColumn("reqtres", "ReqTRES", lambda row: _of_job(row, _resources(row)), width=10),
    TableColumn("alloctres", "AllocTRES", lambda row: _resources(row) if _cores(row) else "", width=10),
    TableColumn("nodelist", "NodeList", lambda row: short_host(row.job) or "None assigned", width=15),
    TableColumn("timelimit", "Timelimit", lambda row: _of_job(row, _time_limit(row)), width=10),
    TableColumn("timelimitraw", "TimelimitRaw", lambda row: _of_job(row, str(row.job.time_limit // 60)), width=12),
    TableColumn("workdir", "WorkDir", lambda row: _of_job(row, row.job.description.get("folder") or ""), width=20),
    TableColumn("comment", "Comment", lambda row: _of_job(row, row.job.facts.get("SLURM_JOB_COMMENT", "")), width=14),
    TableColumn("qos", "QOS", lambda row: _of_job(row, row.job.facts.get("SLURM_JOB_QOS", "normal")), width=10),
    TableColumn("priority", "Priority", lambda row: _of_job(row, str(row.job.summary.user_priority)), width=10),
    TableColumn("gid", "GID", lambda row: _of_job(row, row.job.facts.get("SLURM_JOB_GID", "")), width=6),
    TableColumn("constraints", "Constraints", _constraints, width=20),
    TableColumn("suspended", "Suspended", lambda row: "00:00:00", width=10),
    TableColumn("avecpu", "AveCPU", lambda row: _total_cpu(row) if row.step else "", width=10),
    TableColumn("averss", "AveRSS", lambda row: _max_rss(row), width=10),
    *fixed_columns((title.lower(), title, "", "") for title in _EMPTY),
)  # fmt: skip
