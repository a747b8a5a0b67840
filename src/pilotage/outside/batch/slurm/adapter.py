"""Slurm as a batch system: arrays of held jobs, looked up by name and task, never by the batch id alone.

Slurm may give an acknowledged job id to another job after a crash of its controller. So the stamp, which is the
array's name, is the identity of a submission.
"""

from __future__ import annotations

import pwd
from collections.abc import Collection, Mapping, Sequence

from pilotage.core.brokering.information import CeInformation
from pilotage.core.errors import Unreachable
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.adapter import Account, Partition, Receipt, Shape, Submission, submissions_of
from pilotage.outside.batch.pilot_logs import read_log_tail
from pilotage.outside.batch.runner import MISSING, CommandResult, Runner
from pilotage.outside.batch.slurm import commands, information, output
from pilotage.outside.batch.slurm.output import UnreadableOutput
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    BatchListing,
    ListedTask,
    Refusal,
    SubmissionFailed,
)

TIMEOUT = 60.0
"""Seconds for one command. Slurm's own clients give up after three times MessageTimeout."""

_PING_HINT = "`scontrol ping` on the server's machine says whether Slurm's controller answers"

ACCOUNTING = "accounting_storage/slurmdbd"
"""AccountingStorageType of a cluster whose ended jobs `sacct` knows."""

INDEX_VARIABLE = "SLURM_ARRAY_TASK_ID"
"""The environment variable that holds a pilot's index within its submission."""


class SlurmBatch:
    """The adapter of one CE: a `BatchAdapter`. It keeps no state: everything is read from the controller."""

    holds = True
    index_variable = INDEX_VARIABLE
    place = ""

    def __init__(self, runner: Runner, user: str, options: SlurmOptions, timeout: float = TIMEOUT) -> None:
        """`user`: the account that the pilots run under."""
        self._runner = runner
        self._user = user
        self._options = options
        self._timeout = timeout

    def close(self) -> None:
        self._runner.close()

    def submit(self, submission: Submission) -> Receipt:
        result = self._run(commands.submit(submission, self._options), submission.script)
        if not result.succeeded:
            raise SubmissionFailed(*output.classify_failure(result.status, result.errors))
        try:
            array = output.read_submitted(result.output)
        except UnreadableOutput as error:
            raise SubmissionFailed(Refusal.IN_DOUBT, str(error)) from None
        return Receipt(array, tuple(f"{array}_{index}" for index in range(submission.count)))

    def release(self, stamps: Sequence[str]) -> None:
        for stamp in stamps:
            command = commands.release(stamp)
            result = self._run(command)
            if not result.succeeded and output.is_refused_release(result.errors):
                raise SubmissionFailed(Refusal.REFUSED, output.read_refused_release(result.errors))
            if not result.succeeded:
                raise self._unreachable(command[0], result)

    def hold(self, stamps: Sequence[str]) -> None:
        for stamp in stamps:
            self._checked(commands.hold(stamp))

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        for stamp in stamps:
            self._checked(commands.cancel_submission(stamp, self._user, waiting_only=waiting_only))

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        if not batch_ids:
            return
        if self._epoch() != epoch:
            raise Unreachable("Slurm's controller was started again: its ids may belong to other jobs now")
        self._checked(commands.cancel_tasks(batch_ids))

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        """The listing is complete only if the controller ran throughout."""
        try:
            before = self._epoch()
            tasks = self._tasks(stamps)
            if self._epoch() != before:
                return BatchListing(failure="Slurm's controller was started again during the listing")
        except (Unreachable, UnreadableOutput) as error:
            return BatchListing(failure=str(error))
        return BatchListing(before, tasks)

    def _tasks(self, stamps: Collection[str] | None) -> tuple[ListedTask, ...]:
        if stamps is not None and not stamps:
            return ()
        listed = output.read_listing(self._checked(commands.list_jobs(self._user, stamps)))
        if stamps is None:
            return tuple(listed)
        wanted = frozenset(stamps)
        return tuple(task for task in listed if task.stamp in wanted)

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        """By stamp: a listing by ids fails or shortens itself as soon as the controller has forgotten one."""
        return self.list_pilots(submissions_of(batch_ids))

    def list_ended(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        """From slurmdbd, where the controller has one."""
        ended: list[ListedTask] = []
        if stamps and self._has_accounting(self._checked(commands.show_config())):
            names = sorted(stamps)
            for first in range(0, len(names), commands.MOST_NAMES):
                part = names[first : first + commands.MOST_NAMES]
                ended += self._accounted(part, since)
        return ended

    def _has_accounting(self, configuration: str) -> bool:
        return output.read_setting(configuration, "AccountingStorageType") == ACCOUNTING

    def _accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        listed = self._checked(commands.list_ended(self._user, stamps, since))
        try:
            ended = output.read_ended(listed, _name_of_user)
            return [task for task in ended if task.stamp in stamps]
        except UnreadableOutput as error:
            raise Unreachable(str(error)) from None

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        if stamps is not None and not stamps:
            return {}
        listed = self._checked(commands.list_properties(self._user, stamps))
        properties = output.read_listed_properties(listed)
        return {pilot: values for pilot, values in properties.items() if stamps is None or pilot[0] in stamps}

    def describe(self) -> list[Partition]:
        try:
            return output.read_partitions(self._checked(commands.list_partitions()))
        except UnreadableOutput as error:
            raise Unreachable(str(error)) from None

    def information(self) -> CeInformation:
        """Four questions, however many nodes there are."""
        configuration = self._checked(commands.show_config())
        try:
            known = information.read_shown_partitions(self._checked(commands.show_partitions()))
            partitions = information.named_partitions(known, self._options)
            nodes = list(information.read_shown_nodes(self._checked(commands.show_nodes())))
            states = self._checked(commands.list_job_states([partition.name for partition in partitions]))
            return information.describe_ce(configuration, partitions, nodes, states, self._options)
        except UnreadableOutput as error:
            raise Unreachable(str(error)) from None

    def accounts(self) -> list[Account]:
        configuration = self._checked(commands.show_config())
        enforced = output.read_setting(configuration, "AccountingStorageEnforce").split(",")
        if not self._has_accounting(configuration) or "associations" not in enforced:
            return []
        cluster = output.read_setting(configuration, "ClusterName")
        listed = self._checked(commands.list_accounts(self._user, cluster))
        shown = self._checked(commands.show_default_account(self._user))
        try:
            return output.read_accounts(listed, shown)
        except UnreadableOutput as error:
            raise Unreachable(str(error)) from None

    def check(self, shape: Shape) -> str:
        result = self._run(commands.check(shape, self._options), "#!/bin/sh\n")
        if result.succeeded:
            return ""
        if result.status in (None, MISSING) or output.is_unclear(result.errors):
            raise self._unreachable("sbatch", result)
        if output.is_full(result.errors):
            return ""
        return output.read_refusal(result.errors)

    def output(self, stamp: str, index: int, most: int) -> str:
        return read_log_tail(self._options.log_folder, f"{stamp}/{index}", most)

    def _epoch(self) -> str:
        """The controller's start and its cluster: ids of another one may belong to other jobs."""
        configuration = self._checked(commands.show_config())
        start = output.read_controller_start(configuration)
        return f"{start}{CLUSTER_MARK}{output.read_setting(configuration, 'ClusterName')}"

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


def _name_of_user(uid: str) -> str:
    """The account of a user id of the cluster; the id itself where this machine does not know it."""
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError, OverflowError):
        return f"user {uid}"
