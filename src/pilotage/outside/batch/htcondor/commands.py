"""Argument lists of HTCondor's commands, and the submit description. Pure.

Commands find the pilots by constraints on attributes of their own, never by the batch id alone.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from math import ceil

from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.pilot_logs import log_name
from pilotage.outside.batch.properties import all_properties, write_properties

INDEX_VARIABLE = "PILOTAGE_BATCH_INDEX"
"""The environment variable that holds a pilot's index within its submission."""

PILOT_OPTIONS: Mapping[str, str] = {
    "--batch-id": "${PILOTAGE_BATCH_ID:-}",
    "--batch-host": r"""$(sed -n 's/^Machine = "\(.*\)"$/\1/p' "${_CONDOR_MACHINE_AD:-/dev/null}" 2>/dev/null)""",
    "--restarts": (
        r"""$(sed -n 's/^NumJobStarts = \([0-9]*\)$/\1/p' "${_CONDOR_JOB_AD:-/dev/null}" 2>/dev/null | grep ."""
        " || echo 0)"
    ),
}
"""The `BatchAdapter.pilot_options` of HTCondor."""

STAMP, INDEX, PROPERTIES = "PilotageStamp", "PilotageIndex", "PilotageProperties"
"""Attributes of the batch jobs of pilots."""

MOST_NAMES = 500
"""Stamps in one constraint; a listing for more stamps is one of all pilots."""

MOST_IDS = 500
"""Batch ids in one constraint."""

LISTED = (
    *("ClusterId", "ProcId", "JobStatus", STAMP, INDEX, "JobBatchName", "RemoteHost", "NumJobStarts"),
    *("HoldReason", "HoldReasonCode", "HoldReasonSubCode", "LastRejMatchReason"),
)
"""Attributes of a listing."""

OWNED = ("ClusterId", "ProcId", "Owner")
"""Attributes that tell whose a batch job is."""

ACCOUNTED = (
    *("ClusterId", "ProcId", "JobStatus", STAMP, INDEX, "RemoteHost", "LastRemoteHost"),
    *(
        "ExitCode",
        "ExitBySignal",
        "ExitSignal",
        "RemoveReason",
        "HoldReason",
        "LastHoldReason",
        "LastHoldReasonCode",
    ),
)
"""Attributes of the history."""

MOST_SCANNED = 200_000
"""Ended jobs that a question to the history of the schedd reads at most."""

MACHINE = (
    *(
        "Name",
        "Machine",
        "SlotType",
        "TotalSlotCpus",
        "TotalCpus",
        "TotalSlotMemory",
        "TotalMemory",
        "Cpus",
        "State",
        "Offline",
    ),
)
"""Attributes of slots."""

SUBMITTED_ON_HOLD = 15
"""HoldReasonCode of a job that was submitted on hold."""

FORGOTTEN = 10 * 86400
"""Seconds after which HTCondor itself removes a held pilot. The director cancels it before, if there is one."""

LATE = 600
"""Seconds beyond its wall time after which HTCondor removes a pilot."""

WRITE_SCRIPT = """\
umask 077
folder=${1:-$HOME/.cache/pilotage}/htcondor
mkdir -p "$folder" && find "$folder" -name 'pilotage-*' -mtime +14 -delete && cat > "$folder/$2" && echo "$folder/$2"\
"""
"""Writes its standard input to a file of this account alone, and removes files of pilots of two weeks ago."""

REMOVE_SCRIPTS = 'cd "${1:-$HOME/.cache/pilotage}/htcondor" 2>/dev/null || exit 0; shift; rm -f -- "$@"'


def quoted(text: str) -> str:
    """A text as a string of a ClassAd expression."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_script(stamp: str, options: HtcondorOptions) -> list[str]:
    """Write the script of pilots, which is read from standard input. It prints the path."""
    return ["sh", "-c", WRITE_SCRIPT, "sh", options.script_folder, stamp]


def remove_scripts(stamps: Sequence[str], options: HtcondorOptions) -> list[str]:
    """Remove the files of `write_script`."""
    return ["sh", "-c", REMOVE_SCRIPTS, "sh", options.script_folder, *stamps]


def at_schedd(options: HtcondorOptions) -> list[str]:
    """The options of most commands that name the schedd."""
    named = [("-name", options.schedd), ("-pool", options.pool)]
    return [word for option, value in named if value for word in (option, value)]


def at_pool(options: HtcondorOptions) -> list[str]:
    return ["-pool", options.pool] if options.pool else []


def submit(options: HtcondorOptions) -> list[str]:
    """Submit a description, which is read from standard input."""
    return ["condor_submit", "-terse", *at_schedd(options), "-"]


def with_one_stream(script: str) -> str:
    """The script with its errors in its output: of two streams to one file, each writes over the other."""
    first, _, rest = script.partition("\n")
    return f"{first}\nexec 2>&1\n{rest}"


def script_in_file(path: str) -> dict[str, str]:
    """The lines for a script that HTCondor transfers from the schedd's machine."""
    return {"executable": path, "transfer_executable": "true", "should_transfer_files": "YES"}


def script_in_arguments(script: str) -> dict[str, str]:
    """The lines for a short script, of which nothing is transferred: a schedd elsewhere takes no held job with files.

    Everybody who may read the queue can read it. Base64 has no character that HTCondor or a gateway would change.
    """
    encoded = base64.b64encode(script.encode()).decode()
    return {
        "executable": "/bin/sh",
        "transfer_executable": "false",
        "should_transfer_files": "YES",
        "arguments": f'"-c \'eval ""`echo {encoded} | base64 -d`""\'"',
    }


def describe_submission(
    submission: BatchSubmission, options: HtcondorOptions, program: Mapping[str, str]
) -> str:
    """The submit description of held pilots. `program`: its lines for their script."""
    stamp = submission.stamp
    log = f"{options.log_folder}/{log_name(stamp, '$(Process)')}" if options.log_folder else "/dev/null"
    streams = "true" if options.log_folder else "false"
    native = dict(flag.removeprefix("--").split("=", 1) for flag in submission.flags)
    forwarded = native.pop("requirements", "")
    lines = {
        "universe": "vanilla",
        **program,
        "when_to_transfer_output": "ON_EXIT",
        "transfer_output_files": '""',
        "initialdir": "/",
        "output": log,
        "error": log,
        "stream_output": streams,
        "stream_error": streams,
        "environment": f'"{INDEX_VARIABLE}=$(Process) PILOTAGE_BATCH_ID=$(Cluster).$(Process)"',
        "hold": "true",
        "notification": "never",
        "batch_name": stamp,
        **_resources(submission.shape),
        **_rules(submission.shape, options.requirements, forwarded),
        f"My.{STAMP}": quoted(stamp),
        f"My.{INDEX}": "$(Process)",
        f"My.{PROPERTIES}": quoted(write_properties(all_properties(submission))),
        **({"accounting_group": options.accounting_group} if options.accounting_group else {}),
        **{f"My.{name}": value for name, value in options.own_attributes.items()},
        **{name.replace("-", "_"): value for name, value in native.items()},
    }
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    return f"{text}queue {submission.count}\n"


def _resources(shape: Shape) -> dict[str, str]:
    resources = {"request_cpus": str(shape.processors)}
    if shape.memory:
        resources["request_memory"] = str(shape.memory)
    if shape.wall:
        # Gateways to other batch systems read it, in minutes.
        resources["My.maxWallTime"] = str(max(1, ceil(shape.wall / 60)))
    return resources


def _rules(shape: Shape, own: str, forwarded: str) -> dict[str, str]:
    """The conditions over machines, and the conditions under which the schedd removes a pilot.

    HTCondor starts an evicted job again: the second start would be another program with an old stamp. So no machine
    fits a job that has been started, and the schedd removes it.
    """
    requirements = [own, forwarded, "MY.NumJobStarts =?= 0 || MY.NumJobStarts =?= undefined"]
    removals = {
        quoted("it was started and came back to the queue"): "JobStatus == 1 && NumJobStarts > 0",
        'strcat("it was held after its start: ", HoldReason)': "JobStatus == 5 && NumJobStarts > 0",
        quoted("it was held and forgotten"): f"JobStatus == 5 && time() - EnteredCurrentStatus > {FORGOTTEN}",
    }
    if shape.wall:
        removals[quoted("it ran for longer than its wall time")] = (
            f"JobStatus == 2 && time() - JobCurrentStartDate > {ceil(shape.wall) + LATE}"
        )
    reason = "undefined"
    for text, condition in removals.items():
        reason = f"ifThenElse({condition}, {text}, {reason})"
    return {
        "requirements": " && ".join(f"({part})" for part in requirements if part),
        "periodic_remove": " || ".join(f"({condition})" for condition in removals.values()),
        "My.PeriodicRemoveReason": reason,
    }


def of_stamps(stamps: Collection[str], owner: str = "") -> str:
    """The constraint of the batch jobs with these stamps. `owner`: of this account alone; empty: of any."""
    if len(stamps) == 1:
        [stamp] = stamps
        stamped = f"{STAMP} == {quoted(stamp)}"
    else:
        stamped = f"stringListMember({STAMP}, {quoted(','.join(sorted(stamps)))})"
    return f"{stamped} && {_owned(owner)}" if owner else stamped


def of_account(owner: str) -> str:
    """The constraint of all batch jobs of an account; empty: of all pilots."""
    return _owned(owner) if owner else f"{STAMP} isnt undefined"


def _owned(owner: str) -> str:
    return f"Owner == {quoted(owner)}"


def of_ids(batch_ids: Sequence[str]) -> str:
    """The constraint of single jobs CLUSTER.PROC, and of whole clusters."""
    terms = []
    for batch_id in batch_ids:
        cluster, dot, process = batch_id.partition(".")
        terms.append(f"(ClusterId == {cluster} && ProcId == {process})" if dot else f"ClusterId == {cluster}")
    return " || ".join(terms)


WAITING = "(JobStatus == 1 || JobStatus == 5)"
"""The constraint of jobs that have not started."""


def list_jobs(constraint: str, options: HtcondorOptions, attributes: Sequence[str] = LISTED) -> list[str]:
    """List jobs as JSON. Nothing is printed if there is none."""
    return [
        *("condor_q", *at_schedd(options), "-allusers", "-constraint", constraint),
        *("-json", "-attributes", ",".join(attributes)),
    ]


def list_accounted(constraint: str, since: float, options: HtcondorOptions) -> list[str]:
    """List ended jobs from the history, the latest first. `since`: seconds back; earlier ends are left out."""
    return [
        *("condor_history", *at_schedd(options), "-constraint", constraint),
        *("-since", f"EnteredCurrentStatus < time() - {ceil(since)}", "-scanlimit", str(MOST_SCANNED)),
        *("-json", "-attributes", ",".join(ACCOUNTED)),
    ]


def release(stamp: str, owner: str, options: HtcondorOptions) -> list[str]:
    """Release the pilots of a submission that nobody else holds."""
    constraint = f"{of_stamps([stamp], owner)} && HoldReasonCode == {SUBMITTED_ON_HOLD}"
    return ["condor_release", *at_schedd(options), "-constraint", constraint]


def remove(constraint: str, options: HtcondorOptions) -> list[str]:
    """Remove jobs, also running ones."""
    return ["condor_rm", *at_schedd(options), "-constraint", constraint]


def show_schedd(options: HtcondorOptions) -> list[str]:
    """Ask the schedd itself for its name, version and start."""
    return [
        *("condor_status", *at_pool(options), "-schedd", "-direct", options.schedd),
        *("-json", "-attributes", "Name,DaemonStartTime,CondorVersion"),
    ]


def count_jobs(options: HtcondorOptions) -> list[str]:
    """The numbers of the jobs of all users, by state."""
    return ["condor_q", *at_schedd(options), "-allusers", "-totals"]


def list_machines(options: HtcondorOptions, attributes: Collection[str] = ()) -> list[str]:
    """List the slots of the pool that are no parts of others. `attributes`: further ones."""
    return [
        *("condor_status", *at_pool(options), "-constraint", 'SlotType =!= "Dynamic"'),
        *("-json", "-attributes", ",".join((*MACHINE, *sorted(attributes)))),
    ]
