"""PBS as a batch system: held jobs and arrays, looked up by the stamp in their variables.

PBS changes jobs by id only, and does not tell when its server was started. So no id is used that a listing of the
account has not just shown under the stamp in question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.outside.batch.adapter import (
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    unknown_hosts,
)
from pilotage.outside.batch.command_batch import CommandBatch, Properties, read_receipt
from pilotage.outside.batch.command_client import CommandClient, UnreadableOutput
from pilotage.outside.batch.pbs import commands, nodes, output
from pilotage.outside.batch.pbs.commands import Dialect
from pilotage.outside.batch.pbs.records import PbsRecord
from pilotage.outside.batch.pbs.rules import mistakes_in_rules
from pilotage.outside.batch.runner import TIMEOUT, Runner
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

_WAITING = (NativeState.HELD, NativeState.WAITING)
_HINT = "`qstat -B` on the server's machine says whether the server of PBS answers"

_ADVICE = (
    (
        ("unknown host", "not resolve", "cannot connect"),
        "`server` in the CE's section names the host of the server; `qstat -B` shows whether it answers",
    ),
    (
        ("unauthorized", "permission", "not allowed", "pbs_iff", "trqauthd", "expired", "credential"),
        "the server must let the account and the host of Pilotage's server submit (`qmgr`: flatuid, submit hosts)",
    ),
    (
        ("protocol", "version"),
        "install the client commands of the server's version on the machine of Pilotage's server",
    ),
)
"""Next steps by the words of an error."""


class PbsBatch(CommandBatch):
    """The adapter of one CE: a `BatchAdapter`."""

    index_variable = commands.INDEX_VARIABLE
    pilot_options = commands.PILOT_OPTIONS

    def __init__(self, runner: Runner, user: str, dialect: Dialect, timeout: float = TIMEOUT) -> None:
        system = dialect.system
        client = CommandClient(runner, system, f"the server of {system}", _HINT, timeout, _ADVICE)
        super().__init__(client, user, dialect.log_folder)
        self._dialect = dialect

    def submit(self, submission: BatchSubmission) -> Receipt:
        if not commands.is_stamp(submission.stamp):
            raise SubmissionFailed(SubmissionRefusal.REFUSED, f"not a name of a job: {submission.stamp!r}")
        command = commands.submit(submission, self._dialect)
        result = self._client.run(command, commands.script(submission, self._dialect))

        def read(text: str) -> Receipt:
            array = output.read_submitted(text)
            return Receipt(array, output.ids_of_array(array, submission.count))

        return read_receipt(result, output.classify_failure, read)

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

    def _cancel_ids(self, batch_ids: Sequence[str]) -> None:
        self._change(commands.cancel, self._known_pilots(batch_ids))

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

    def _listed(self, stamps: Collection[str] | None) -> Iterable[ListedTask]:
        return output.read_tasks(self._records())

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

    def _accounted(self, stamps: Collection[str], since: float) -> Iterable[ListedTask]:
        """From the history of the server, where it keeps one."""
        command = self._dialect.list_history(self._user)
        result = self._client.run(command)
        if not result.succeeded:
            if output.is_without_history(result.errors):
                return []
            raise self._client.unreachable(command[0], result)
        return output.read_ended(output.read_jobs(result.output, self._user))

    def _properties(self, stamps: Collection[str] | None) -> Properties:
        records = self._records()
        by_id = {record.name: record for record in records}
        known = {
            (task.stamp, task.index): output.read_job_properties(by_id[task.batch_id])
            for task in output.read_tasks(records)
            if task.state is not NativeState.ENDED
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

    def check(self, shape: Shape) -> str:
        """Compare the limits of queue and hosts: PBS has no question that submits nothing."""
        server, queues, hosts = self._shown()
        return nodes.why_refused(shape, nodes.named_queue(server, queues, self._dialect.queue), hosts)

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        known = nodes.read_hosts(self._client.check_output(commands.list_nodes()))
        mistakes = list(mistakes_in_rules(rules, known))
        return mistakes + unknown_hosts(hosts, {host.name for host in known})

    def _epoch(self) -> str:
        server = output.read_server(self._client.check_output(commands.show_server())).name
        return f"{server}{CLUSTER_MARK}{server}"
