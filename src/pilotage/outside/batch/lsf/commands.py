"""Argument lists and the script of LSF's commands. Pure; a value of a policy never becomes an option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil

from pilotage.core.policy.batch_systems.lsf import LsfOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.pilot_logs import script_with_log
from pilotage.outside.batch.properties import all_properties, write_properties
from pilotage.outside.batch.submission import STAMP_PREFIX

INDEX_VARIABLE = "PILOTAGE_INDEX"
"""The environment variable that holds a pilot's index. The script sets it: the indexes of LSF begin at 1."""

PILOT_OPTIONS: Mapping[str, str] = {"--batch-id": "${LSB_JOBID}[${LSB_JOBINDEX}]"}
"""The `BatchAdapter.pilot_options` of LSF."""

FIELDS = "jobid jobindex stat user job_name job_description exec_host exit_code exit_reason pend_reason"
"""Fields of a listing. A field without a width is never cut."""

DESCRIPTION_START = "pilotage "

MOST_IDS = 500
"""Ids in one command: an argument list has a limit."""

_STAMP = re.compile(rf"{STAMP_PREFIX}[A-Za-z0-9_.-]{{1,200}}")


def is_stamp(text: str) -> bool:
    """Whether `text` can be the name of a job, and is no pattern."""
    return _STAMP.fullmatch(text) is not None


def submit(submission: BatchSubmission, options: LsfOptions) -> list[str]:
    """Submit an array of held jobs; the script is read from standard input.

    LSF must not start a job again by itself: the second start would be another program with an old stamp.
    """
    properties = write_properties(all_properties(submission))
    command = ["bsub", "-H", "-rn", "-J", f"{submission.stamp}[1-{submission.count}]"]
    command += ["-Jd", f"{DESCRIPTION_START}{properties}", "-cwd", "/", "-o", "/dev/null"]
    return [*command, *_needs(submission.shape, options), *submission.flags]


def _needs(shape: Shape, options: LsfOptions) -> list[str]:
    """Options for cores on one host, memory, time, queue and project. Sizes have units: sites change the default."""
    words = ["-n", str(shape.processors), "-R", "span[hosts=1]"]
    if shape.memory:
        # Without /host some sites reserve the memory for each core.
        words += ["-R", f"rusage[mem={shape.memory}MB/host]", "-M", f"{shape.memory}MB"]
    if shape.wall:
        words += ["-W", str(max(1, ceil(shape.wall / 60)))]
    if options.requirements:
        words += ["-R", options.requirements]
    named = {
        "-q": options.queue,
        "-P": options.project,
        "-G": options.user_group,
        "-app": options.application,
    }
    return words + [word for option, value in named.items() if value for word in (option, value)]


def script(submission: BatchSubmission, options: LsfOptions) -> str:
    """The script of a submission, with its index and its log."""
    return script_with_log(submission, options.log_folder, INDEX_VARIABLE, "$((LSB_JOBINDEX - 1))")


def release(stamp: str) -> list[str]:
    """Release all jobs of a submission by name: there is no time between a check of an id and its release."""
    return ["bresume", "-J", stamp, "0"]


def cancel_submission(stamp: str) -> list[str]:
    """Cancel all jobs of a submission. A running job gets SIGINT and SIGTERM before SIGKILL."""
    return ["bkill", "-J", stamp, "0"]


def cancel_tasks(batch_ids: Sequence[str]) -> list[str]:
    """Cancel arrays or single jobs of them."""
    return ["bkill", *batch_ids]


def list_jobs(user: str) -> list[str]:
    """List the jobs of the account, also jobs that ended within CLEAN_PERIOD; one record for each job of an array."""
    return ["bjobs", "-a", "-u", user, "-json", "-o", FIELDS]


def show_cluster() -> list[str]:
    """Show the version, the name of the cluster and its master."""
    return ["lsid"]


def list_queues() -> list[str]:
    """Show the queues in full: only so they tell their limits."""
    return ["bqueues", "-l"]


def list_hosts() -> list[str]:
    """List the hosts with their sizes and boolean resources."""
    return ["lshosts", "-w"]


def list_states() -> list[str]:
    """List the states of the hosts that run jobs, with the slots in use."""
    return ["bhosts", "-w"]
