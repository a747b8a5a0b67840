"""PBS as a batch system: held jobs and arrays, looked up by the stamp in their variables.

PBS changes jobs by id only, and does not tell when its server was started. So no id is used that a listing of the
account has not just shown under the stamp in question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    submissions_of,
    unknown_hosts,
)
from pilotage.outside.batch.command_client import CommandClient, UnreadableOutput
from pilotage.outside.batch.pbs import commands, nodes, output
from pilotage.outside.batch.pbs.commands import Dialect
from pilotage.outside.batch.pbs.records import PbsRecord
from pilotage.outside.batch.pbs.rules import mistakes_in_rules
from pilotage.outside.batch.runner import TIMEOUT, Runner
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    STAMP_PREFIX,
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

_WAITING = (NativeState.HELD, NativeState.WAITING)
_HINT = "`qstat -B` on the server's machine says whether the server of PBS answers"


class PbsBatch:
    """The adapter of one CE: a `BatchAdapter`. It keeps no state: everything is read from the server."""

    holds = True
    keeps_ended = False
    index_variable = commands.INDEX_VARIABLE
    pilot_options = commands.PILOT_OPTIONS
    place = ""

    def __init__(self, runner: Runner, user: str, dialect: Dialect, timeout: float = TIMEOUT) -> None:
        """`user`: the account that the pilots run under."""
        system = dialect.system
        self._client = CommandClient(runner, system, f"the server of {system}", _HINT, timeout)
        self._user = user
        self._dialect = dialect

    def close(self) -> None:
        self._client.runner.close()

    def submit(self, submission: BatchSubmission) -> Receipt:
        if not commands.is_stamp(submission.stamp):
            raise SubmissionFailed(SubmissionRefusal.REFUSED, f"not a name of a job: {submission.stamp!r}")
        command = commands.submit(submission, self._dialect)
        result = self._client.run(command, commands.script(submission, self._dialect))
        if not result.succeeded:
            raise SubmissionFailed(*output.classify_failure(result.status, result.errors))
        try:
            array = output.read_submitted(result.output)
            return Receipt(array, output.ids_of_array(array, submission.count))
        except UnreadableOutput as error:
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, str(error)) from None

    def release(self, stamps: Sequence[str]) -> None:
        held = self._found(stamps, lambda task: task.state is NativeState.HELD)
        self._change(commands.release, [task.array for task in held])

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        """The waiting jobs of an array that runs in part are cancelled one by one."""
        if not waiting_only:
            tasks = self._found(stamps, lambda task: task.state is not NativeState.ENDED)
            self._change(commands.cancel, [task.array for task in tasks])
            return
        tasks = self._found(stamps, lambda task: task.state is not NativeState.ENDED)
        running = {task.array for task in tasks if task.state not in _WAITING}
        waiting = [task for task in tasks if task.state in _WAITING]
        self._change(
            commands.cancel, [task.batch_id if task.array in running else task.array for task in waiting]
        )

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        """Only jobs that still are pilots of this account: another job may have got an id of them."""
        if not batch_ids:
            return
        self._client.check_epoch(epoch, self._epoch())
        tasks = [task for task in self._tasks(None) if task.stamp.startswith(STAMP_PREFIX)]
        alive = [task for task in tasks if task.state is not NativeState.ENDED]
        known = {task.batch_id for task in alive} | {task.array for task in alive}
        self._change(commands.cancel, [batch_id for batch_id in batch_ids if batch_id in known])

    def _found(self, stamps: Sequence[str], concerns: Callable[[ListedTask], bool]) -> list[ListedTask]:
        wanted = [stamp for stamp in stamps if commands.is_stamp(stamp)]
        return [task for task in self._tasks(wanted) if concerns(task)] if wanted else []

    def _change(self, command: Callable[[Sequence[str]], list[str]], ids: Sequence[str]) -> None:
        """Run a command that does no harm where its jobs are gone."""
        ids = list(dict.fromkeys(ids))
        for first in range(0, len(ids), commands.MOST_IDS):
            words = command(ids[first : first + commands.MOST_IDS])
            result = self._client.run(words)
            if not result.succeeded and not output.concerns_nothing(result.errors):
                raise self._client.unreachable(words[0], result)

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        """One listing of the account. Its server has no start time: the name of the server is the epoch."""
        try:
            return BatchListing(self._epoch(), self._tasks(stamps))
        except Unreachable as error:
            return BatchListing(failure=str(error))

    def _tasks(self, stamps: Collection[str] | None) -> tuple[ListedTask, ...]:
        if stamps is not None and not stamps:
            return ()
        tasks = output.read_tasks(self._records())
        return tuple(task for task in tasks if stamps is None or task.stamp in stamps)

    def _records(self) -> list[PbsRecord]:
        """The whole listing. `UnreadableOutput` if it lacks a job that the server had before and has afterwards."""
        before = output.read_ids(self._client.check_output(commands.select_jobs(self._user)))
        listing = self._client.check_output(self._dialect.list_jobs(self._user))
        records = output.read_jobs(listing, self._user)
        if lacking := output.missing_from(records, before):
            after = output.read_ids(self._client.check_output(commands.select_jobs(self._user)))
            if lacking := lacking.intersection(after):
                raise UnreadableOutput(f"qstat left out {len(lacking)} jobs, such as {min(lacking)}")
        return records

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        """List by stamp: a listing by ids fails as soon as one of them is gone."""
        return self.list_pilots(submissions_of(batch_ids))

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        """From the history of the server, where it keeps one."""
        if not stamps:
            return []
        command = self._dialect.list_history(self._user)
        result = self._client.run(command)
        if not result.succeeded:
            if output.is_without_history(result.errors):
                return []
            raise self._client.unreachable(command[0], result)
        ended = output.read_ended(output.read_jobs(result.output, self._user))
        return [task for task in ended if task.stamp in stamps]

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        if stamps is not None and not stamps:
            return {}
        records = self._records()
        by_id = {record.name: record for record in records}
        known = {
            (task.stamp, task.index): output.read_job_properties(by_id[task.batch_id])
            for task in output.read_tasks(records)
            if task.state is not NativeState.ENDED and (stamps is None or task.stamp in stamps)
        }
        return {pilot: properties for pilot, properties in known.items() if properties}

    def describe(self) -> list[BatchPartition]:
        server, queues, hosts = self._shown()
        return nodes.describe_queues(server, queues, hosts)

    def information(self) -> CeInformation:
        """Three questions, however many hosts there are."""
        return nodes.describe_ce(*self._shown(), self._dialect.queue, self._dialect.lrms_type)

    def _shown(self) -> tuple[PbsRecord, list[nodes.PbsQueue], list[nodes.PbsHost]]:
        server = output.read_server(self._client.check_output(commands.show_server()))
        queues = nodes.read_queues(self._client.check_output(commands.list_queues()))
        hosts = nodes.read_hosts(self._client.check_output(commands.list_nodes()))
        return server, queues, hosts

    def accounts(self) -> list[BatchAccount]:
        """PBS does not say which accounts a user may charge."""
        return []

    def check(self, shape: Shape) -> str:
        """Compare the limits of queue and hosts: PBS has no question that submits nothing."""
        server, queues, hosts = self._shown()
        return nodes.why_refused(shape, nodes.named_queue(server, queues, self._dialect.queue), hosts)

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        known = nodes.read_hosts(self._client.check_output(commands.list_nodes()))
        mistakes = list(mistakes_in_rules(rules, known))
        return mistakes + unknown_hosts(hosts, {host.name for host in known})

    def output(self, stamp: str, index: int, most: int) -> str:
        return self._client.read_log_tail(self._dialect.log_folder, stamp, index, most)

    def _epoch(self) -> str:
        server = output.read_server(self._client.check_output(commands.show_server())).name
        return f"{server}{CLUSTER_MARK}{server}"
