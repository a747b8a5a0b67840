"""The texts of `scontrol show`: lines of KEY=VALUE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pilotage.cli.slurm.amounts import format_long_clock, format_moment
from pilotage.cli.slurm.batch_job import COMMAND_VARIABLE
from pilotage.cli.slurm.job_view import users_group
from pilotage.cli.slurm.nodes import PilotHost, hosts_of
from pilotage.cli.slurm.partitions import Partitions
from pilotage.cli.slurm.rows import SlurmJobRow
from pilotage.cli.slurm.squeue_columns import dependency_text, expected_end, memory_text, short_host, user_id
from pilotage.cli.slurm.usage import SPOKEN
from pilotage.core.errors import NotFound

if TYPE_CHECKING:
    from pilotage.client import Client

_NONE: Final = "(null)"


def job_text(row: SlurmJobRow) -> str:
    job = row.job
    summary, host = job.summary, short_host(job)
    code, signal = job.exit_code
    limit = format_long_clock(job.time_limit) if job.time_limit else "UNLIMITED"
    of_array = f" ArrayJobId={job.array} ArrayTaskId={row.task_text}" if job.array is not None else ""
    submitted = format_moment(summary.submitted, "N/A")
    files = _files(row)
    lines = [
        f"JobId={summary.id}{of_array} JobName={summary.name}",
        f"   UserId={summary.owner}({user_id(summary.owner)}) GroupId={summary.group} MCS_label=N/A",
        f"   Priority={summary.user_priority} Nice=0 Account={users_group(job)} QOS=normal",
        f"   JobState={job.state.name} Reason={job.reason} Dependency={dependency_text(job) or _NONE}",
        f"   Requeue=1 Restarts={max(0, summary.attempt - 1)} BatchFlag=1 Reboot=0 ExitCode={code}:{signal}",
        f"   RunTime={format_long_clock(job.elapsed(row.now))} TimeLimit={limit} TimeMin=N/A",
        f"   SubmitTime={submitted} EligibleTime={submitted}",
        f"   StartTime={format_moment(summary.started, 'Unknown')}"
        f" EndTime={format_moment(expected_end(job), 'Unknown')}",
        f"   Partition={job.partition}",
        f"   ReqNodeList={_NONE} ExcNodeList={_NONE}",
        f"   NodeList={host or _NONE}",
        f"   BatchHost={host or _NONE}",
        f"   NumNodes=1 NumCPUs={job.cpus} NumTasks={job.facts.get('SLURM_NTASKS', '1')}"
        f" CPUs/Task={job.facts.get('SLURM_CPUS_PER_TASK', '1')}",
        f"   MinMemoryNode={memory_text(job)} Features={job.facts.get('SLURM_JOB_CONSTRAINTS', _NONE)}",
        f"   Command={job.facts.get(COMMAND_VARIABLE, _NONE)}",
        f"   WorkDir={job.description.get('folder') or _NONE}",
        *(f"   {name}={path}" for name, path in files.items()),
    ]
    if comment := job.facts.get("SLURM_JOB_COMMENT"):
        lines.append(f"   Comment={comment}")
    return "\n".join(lines)


def _files(row: SlurmJobRow) -> dict[str, str]:
    job = row.job
    output = str(job.description.get("stdout_file") or "")
    error = str(job.description.get("stderr_file") or output)
    named = {"StdErr": error, "StdIn": "/dev/null", "StdOut": output}
    return {name: _absolute(row, path) for name, path in named.items()}


def _absolute(row: SlurmJobRow, path: str) -> str:
    """The path with the patterns that are known before the job runs."""
    job = row.job
    known = {"%j": str(job.summary.id), "%A": str(job.array or job.summary.id), "%x": job.summary.name}
    known |= {"%a": row.task_text or "4294967294", "%u": job.summary.owner}
    for pattern, value in known.items():
        path = path.replace(pattern, value)
    folder = str(job.description.get("folder") or "")
    return path if path.startswith("/") or not path else f"{folder.rstrip('/')}/{path}"


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
    return [_one_node(host) for host in chosen]


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
