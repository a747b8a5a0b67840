"""Slurm as a batch system: arrays of held jobs, looked up by name and task, never by the batch id alone.

Slurm may give an acknowledged job id to another job after a crash of its controller. So the stamp, which is the
array's name, is the identity of a submission.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.errors import Unreachable
from pilotage.core.policy.model import SlurmOptions
from pilotage.outside.batch.runner import MISSING, CommandResult, Runner
from pilotage.outside.batch.slurm import commands, output
from pilotage.outside.batch.slurm.commands import SlurmPilotSize
from pilotage.outside.batch.slurm.output import Partition, UnreadableOutput
from pilotage.outside.batch.submission import BatchListing, Refusal, SubmissionFailed

TIMEOUT = 60.0
"""Seconds for one command. Slurm's own clients give up after three times MessageTimeout."""

_PING_HINT = "`scontrol ping` on the server's machine says whether Slurm's controller answers"

INDEX_VARIABLE = "SLURM_ARRAY_TASK_ID"
"""The environment variable that holds a pilot's index within its submission."""


class SlurmBatch:
    """The adapter of one CE. It keeps no state: everything is read from the controller."""

    def __init__(self, runner: Runner, user: str, options: SlurmOptions, timeout: float = TIMEOUT) -> None:
        """`user`: the account that the pilots run under."""
        self._runner = runner
        self._user = user
        self._options = options
        self._timeout = timeout

    def close(self) -> None:
        """Kill a command that runs: its outcome is in doubt."""
        self._runner.close()

    def submit(self, stamp: str, count: int, size: SlurmPilotSize, script: str) -> str:
        """Submit `count` equal pilots, held; the batch id. `SubmissionFailed` tells whether it is in doubt."""
        result = self._run(commands.submit(stamp, count, size, self._options), script)
        if not result.succeeded:
            raise SubmissionFailed(*output.classify_failure(result.status, result.errors))
        try:
            return output.read_submitted(result.output)
        except UnreadableOutput as error:
            raise SubmissionFailed(Refusal.IN_DOUBT, str(error)) from None

    def release(self, stamp: str) -> None:
        """Let all pilots of a submission start. To release twice does no harm."""
        self._checked(commands.release(stamp))

    def cancel(self, stamp: str, *, waiting_only: bool = False) -> None:
        """Cancel all pilots of a submission, or only its waiting ones."""
        self._checked(commands.cancel_submission(stamp, self._user, waiting_only=waiting_only))

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        """Cancel single pilots, by ids of a listing of the controller's start `epoch`."""
        if self._epoch() != epoch:
            raise Unreachable("Slurm's controller was started again: its ids may belong to other jobs now")
        self._checked(commands.cancel_tasks(batch_ids))

    def list_pilots(self) -> BatchListing:
        """List all jobs of the account. The listing is complete only if the controller ran throughout."""
        try:
            before = self._epoch()
            tasks = tuple(output.read_listing(self._checked(commands.list_jobs(self._user))))
            if self._epoch() != before:
                return BatchListing(failure="Slurm's controller was started again during the listing")
        except (Unreachable, UnreadableOutput) as error:
            return BatchListing(failure=str(error))
        return BatchListing(before, tasks)

    def partitions(self) -> list[Partition]:
        """The partitions of the cluster. `Unreachable`: the controller does not answer."""
        try:
            return output.read_partitions(self._checked(commands.list_partitions()))
        except UnreadableOutput as error:
            raise Unreachable(str(error)) from None

    def check(self, size: SlurmPilotSize) -> str:
        """Why Slurm would refuse such a pilot; empty: it would accept it. Nothing is submitted."""
        result = self._run(commands.check(size, self._options), "#!/bin/sh\n")
        if result.succeeded:
            return ""
        if result.status in (None, MISSING) or output.is_unclear(result.errors):
            raise self._unreachable("sbatch", result)
        return output.read_refusal(result.errors)

    def _epoch(self) -> str:
        return output.read_controller_start(self._checked(commands.show_config()))

    def _checked(self, command: list[str]) -> str:
        result = self._run(command)
        if result.succeeded:
            return result.output
        raise self._unreachable(command[0], result)

    def _unreachable(self, command: str, result: CommandResult) -> Unreachable:
        """The error for a command that gave no answer."""
        if result.status is None:
            return Unreachable(f"{command} did not answer within {self._timeout:.0f} s", hint=_PING_HINT)
        if result.status == MISSING:
            hint = "install Slurm's client commands on the server's machine, on the PATH of the server"
            return Unreachable(f"{command} is not installed here", hint=hint)
        reason = " ".join(result.errors.split()) or f"status {result.status}"
        return Unreachable(f"{command}: {reason}", hint=_PING_HINT)

    def _run(self, command: list[str], text: str = "") -> CommandResult:
        return self._runner.run(command, text=text, timeout=self._timeout)
