"""Torque: the words of its commands. PBS has the adapter and the readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.torque import TorqueOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.pbs.adapter import PbsBatch
from pilotage.outside.batch.registry import ServerMachine

VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ"),
    *("PBS_DEFAULT", "PBS_SERVER_HOME", "PBSDEBUG", "TRQ_HOME"),
)
"""Variables that the commands of Torque get."""

LONGEST_NAME = 15
"""Characters of a job's name."""


class Torque:
    """Torque, from version 4: the words of one CE."""

    system = "Torque"
    lrms_type = "torque"
    index_variable = "PBS_ARRAYID"

    def __init__(self, options: TorqueOptions) -> None:
        self._options = options
        self.log_folder = options.log_folder
        self.queue = options.queue
        self.environment: Mapping[str, str] = {"PBS_DEFAULT": options.server} if options.server else {}

    def submission_words(self, submission: BatchSubmission) -> list[str]:
        """A job of Torque may not be started again by it, also one of an array."""
        words = ["-r", "n", "-N", submission.stamp[:LONGEST_NAME]]
        words += ["-t", f"0-{submission.count - 1}"] if submission.count > 1 else []
        words += self._size(submission.shape, submission.flags)
        named = {"-q": self.queue, "-A": self._options.account}
        return words + [word for option, value in named.items() if value for word in (option, value)]

    def _size(self, shape: Shape, flags: Sequence[str]) -> list[str]:
        """One node with all cores of the pilot. Forwarded properties include the properties of the policy."""
        properties, others = self._options.properties, list[str]()
        for option, value in zip(flags[::2], flags[1::2], strict=True):
            if option == "-l":
                properties = value
            else:
                others += [option, value]
        words = ["-l", ":".join([f"nodes=1:ppn={shape.processors}", *([properties] if properties else [])])]
        words += ["-l", f"mem={shape.memory}mb"] if shape.memory else []
        words += ["-l", f"walltime={ceil(shape.wall)}"] if shape.wall else []
        return words + others

    def list_jobs(self, user: str) -> list[str]:
        """The jobs of all accounts: with `-u` Torque prints no attributes. It takes `-1` only after `-f`."""
        return ["qstat", "-f", "-1", "-t"]

    def list_history(self, user: str) -> list[str]:
        """Torque lists a job as completed for `keep_completed` seconds."""
        return self.list_jobs(user)


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> PbsBatch:
    """The adapter of the CE's server, under the account of the server of Pilotage."""
    dialect = Torque(ce.options_as(TorqueOptions))
    runner = machine.runner({**machine.variables(VARIABLES), **dialect.environment})
    return PbsBatch(runner, machine.user, dialect, timeout)
