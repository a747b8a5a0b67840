"""Grid Engine as a batch system: arrays of held jobs, looked up by name and task, never by the batch id alone.

Grid Engine may give the id of a job to another one after its spool was lost. So the stamp, which is the array's name,
is the identity of a submission. A batch id is JOB.TASK; tasks begin at 1, indexes at 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pilotage.core.errors import InvalidInput, Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.outside.batch.adapter import (
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    unknown_hosts,
)
from pilotage.outside.batch.command_batch import CommandBatch, Properties, read_receipt
from pilotage.outside.batch.command_client import CommandClient
from pilotage.outside.batch.properties import decode_properties
from pilotage.outside.batch.runner import MISSING, TIMEOUT, Runner
from pilotage.outside.batch.sge import commands, output, queues
from pilotage.outside.batch.sge.cell import CellFiles
from pilotage.outside.batch.sge.requests import ONE_CORE, PilotPlaces, named_host_groups, read_host_group
from pilotage.outside.batch.sge.rules import mistakes_in_rules
from pilotage.outside.batch.sge.wait_reasons import classify_wait
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

MOST_EXPLAINED = 20
"""Waiting submissions that a listing asks the reasons of."""

_HINT = "`qstat` on the server's machine says whether Grid Engine's master answers"

_ADVICE = (
    (
        ("resolve hostname", "resolve host", "unable to contact qmaster"),
        "`root`, `cell` and `qmaster_port` in the CE's section name the cell; `qstat` shows whether its master answers",
    ),
    (
        ("gdi version", "version mismatch"),
        "install Grid Engine's client commands of the master's version on the server's machine",
    ),
    (
        ("denied",),
        "the administrators of the cell add the server's machine with `qconf -as`, and its account with `qconf -au`",
    ),
)
"""Next steps by the words of an error."""


class SgeBatch(CommandBatch):
    """The adapter of one CE: a `BatchAdapter`."""

    index_variable = commands.INDEX_VARIABLE
    pilot_options = commands.PILOT_OPTIONS

    def __init__(
        self,
        runner: Runner,
        user: str,
        options: SgeOptions,
        cell: CellFiles,
        timeout: float = TIMEOUT,
        shape: Shape = ONE_CORE,
    ) -> None:
        """`user`: the account that the pilots run under. `cell`: of the environment of `runner`.

        `shape`: of the pilots, for the information about the hosts where they can start.
        """
        client = CommandClient(runner, "Grid Engine", "Grid Engine's master", _HINT, timeout, _ADVICE)
        super().__init__(client, user, options.log_folder)
        self._options = options
        self._cell = cell
        self._shape = shape

    def submit(self, submission: BatchSubmission) -> Receipt:
        if not commands.is_stamp(submission.stamp):
            raise SubmissionFailed(SubmissionRefusal.REFUSED, f"not a name of a job: {submission.stamp!r}")
        try:
            per_slot = self._memory_per_slot(submission.shape)
            command = commands.submit(submission, self._options, memory_per_slot=per_slot)
        except InvalidInput as error:
            raise SubmissionFailed(SubmissionRefusal.REFUSED, str(error)) from None
        except Unreachable as error:
            raise SubmissionFailed(SubmissionRefusal.UNREACHED, str(error)) from None
        result = self._client.run(command, commands.script(submission, self._options))

        def read(text: str) -> Receipt:
            array = output.read_submitted(text)
            return Receipt(array, tuple(f"{array}.{index + 1}" for index in range(submission.count)))

        return read_receipt(result, output.classify_failure, read)

    def _memory_per_slot(self, shape: Shape) -> bool:
        """Whether the request for memory counts for each slot of a pilot with several cores."""
        name = self._options.memory_complex
        if shape.processors < 2 or not shape.memory or not name:
            return False
        complexes = queues.read_complexes(self._client.check_output(commands.list_complexes()))
        return queues.is_consumed_per_slot(complexes, name)

    def release(self, stamps: Sequence[str]) -> None:
        for stamp in _named(stamps):
            self._change(commands.release(stamp))

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        """Running pilots get SIGUSR2 first. Waiting ones alone are held meanwhile, so that none of them starts."""
        if not waiting_only:
            for stamp in _named(stamps):
                self._change(commands.cancel_submission(stamp))
            return
        for stamp in _named(stamps):
            self._change(commands.hold(stamp))
        listing = self.list_pilots(stamps)
        if not listing.complete:
            raise Unreachable(listing.failure)
        waiting = (NativeState.HELD, NativeState.WAITING)
        self.cancel_tasks([task.batch_id for task in listing.tasks if task.state in waiting], listing.epoch)

    def _cancel_ids(self, batch_ids: Sequence[str]) -> None:
        for first in range(0, len(batch_ids), commands.MOST_IDS):
            self._change(commands.cancel_tasks(batch_ids[first : first + commands.MOST_IDS]))

    def _listed(self, stamps: Collection[str] | None) -> Iterable[ListedTask]:
        return output.read_listing(self._client.check_output(commands.list_jobs(self._user)))

    def _tasks(self, stamps: Collection[str] | None) -> tuple[ListedTask, ...]:
        """With the reasons of waiting jobs."""
        tasks = super()._tasks(stamps)
        waiting = dict.fromkeys(task.array for task in tasks if task.state is NativeState.WAITING)
        reasons = self._reasons(list(waiting)[:MOST_EXPLAINED])
        return tuple(
            replace(task, reason=known_reason, wait=classify_wait(task.native, known_reason))
            if task.state is NativeState.WAITING and (known_reason := reasons.get(task.array))
            else task
            for task in tasks
        )

    def _reasons(self, arrays: Sequence[str]) -> dict[str, str]:
        """Why these jobs wait. A job that ends meanwhile is left out.

        No reason is no cause to distrust a listing: the states of the jobs are known without.
        """
        if not arrays:
            return {}
        try:
            return output.read_reasons(self._client.check_output(commands.show_jobs(arrays)))
        except Unreachable:
            return {}

    def _accounted(self, stamps: Collection[str], since: float) -> Iterable[ListedTask]:
        """From the accounting file of the cell, which only has jobs that have started."""
        [pattern] = stamps if len(stamps) == 1 else [commands.PILOTS]
        result = self._client.run(commands.list_accounted(self._user, pattern, since))
        if not result.succeeded and not output.is_without_records(result.errors):
            raise self._client.unreachable("qacct", result)
        return output.read_accounted(result.output)

    def _properties(self, stamps: Collection[str] | None) -> Properties:
        listing = self.list_pilots(stamps)
        if not listing.complete:
            raise Unreachable(listing.failure)
        contexts = self._contexts(list(dict.fromkeys(task.array for task in listing.tasks)))
        return {
            (task.stamp, task.index): contexts[task.array]
            for task in listing.tasks
            if contexts.get(task.array)
        }

    def _contexts(self, arrays: Sequence[str]) -> dict[str, dict[str, str]]:
        contexts: dict[str, dict[str, str]] = {}
        for first in range(0, len(arrays), commands.MOST_IDS):
            shown = self._client.check_output(commands.show_jobs(arrays[first : first + commands.MOST_IDS]))
            contexts |= output.read_context(shown)
        return {array: decode_properties(context) for array, context in contexts.items()}

    def describe(self) -> list[BatchPartition]:
        return queues.partitions(queues.read_queues(self._client.check_output(commands.list_queues())))

    def information(self) -> CeInformation:
        """Three questions, and one for each group of hosts that the policy names."""
        host = self._cell.locate().host
        version = self._client.run(commands.show_version()).output.partition("\n")[0]
        listing = queues.read_queues(self._client.check_output(commands.list_queues()))
        complexes = queues.read_complexes(self._client.check_output(commands.list_complexes()))
        places = PilotPlaces(self._options, self._host_groups(), complexes, self._shape)
        known = queues.describe_ce(listing, places.select(listing.instances), complexes)
        own = {"GlueCEInfoHostName": host, "GlueCEInfoLRMSVersion": version}
        return replace(
            known, attributes={**known.attributes, **{key: text for key, text in own.items() if text}}
        )

    def _host_groups(self) -> dict[str, frozenset[str]]:
        """The hosts of the groups that the policy names."""
        groups = named_host_groups(self._options.queue)
        return {
            group: read_host_group(self._client.check_output(commands.show_host_group(group)))
            for group in groups
        }

    def check(self, shape: Shape) -> str:
        try:
            per_slot = self._memory_per_slot(shape)
            command = commands.check(shape, self._options, memory_per_slot=per_slot)
        except InvalidInput as error:
            return str(error)
        result = self._client.run(command, "#!/bin/sh\n")
        if result.succeeded:
            return ""
        if result.status in (None, MISSING) or output.is_unclear(result.errors):
            raise self._client.unreachable("qsub", result)
        return "" if output.is_full(result.errors) else output.read_refusal(result.errors)

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        complexes = queues.read_complexes(self._client.check_output(commands.list_complexes()))
        mistakes = list(mistakes_in_rules(rules, complexes))
        if hosts:
            listing = queues.read_queues(self._client.check_output(commands.list_queues()))
            mistakes += unknown_hosts(hosts, {instance.host for instance in listing.instances})
        return mistakes

    def _epoch(self) -> str:
        """The master's start and its cell: ids of another one may belong to other jobs."""
        host, port, folder = self._cell.locate()
        command = commands.show_master(host, port)
        start = output.read_master_start(self._client.check_output(command))
        return f"{start}{CLUSTER_MARK}{folder}"

    def _change(self, command: list[str]) -> None:
        """Run a command that does no harm where its jobs are gone."""
        result = self._client.run(command)
        if not result.succeeded and not output.concerns_nothing(result.output + result.errors):
            raise self._client.unreachable(command[0], result)


def _named(stamps: Sequence[str]) -> list[str]:
    """The stamps that a batch job can have. Another text may be a pattern, and match jobs of other names."""
    return [stamp for stamp in stamps if commands.is_stamp(stamp)]
