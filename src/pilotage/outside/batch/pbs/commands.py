"""Argument lists and the script of the commands of PBS. Pure; a value of a policy never becomes an option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Protocol

from pilotage.core.policy.batch_systems.pbs import PbsOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.pilot_logs import script_with_log
from pilotage.outside.batch.properties import all_properties, write_properties
from pilotage.outside.batch.submission import STAMP_PREFIX

INDEX_VARIABLE = "PILOTAGE_INDEX"
"""The environment variable that holds a pilot's index. The script sets it: a job alone has no index of PBS."""
STAMP_VARIABLE = "PILOTAGE_STAMP"
"""The variable of a batch job with the stamp of its submission. A name may be too long for a stamp."""
PROPERTIES_VARIABLE = "PILOTAGE_PROPERTIES"

PILOT_OPTIONS: Mapping[str, str] = {"--batch-id": "${PBS_JOBID}"}
"""The `BatchAdapter.pilot_options` of PBS. It has no variable for the number of earlier starts."""

MOST_IDS = 500
"""Ids in one command: an argument list has a limit."""

_STAMP = re.compile(rf"{STAMP_PREFIX}[A-Za-z0-9_.-]{{1,200}}")


def is_stamp(text: str) -> bool:
    """Whether `text` can stand in the variables of a batch job as it is."""
    return _STAMP.fullmatch(text) is not None


class Dialect(Protocol):
    """The options of one CE, in the words of its descendant of PBS."""

    system: str
    """Its name, for messages."""
    lrms_type: str
    """Its name in GLUE."""
    index_variable: str
    """The variable of a job of an array that holds its index."""
    log_folder: str
    queue: str
    """The queue of the pilots; empty: the default one."""
    environment: Mapping[str, str]
    """Variables that name the server."""

    def submission_words(self, submission: BatchSubmission) -> list[str]:
        """The options of `qsub` for name, array, size, queue, and account, with the flags of core/forwarding."""

    def list_jobs(self, user: str) -> list[str]:
        """List the jobs that have not ended, jobs of arrays too. It may list jobs of others."""

    def list_history(self, user: str) -> list[str]:
        """List the jobs, also jobs that have ended."""


class OpenPbs:
    """OpenPBS and PBS Professional, from version 17."""

    system = "PBS"
    lrms_type = "pbs"
    index_variable = "PBS_ARRAY_INDEX"

    def __init__(self, options: PbsOptions) -> None:
        self._options = options
        self.log_folder = options.log_folder
        self.queue = options.queue
        self.environment: Mapping[str, str] = {"PBS_SERVER": options.server} if options.server else {}

    def submission_words(self, submission: BatchSubmission) -> list[str]:
        """PBS refuses arrays that it may not start again, and arrays of one job.

        `-f`: no process stays in the background for further submissions.
        """
        words = ["-f", "-N", submission.stamp]
        words += ["-r", "y", "-J", f"0-{submission.count - 1}"] if submission.count > 1 else ["-r", "n"]
        words += self._size(submission.shape, submission.flags)
        named = {"-q": self.queue, "-A": self._options.account, "-P": self._options.project}
        return words + [word for option, value in named.items() if value for word in (option, value)]

    def _size(self, shape: Shape, flags: Sequence[str]) -> list[str]:
        """One chunk, which is always on one host. Forwarded requests belong into it; other flags stay as they are."""
        chunk = [f"select=1:ncpus={shape.processors}"]
        chunk += [f"mem={shape.memory}mb"] if shape.memory else []
        chunk += [self._options.resources] if self._options.resources else []
        others: list[str] = []
        for option, value in zip(flags[::2], flags[1::2], strict=True):
            if option == "-l":
                chunk.append(value)
            else:
                others += [option, value]
        words = ["-l", ":".join(chunk)]
        words += ["-l", f"walltime={ceil(shape.wall)}"] if shape.wall else []
        return words + others

    def list_jobs(self, user: str) -> list[str]:
        """Only with `-w` does `-u` leave the full form. Without history the answer is short."""
        return ["qstat", "-f", "-w", "-t", "-u", user]

    def list_history(self, user: str) -> list[str]:
        return ["qstat", "-x", "-f", "-w", "-t", "-u", user]


def submit(submission: BatchSubmission, dialect: Dialect) -> list[str]:
    """Submit held jobs; the script is read from standard input. The output is opened by the script itself.

    `-C ""`: no line of the script is an option.
    """
    # Commas separate variables.
    properties = write_properties(all_properties(submission)).replace(",", ";")
    variables = f"{STAMP_VARIABLE}={submission.stamp},{PROPERTIES_VARIABLE}={properties}"
    command = [
        "qsub",
        "-h",
        "-C",
        "",
        "-m",
        "n",
        "-S",
        "/bin/sh",
        "-j",
        "oe",
        "-o",
        "/dev/null",
        "-v",
        variables,
    ]
    return command + dialect.submission_words(submission)


def script(submission: BatchSubmission, dialect: Dialect) -> str:
    """The script of a submission, with its index and its log."""
    index = f'"${{{dialect.index_variable}:-0}}"'
    return script_with_log(submission, dialect.log_folder, INDEX_VARIABLE, index)


def release(ids: Sequence[str]) -> list[str]:
    return ["qrls", *ids]


def cancel(ids: Sequence[str]) -> list[str]:
    """A running job gets SIGTERM first."""
    return ["qdel", *ids]


def select_jobs(user: str) -> list[str]:
    """The ids of the account's jobs that have not ended; an array has one."""
    return ["qselect", "-u", user]


def show_server() -> list[str]:
    return ["qstat", "-B", "-f"]


def list_queues() -> list[str]:
    return ["qstat", "-Q", "-f"]


def list_nodes() -> list[str]:
    return ["pbsnodes", "-a"]
