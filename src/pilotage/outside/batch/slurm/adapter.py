"""Slurm as a batch system: arrays of held jobs, looked up by name and task, never by the batch id alone.

Slurm may give an acknowledged job id to another job after a crash of its controller. So the stamp, which is the
array's name, is the identity of a submission.
"""

from __future__ import annotations

import pwd
from collections.abc import Collection, Iterable, Mapping, Sequence

from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    unknown_hosts,
)
from pilotage.outside.batch.command_batch import CommandBatch, Properties, read_receipt
from pilotage.outside.batch.command_client import CommandClient
from pilotage.outside.batch.runner import MISSING, TIMEOUT, Runner
from pilotage.outside.batch.slurm import commands, information, output
from pilotage.outside.batch.slurm.rules import mistakes_in_rules
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    ListedTask,
    SubmissionFailed,
    SubmissionRefusal,
)

_HINT = "`scontrol ping` on the server's machine says whether Slurm's controller answers"

_ADVICE = (
    (
        ("resolve", "unknown host", "configuration source"),
        "`conf` in the CE's section names the slurm.conf of the cluster",
    ),
    (
        ("incompatible version", "version mismatch"),
        "install Slurm's client commands of the cluster's version on the server's machine",
    ),
    (
        ("authentication", "munge", "permission denied", "invalid user"),
        "munge must run with the cluster's key, and the cluster must know the account of the server",
    ),
)
"""Next steps by the words of an error."""

ACCOUNTING = "accounting_storage/slurmdbd"
"""AccountingStorageType of a cluster whose ended jobs `sacct` knows."""


class SlurmBatch(CommandBatch):
    """The adapter of one CE: a `BatchAdapter`."""

    index_variable = commands.INDEX_VARIABLE
    pilot_options = commands.PILOT_OPTIONS

    def __init__(
        self, runner: Runner, user: str, options: SlurmOptions, timeout: float = TIMEOUT, wall: float = 0.0
    ) -> None:
        """`user`: the account that the pilots run under. `wall`: seconds that each of them asks for."""
        client = CommandClient(runner, "Slurm", "Slurm's controller", _HINT, timeout, _ADVICE)
        super().__init__(client, user, options.log_folder)
        self._options = options
        self._wall = wall

    def submit(self, submission: BatchSubmission) -> Receipt:
        result = self._client.run(commands.submit(submission, self._options), submission.script)

        def read(text: str) -> Receipt:
            array = output.read_submitted(text)
            return Receipt(array, tuple(f"{array}_{index}" for index in range(submission.count)))

        return read_receipt(result, output.classify_failure, read)

    def release(self, stamps: Sequence[str]) -> None:
        for stamp in stamps:
            command = commands.release(stamp)
            result = self._client.run(command)
            if not result.succeeded and output.is_refused_release(result.errors):
                raise SubmissionFailed(SubmissionRefusal.REFUSED, output.read_refused_release(result.errors))
            if not result.succeeded:
                raise self._client.unreachable(command[0], result)

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        for stamp in stamps:
            self._client.check_output(
                commands.cancel_submission(stamp, self._user, waiting_only=waiting_only)
            )

    def _cancel_ids(self, batch_ids: Sequence[str]) -> None:
        self._client.check_output(commands.cancel_tasks(batch_ids))

    def _listed(self, stamps: Collection[str] | None) -> Iterable[ListedTask]:
        return output.read_listing(self._client.check_output(commands.list_jobs(self._user, stamps)))

    def _accounted(self, stamps: Collection[str], since: float) -> Iterable[ListedTask]:
        """From slurmdbd, where the controller has one."""
        if self._has_accounting(self._client.check_output(commands.show_config())):
            names = sorted(stamps)
            for first in range(0, len(names), commands.MOST_NAMES):
                part = names[first : first + commands.MOST_NAMES]
                listed = self._client.check_output(commands.list_accounted(self._user, part, since))
                yield from output.read_accounted(listed, _name_of_user, self._wall)

    def _has_accounting(self, configuration: str) -> bool:
        return output.read_setting(configuration, "AccountingStorageType") == ACCOUNTING

    def _properties(self, stamps: Collection[str] | None) -> Properties:
        listed = self._client.check_output(commands.list_properties(self._user, stamps))
        return output.read_listed_properties(listed)

    def describe(self) -> list[BatchPartition]:
        return output.read_partitions(self._client.check_output(commands.list_partitions()))

    def information(self) -> CeInformation:
        """Four questions, however many nodes there are."""
        configuration = self._client.check_output(commands.show_config())
        known = information.read_shown_partitions(self._client.check_output(commands.show_partitions()))
        partitions = information.named_partitions(known, self._options, self._wall)
        nodes = list(information.read_shown_nodes(self._client.check_output(commands.show_nodes())))
        states = self._client.check_output(
            commands.list_job_states([partition.name for partition in partitions])
        )
        return information.describe_ce(configuration, partitions, nodes, states, self._options)

    def accounts(self) -> list[BatchAccount]:
        configuration = self._client.check_output(commands.show_config())
        enforced = output.read_setting(configuration, "AccountingStorageEnforce").split(",")
        if not self._has_accounting(configuration) or "associations" not in enforced:
            return []
        cluster = output.read_setting(configuration, "ClusterName")
        listed = self._client.check_output(commands.list_accounts(self._user, cluster))
        shown = self._client.check_output(commands.show_default_account(self._user))
        return output.read_accounts(listed, shown)

    def check(self, shape: Shape) -> str:
        result = self._client.run(commands.check(shape, self._options), "#!/bin/sh\n")
        if result.succeeded:
            return ""
        if result.status in (None, MISSING) or output.is_unclear(result.errors):
            raise self._client.unreachable("sbatch", result)
        if output.is_full(result.errors):
            return ""
        return output.read_refusal(result.errors)

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        nodes = list(information.read_shown_nodes(self._client.check_output(commands.show_nodes())))
        features = {name for node in nodes for name in node.features}
        return [
            *mistakes_in_rules(rules, features),
            *unknown_hosts(hosts, {node.name for node in nodes}),
        ]

    def _epoch(self) -> str:
        """The controller's start and its cluster: ids of another one may belong to other jobs."""
        configuration = self._client.check_output(commands.show_config())
        start = output.read_controller_start(configuration)
        return f"{start}{CLUSTER_MARK}{output.read_setting(configuration, 'ClusterName')}"


def _name_of_user(uid: str) -> str:
    """The account of a user id of the cluster; the id itself where this machine does not know it."""
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError, OverflowError):
        return f"user {uid}"
