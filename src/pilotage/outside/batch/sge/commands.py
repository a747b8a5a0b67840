"""Argument lists and the script of Grid Engine's commands. Pure; a value of a policy never becomes an option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.pilot_logs import script_with_log
from pilotage.outside.batch.properties import all_properties, write_properties
from pilotage.outside.batch.submission import STAMP_PREFIX

INDEX_VARIABLE = "PILOTAGE_INDEX"
"""The environment variable that holds a pilot's index. The script sets it: Grid Engine's tasks begin at 1."""

PILOT_OPTIONS: Mapping[str, str] = {
    "--batch-id": "${JOB_ID}.${SGE_TASK_ID}",
    "--batch-host": "${QUEUE}@${HOSTNAME}",
    "--restarts": "${RESTARTED:-0}",
}
"""The `BatchAdapter.pilot_options` of Grid Engine."""

MOST_IDS = 1000
"""Ids in one command: an argument list has a limit."""

PILOTS = f"{STAMP_PREFIX}*"
"""Pattern of the names of all pilots."""

_STAMP = re.compile(rf"{STAMP_PREFIX}[A-Za-z0-9_.-]{{1,200}}")


def is_stamp(text: str) -> bool:
    """Whether `text` can be the name of a batch job, and is neither a pattern nor a word such as `all`."""
    return _STAMP.fullmatch(text) is not None


def submit(submission: BatchSubmission, options: SgeOptions, *, memory_per_slot: bool = False) -> list[str]:
    """Submit an array of held jobs; the script is read from standard input.

    Grid Engine must not start a job again by itself: the second start would be another program with an old stamp.
    `-notify`: SIGUSR2 comes before the SIGKILL of a deletion. `-C ""`: no line of the script is an option.
    """
    command = [
        *("qsub", "-terse", "-h", "-r", "n", "-notify", "-m", "n", "-j", "y", "-V", "-b", "n"),
        *("-N", submission.stamp),
        *("-t", f"1-{submission.count}"),
        *("-ac", write_properties(all_properties(submission))),
        *("-S", "/bin/sh", "-C", "", "-wd", "/", "-o", "/dev/null"),
    ]
    if "-q" in submission.flags:
        # Several lists of queues are joined, so the policy's own would extend the list of the flags.
        options = msgspec.structs.replace(options, queue="")
    return [*command, *_needs(submission.shape, options, memory_per_slot), *submission.flags]


_TOTALS = {"mem_free": "mem_total", "virtual_free": "virtual_total", "swap_free": "swap_total"}
"""The values of empty hosts, for measured values that a verification takes as unknown."""


def _needs(shape: Shape, options: SgeOptions, memory_per_slot: bool) -> list[str]:
    """Options for queue, project, cores, memory and time."""
    words: list[str] = []
    if shape.processors > 1:
        if not options.pe:
            raise InvalidInput(
                f"pilots of {shape.processors} cores need a parallel environment of Grid Engine",
                hint="set `pe` in the CE's section, or pilot_processors = 1; `qconf -spl` lists them",
            )
        words += ["-pe", options.pe, str(shape.processors)]
    resources = [options.resources] if options.resources else []
    if shape.wall:
        resources.append(f"h_rt={ceil(shape.wall)}")
    if shape.memory and options.memory_complex:
        memory = ceil(shape.memory / shape.processors) if memory_per_slot else shape.memory
        resources.append(f"{options.memory_complex}={memory}M")
    if resources:
        words += ["-l", ",".join(resources)]
    named = {"-q": options.queue, "-P": options.project, "-A": options.account}
    return words + [word for option, value in named.items() if value for word in (option, value)]


def script(submission: BatchSubmission, options: SgeOptions) -> str:
    """The script of a submission, with its index and its log."""
    return script_with_log(submission, options.log_folder, INDEX_VARIABLE, "$((SGE_TASK_ID - 1))")


def check(shape: Shape, options: SgeOptions, *, memory_per_slot: bool = False) -> list[str]:
    """Ask whether any queue could run a pilot, were all of them empty. Nothing is submitted."""
    name = ["-N", "pilotage-check", "-b", "n", "-C", "", "-S", "/bin/sh"]
    memory = _TOTALS.get(options.memory_complex, options.memory_complex)
    empty = msgspec.structs.replace(options, memory_complex=memory)
    return ["qsub", "-w", "v", *name, *_needs(shape, empty, memory_per_slot)]


def release(stamp: str) -> list[str]:
    """Release all jobs of a submission by name: there is no time between a check of an id and its release."""
    return ["qrls", stamp]


def hold(stamp: str) -> list[str]:
    """Hold all waiting jobs of a submission. Jobs that run go on."""
    return ["qhold", stamp]


def cancel_submission(stamp: str) -> list[str]:
    """Cancel all jobs of a submission. By name, `qdel` deletes jobs of the calling user only."""
    return ["qdel", stamp]


def cancel_tasks(batch_ids: Sequence[str]) -> list[str]:
    """Cancel arrays or single tasks of them."""
    return ["qdel", *batch_ids]


def list_jobs(user: str) -> list[str]:
    """List the jobs of the account that wait or run. In XML names are whole; otherwise they have 10 characters."""
    return ["qstat", "-xml", "-u", user]


def show_jobs(arrays: Sequence[str]) -> list[str]:
    """Show jobs in full, with their context and the reasons why they wait."""
    return ["qstat", "-xml", "-j", ",".join(arrays)]


def list_accounted(user: str, stamp: str, since: float) -> list[str]:
    """List ended jobs from the accounting file. `stamp` may be a pattern; `since`: seconds back from now."""
    return ["qacct", "-o", user, "-d", str(ceil(since / 86400) + 1), "-j", stamp]


def list_queues() -> list[str]:
    """List the queues on each host, with the values of their complexes and the jobs of all users."""
    return ["qstat", "-xml", "-f", "-F", "-u", "*"]


def list_complexes() -> list[str]:
    """List the complexes, with their relation and whether each slot consumes them."""
    return ["qconf", "-sc"]


def show_host_group(group: str) -> list[str]:
    """Show the hosts of a group and of the groups in it."""
    return ["qconf", "-shgrp_resolved", group]


def show_version() -> list[str]:
    """Show the version of the commands, in the first line of their help."""
    return ["qstat", "-help"]


def show_master(host: str, port: int) -> list[str]:
    """Show the state of the master, which has its start time. Any account may ask."""
    return ["qping", "-info", host, str(port), "qmaster", "1"]
