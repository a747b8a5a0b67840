"""LSF as a batch system: arrays of held jobs, changed by name, never by the batch id alone.

LSF begins its ids again after a largest one. So the stamp, which is the array's name, is the identity of a submission.
A batch id is JOB[ELEMENT]; elements begin at 1, indexes at 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy.batch_systems.lsf import LsfOptions
from pilotage.outside.batch.adapter import (
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    unknown_hosts,
)
from pilotage.outside.batch.command_batch import CommandBatch, Properties, read_receipt
from pilotage.outside.batch.command_client import CommandClient
from pilotage.outside.batch.lsf import commands, hosts, output
from pilotage.outside.batch.lsf.rules import mistakes_in_rules
from pilotage.outside.batch.runner import TIMEOUT, Runner
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

_HINT = "`lsid` and `bqueues` on the server's machine say whether LSF answers"

_ADVICE = (
    (
        ("permission denied", "not authorized", "not registered", "authentication"),
        "the administrators of LSF let the account and the host of the server submit (lsb.users, lsf.cluster)",
    ),
    (
        ("protocol", "version"),
        "install LSF's client commands of the cluster's version on the server's machine",
    ),
    (
        ("contact lim", "host does not exist", "bad host name", "unknown host"),
        "`envdir` in the CE's section names the folder of the cluster's lsf.conf; `lsid` shows whether it answers",
    ),
)
"""Next steps by the words of an error."""


class LsfBatch(CommandBatch):
    """The adapter of one CE: a `BatchAdapter`."""

    index_variable = commands.INDEX_VARIABLE
    pilot_options = commands.PILOT_OPTIONS

    def __init__(self, runner: Runner, user: str, options: LsfOptions, timeout: float = TIMEOUT) -> None:
        client = CommandClient(runner, "LSF", "LSF's master", _HINT, timeout, _ADVICE)
        super().__init__(client, user, options.log_folder)
        self._options = options

    def submit(self, submission: BatchSubmission) -> Receipt:
        if not commands.is_stamp(submission.stamp):
            raise SubmissionFailed(SubmissionRefusal.REFUSED, f"not a name of a job: {submission.stamp!r}")
        command = commands.submit(submission, self._options)
        result = self._client.run(command, commands.script(submission, self._options))

        def read(text: str) -> Receipt:
            array = output.read_submitted(text)
            return Receipt(array, tuple(f"{array}[{index + 1}]" for index in range(submission.count)))

        return read_receipt(result, output.classify_failure, read)

    def release(self, stamps: Sequence[str]) -> None:
        for stamp in filter(commands.is_stamp, stamps):
            self._change(commands.release(stamp))

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        """Waiting jobs alone are cancelled one by one."""
        named = [stamp for stamp in stamps if commands.is_stamp(stamp)]
        if not waiting_only:
            for stamp in named:
                self._change(commands.cancel_submission(stamp))
            return
        waiting = (NativeState.HELD, NativeState.WAITING)
        tasks = self._tasks(named) if named else ()
        self._cancel([task.batch_id for task in tasks if task.state in waiting])

    def _cancel_ids(self, batch_ids: Sequence[str]) -> None:
        self._cancel(self._known_pilots(batch_ids))

    def _cancel(self, batch_ids: Sequence[str]) -> None:
        for first in range(0, len(batch_ids), commands.MOST_IDS):
            self._change(commands.cancel_tasks(batch_ids[first : first + commands.MOST_IDS]))

    def _change(self, command: list[str]) -> None:
        """Run a command that does no harm where its jobs are gone."""
        result = self._client.run(command)
        if not result.succeeded and not output.concerns_nothing(result.output + result.errors):
            raise self._client.unreachable(command[0], result)

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        """One listing of the account. LSF does not tell when its master was started: its cluster is the epoch."""
        try:
            return BatchListing(self._epoch(), self._tasks(stamps))
        except Unreachable as error:
            return BatchListing(failure=str(error))

    def _listed(self, stamps: Collection[str] | None) -> Iterable[ListedTask]:
        return map(output.read_task, self._rows())

    def _rows(self) -> list[output.Row]:
        command = commands.list_jobs(self._user)
        result = self._client.run(command)
        if not result.succeeded:
            if output.is_without_jobs(result.errors):
                return []
            raise self._client.unreachable(command[0], result)
        if not result.output.strip() and output.is_without_jobs(result.errors):
            return []
        return [row for row in output.read_rows(result.output) if row.get("USER", self._user) == self._user]

    def _accounted(self, stamps: Collection[str], since: float) -> Iterable[ListedTask]:
        """From the same listing: `bhist` reads files of events for minutes."""
        return filter(None, map(output.read_accounted, self._rows()))

    def _properties(self, stamps: Collection[str] | None) -> Properties:
        known = ((output.read_task(row), output.read_listed_properties(row)) for row in self._rows())
        return {
            (task.stamp, task.index): properties
            for task, properties in known
            if properties and task.state is not NativeState.ENDED
        }

    def _hosts(self) -> list[hosts.LsfHost]:
        listed = self._client.check_output(commands.list_hosts())
        return hosts.read_hosts(listed, self._client.check_output(commands.list_states()))

    def _queues(self) -> list[hosts.LsfQueue]:
        return hosts.read_queues(self._client.check_output(commands.list_queues()))

    def describe(self) -> list[BatchPartition]:
        return hosts.describe_queues(self._queues(), self._hosts())

    def information(self) -> CeInformation:
        """Four questions, however many hosts there are."""
        cluster = hosts.read_cluster(self._client.check_output(commands.show_cluster()))
        return hosts.describe_ce(cluster, self._queues(), self._hosts(), self._options.queue)

    def check(self, shape: Shape) -> str:
        """Compare the limits of queue and hosts: LSF has no question that submits nothing."""
        return hosts.why_refused(shape, hosts.named_queue(self._queues(), self._options.queue), self._hosts())

    def check_terms(self, rules: Mapping[str, Rule], named: Collection[str]) -> list[str]:
        known = self._hosts()
        mistakes = list(mistakes_in_rules(rules, known))
        return mistakes + unknown_hosts(named, {host.name for host in known})

    def _epoch(self) -> str:
        name = hosts.read_cluster(self._client.check_output(commands.show_cluster())).name
        return f"{name}{CLUSTER_MARK}{name}"
