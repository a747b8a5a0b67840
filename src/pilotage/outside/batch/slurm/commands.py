"""Argument lists of Slurm's commands. Pure; a value from a job description never becomes an option of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil

from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.properties import all_properties, write_properties

INDEX_VARIABLE = "SLURM_ARRAY_TASK_ID"
"""The environment variable that holds a pilot's index within its submission."""

PILOT_OPTIONS: Mapping[str, str] = {
    "--batch-id": "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}",
    "--batch-host": "${SLURMD_NODENAME}",
    "--batch-start": "${SLURM_JOB_START_TIME:-0}",
    "--batch-end": "${SLURM_JOB_END_TIME:-0}",
    "--restarts": "${SLURM_RESTART_COUNT:-0}",
}
"""The `BatchAdapter.pilot_options` of Slurm."""

LINE_START = "=|"
LISTING_FORMAT = f"{LINE_START}%F|%K|%T|%N|%j|%r"
"""Array job id, task, state, nodes, name, reason. A foreign job's name may hold `|` and line ends."""

PROPERTIES_FORMAT = f"{LINE_START}%F|%K|%j|%k"
"""Array job id, task, name, comment."""

ACCOUNTED_FORMAT = "JobID,State,ExitCode,Reason,NodeList,ElapsedRaw,JobName"
"""Columns of `sacct`. The name comes last: a foreign job's name may hold `|`."""

MOST_NAMES = 500
"""Names in one command; a listing for more names is one of all jobs."""

PARTITION_FORMAT = "%P|%a|%l|%D|%c|%m|%f|%G|%T"
"""Partition (`*`: the default), availability, time limit, nodes, cores, memory, features, generic resources, state."""


def submit(submission: BatchSubmission, options: SlurmOptions) -> list[str]:
    """Submit an array of held jobs; the script is read from standard input.

    Slurm must not start a job again by itself: the second start would be another program with an old stamp.
    """
    shape = submission.shape
    log = f"{options.log_folder}/%x-%a.log" if options.log_folder else "/dev/null"
    command = [
        "sbatch",
        "--parsable",
        "--hold",
        "--no-requeue",
        f"--job-name={submission.stamp}",
        f"--comment=pilotage {write_properties(all_properties(submission))}",
        f"--array=0-{submission.count - 1}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={shape.processors}",
        f"--output={log}",
        "--chdir=/",
        "--export=ALL",
    ]
    if shape.wall:
        command.append(f"--time={max(1, ceil(shape.wall / 60))}")
    if shape.memory:
        command.append(f"--mem={shape.memory}M")
    named = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "gres": options.gres,
        "reservation": options.reservation,
    }
    command += [f"--{option}={value}" for option, value in named.items() if value]
    # Of two equal options the last counts. A forwarded --constraint includes the one of the policy.
    return [*command, *submission.flags]


def check(shape: Shape, options: SlurmOptions) -> list[str]:
    """Ask whether Slurm would accept a pilot: partition, account, QOS, size and limits. Nothing is submitted."""
    return [*submit(BatchSubmission("pilotage-check", 1, shape, ""), options), "--test-only"]


def release(stamp: str) -> list[str]:
    """Release all jobs of a submission by name: there is no time between a check of an id and its release."""
    return ["scontrol", "release", f"jobname={stamp}"]


def cancel_submission(stamp: str, user: str, *, waiting_only: bool = False) -> list[str]:
    """Cancel all jobs of a submission, or only its waiting ones."""
    return ["scancel", f"--user={user}", f"--name={stamp}", *(["--state=PENDING"] if waiting_only else [])]


def cancel_tasks(batch_ids: Sequence[str]) -> list[str]:
    """Cancel single tasks of arrays.

    A filter by name beside the id of a waiting task cancels the whole array (seen in 22.05), so there is none:
    the caller compares stamp and id in a listing of the same controller start first.
    """
    return ["scancel", *batch_ids]


def list_jobs(user: str, stamps: Collection[str] | None = None) -> list[str]:
    """List jobs of the account, also ended ones that the controller still remembers; one line for each task.

    `stamps`: only jobs of these names.
    """
    return [*_squeue(user, stamps, LISTING_FORMAT), "--states=all"]


def list_accounted(user: str, stamps: Collection[str], since: float) -> list[str]:
    """List the jobs of these names from the accounting database. `since`: seconds back from now."""
    return [
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        f"--user={user}",
        f"--starttime=now-{ceil(since)}",
        f"--name={','.join(stamps)}",
        f"--format={ACCOUNTED_FORMAT}",
    ]


def list_properties(user: str, stamps: Collection[str] | None = None) -> list[str]:
    """List the comments of jobs that wait or run."""
    return _squeue(user, stamps, PROPERTIES_FORMAT)


def _squeue(user: str, stamps: Collection[str] | None, line: str) -> list[str]:
    command = ["squeue", "--noheader", "--array", f"--user={user}", f"--format={line}"]
    # One argument has at most 128 KiB. Above, the reader leaves other names out.
    if stamps is not None and len(stamps) <= MOST_NAMES:
        command.append(f"--name={','.join(stamps)}")
    return command


def show_config() -> list[str]:
    """Show the controller's configuration; it has the controller's start time."""
    return ["scontrol", "show", "config"]


def list_accounts(user: str, cluster: str) -> list[str]:
    """List the accounts of a user on one cluster."""
    return [
        *("sacctmgr", "--noheader", "--parsable2", "show", "assoc", "where", f"user={user}"),
        *(f"cluster={cluster}", "format=Account,Partition,QOS"),
    ]


def show_default_account(user: str) -> list[str]:
    """Show the account that a user's jobs charge if they name none."""
    return ["sacctmgr", "--noheader", "--parsable2", "show", "user", user, "format=User,DefaultAccount"]


def list_partitions() -> list[str]:
    """List the nodes by partition and kind. Without `--exact`, kinds of several sizes share a line."""
    return ["sinfo", "--noheader", "--exact", f"--format={PARTITION_FORMAT}"]


def show_partitions() -> list[str]:
    """Show all partitions with their limits, also hidden ones; a line for each."""
    return ["scontrol", "--all", "--oneliner", "show", "partition"]


def show_nodes() -> list[str]:
    """Show all nodes, also of hidden partitions; a line for each."""
    return ["scontrol", "--all", "--oneliner", "show", "node"]


def list_job_states(partitions: Sequence[str]) -> list[str]:
    """List the states of all users' jobs that wait or run in some partitions; a line for each task of an array."""
    return ["squeue", "--noheader", "--array", f"--partition={','.join(partitions)}", "--format=%T"]
