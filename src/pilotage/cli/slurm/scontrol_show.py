"""The texts of `scontrol show`: lines of KEY=VALUE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pilotage.cli.slurm.amounts import format_long_clock, format_moment
from pilotage.cli.slurm.batch_job import COMMAND_VARIABLE
from pilotage.cli.slurm.job_view import SlurmJob, users_group
from pilotage.cli.slurm.nodes import PilotHost, hosts_of
from pilotage.cli.slurm.partitions import Partitions
from pilotage.cli.slurm.rows import SlurmJobRow
from pilotage.cli.slurm.squeue_columns import (
    NOBODY,
    dependency_text,
    expected_end,
    file_path,
    memory_text,
    resources_text,
    short_host,
    user_id,
)
from pilotage.cli.slurm.usage import SPOKEN
from pilotage.core.errors import NotFound
from pilotage.core.printable import printable

if TYPE_CHECKING:
    from pilotage.client import Client

_NONE: Final = "(null)"
_GID: Final = "SLURM_JOB_GID"


def job_text(row: SlurmJobRow) -> str:
    """The lines of Slurm in its order, as programs look for them by their place too."""
    job = row.job
    summary, facts, host = job.summary, job.facts, short_host(job)
    code, signal = job.exit_code
    limit = format_long_clock(job.time_limit) if job.time_limit else "UNLIMITED"
    eligible = "Unknown" if job.waits_for_user else format_moment(summary.submitted, "N/A")
    lines = [
        f"JobId={summary.id}{_of_array(row)} JobName={summary.name}",
        f"   UserId={summary.owner}({user_id(summary.owner)}) GroupId={summary.group}({facts.get(_GID, NOBODY)})"
        " MCS_label=N/A",
        f"   Priority={0 if job.waits_for_user else summary.user_priority} Nice=0 Account={users_group(job)}"
        f" QOS={facts.get('SLURM_JOB_QOS', 'normal')}",
        f"   JobState={job.state.name} Reason={job.reason} Dependency={dependency_text(job) or _NONE}",
        f"   Requeue=1 Restarts={max(0, summary.attempt - 1)} BatchFlag=1 Reboot=0 ExitCode={code}:{signal}",
        f"   RunTime={format_long_clock(job.elapsed(row.now))} TimeLimit={limit} TimeMin=N/A",
        f"   SubmitTime={format_moment(summary.submitted, 'N/A')} EligibleTime={eligible}",
        f"   AccrueTime={eligible}",
        f"   StartTime={format_moment(summary.started, 'Unknown')}"
        f" EndTime={format_moment(expected_end(job), 'Unknown')} Deadline=N/A",
        "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=Unknown Scheduler=Main",
        f"   Partition={job.partition} AllocNode:Sid={facts.get('SLURM_SUBMIT_HOST', _NONE)}:0",
        f"   ReqNodeList={_NONE} ExcNodeList={_NONE}",
        f"   NodeList={host}",
        *([f"   BatchHost={host}"] if host else []),
        f"   NumNodes=1 NumCPUs={job.cpus} NumTasks={facts.get('SLURM_NTASKS', '1')}"
        f" CPUs/Task={facts.get('SLURM_CPUS_PER_TASK', '1')} ReqB:S:C:T=0:0:*:*",
        f"   TRES={resources_text(job)}",
        "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
        f"   MinCPUsNode={job.cpus} {_memory(job)} MinTmpDiskNode={job.description.get('disk') or 0}",
        f"   Features={facts.get('SLURM_JOB_CONSTRAINTS', _NONE)} DelayBoot=00:00:00",
        f"   OverSubscribe=OK Contiguous=0 Licenses={_NONE} Network={_NONE}",
        f"   Command={facts.get(COMMAND_VARIABLE, _NONE)}",
        f"   WorkDir={job.description.get('folder') or _NONE}",
        *([f"   Comment={facts['SLURM_JOB_COMMENT']} "] if facts.get("SLURM_JOB_COMMENT") else []),
        f"   StdErr={file_path(row, 'stderr_file')}",
        "   StdIn=/dev/null",
        f"   StdOut={file_path(row, 'stdout_file')}",
        "   Power=",
    ]
    return "\n".join(map(printable, lines)) + "\n"


def _of_array(row: SlurmJobRow) -> str:
    job = row.job
    if job.array is None:
        return ""
    throttle = f" ArrayTaskThrottle={job.parallel}" if job.parallel else ""
    return f" ArrayJobId={job.array} ArrayTaskId={row.task_text}{throttle}"


def _memory(job: SlurmJob) -> str:
    if for_core := job.facts.get("SLURM_MEM_PER_CPU"):
        return f"MinMemoryCPU={for_core}"
    return f"MinMemoryNode={memory_text(job)}"


def partition_text(client: Client, names: list[str]) -> list[str]:
    known = Partitions(client.partitions()).by_name
    hosts = hosts_of(client)
    texts = []
    for name in names or known:
        if name not in known:
            raise NotFound(f"Partition {name} not found", hint=f"one of {', '.join(sorted(known))}")
        partition = known[name]
        of_partition = [host for host in hosts if host.is_in(partition)]
        default = "YES" if partition.default else "NO"
        limit = format_long_clock(partition.wall) if partition.wall else "UNLIMITED"
        texts.append(
            f"PartitionName={name}\n"
            f"   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default={default} DefaultTime=NONE Hidden=NO\n"
            f"   MaxNodes=1 MaxTime={limit} MinNodes=0 MaxCPUsPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
            f"   Nodes={','.join(host.name for host in of_partition) or _NONE}\n"
            f"   State={partition.state.upper()}"
            f" TotalCPUs={sum(host.processors for host in of_partition)} TotalNodes={len(of_partition)}"
        )
    return texts


def node_text(client: Client, names: list[str]) -> list[str]:
    hosts = hosts_of(client)
    chosen = [host for host in hosts if not names or host.name in names]
    if names and not chosen:
        raise NotFound(f"no pilot runs on {', '.join(names)}")
    return [_one_node(host) for host in chosen] or ["No nodes in the system: no pilot runs"]


def _one_node(host: PilotHost) -> str:
    return (
        f"NodeName={host.name} CPUAlloc={host.used} CPUTot={host.processors}\n"
        f"   NodeAddr={host.name} NodeHostName={host.name} Version={SPOKEN}\n"
        f"   State={host.state.upper()} ThreadsPerCore=1 Partitions={','.join(sorted(host.ces))}"
    )


def config_lines(client: Client) -> list[str]:
    """The settings that programs ask for."""
    from pilotage import wire
    from pilotage.cli.slurm.squeue import MIN_JOB_AGE

    settings = {
        "AccountingStorageType": "accounting_storage/pilotage",
        "ClusterName": "pilotage",
        "KillWait": "30 sec",
        "MaxArraySize": str(wire.submissions.MAX_JOBS_PER_SUBMISSION + 1),
        "MaxJobCount": "unlimited",
        "MinJobAge": f"{MIN_JOB_AGE} sec",
        "SLURM_VERSION": SPOKEN,
        "SlurmctldHost[0]": client.url,
    }
    return ["Configuration data:", *(f"{name:<23} = {value}" for name, value in settings.items())]
