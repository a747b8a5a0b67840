"""HTCondor as a batch system: clusters of held jobs, looked up by attributes of our own, never by the batch id alone.

A schedd that has lost its queue gives the id of a job to another one. So the stamp, an attribute of each job, is the
identity of a submission. A batch id is CLUSTER.PROC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pilotage.core.forwarding.rules import AttributeRule, Rule
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions
from pilotage.outside.batch.adapter import (
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    unknown_hosts,
)
from pilotage.outside.batch.command_batch import CommandBatch, Properties, read_receipt
from pilotage.outside.batch.command_client import CommandClient
from pilotage.outside.batch.htcondor import commands, machines, output
from pilotage.outside.batch.htcondor.output import ScheddAd
from pilotage.outside.batch.runner import TIMEOUT, Runner
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    ListedTask,
    SubmissionFailed,
    SubmissionRefusal,
)

_HINT = "`condor_q -totals` on the server's machine says whether the schedd answers"

_ADVICE = (
    (
        ("certificate",),
        "AUTH_SSL_CLIENT_CAFILE of HTCondor's configuration names the CA certificates that sign the schedd's",
    ),
    (
        ("authenticate", "permission denied", "not allowed", "no valid token"),
        "the schedd must accept the token of `token_folder` or `scitoken`; `condor_ping -type schedd WRITE` tries it",
    ),
    (
        ("unknown host", "can't find address", "failed to connect", "can't connect"),
        "`schedd` and `pool` in the CE's section name the schedd and its collector; `condor_q -totals` asks it",
    ),
    (
        ("version",),
        "install HTCondor's commands of the schedd's version on the server's machine",
    ),
)
"""Next steps by the words of an error."""


class HtcondorBatch(CommandBatch):
    """The adapter of one CE: a `BatchAdapter`."""

    index_variable = commands.INDEX_VARIABLE
    pilot_options = commands.PILOT_OPTIONS

    def __init__(
        self,
        runner: Runner,
        user: str,
        options: HtcondorOptions,
        timeout: float = TIMEOUT,
        rules: Mapping[str, Rule] = {},
    ) -> None:
        """`user`: the account of the server, which the pilots run under if the options name no other.

        `rules`: of the CE; the attributes of machines that they name are told as attributes of hosts.
        """
        client = CommandClient(runner, "HTCondor", "the schedd", _HINT, timeout, _ADVICE)
        # A token, and a schedd elsewhere, may map the server to another account.
        is_mapped = bool(options.schedd or options.scitoken or options.token_folder)
        super().__init__(client, options.owner or ("" if is_mapped else user), options.log_folder)
        self._options = options
        named = {name: rule.name for name, rule in rules.items() if isinstance(rule, AttributeRule)}
        self._attributes = {**machines.STANDARD, **named}

    def submit(self, submission: BatchSubmission) -> Receipt:
        program = self._program(submission)
        described = commands.describe_submission(submission, self._options, program)
        result = self._client.run(commands.submit(self._options), described)
        return read_receipt(
            result,
            output.classify_failure,
            lambda text: Receipt(*output.read_submitted(text, submission.count)),
        )

    def _program(self, submission: BatchSubmission) -> dict[str, str]:
        """The lines of the submit description for the script of the pilots, which lies in a file if it is long."""
        script = commands.with_one_stream(submission.script)
        if self._options.fetches_program:
            return commands.script_in_arguments(script)
        written = self._client.run(commands.write_script(submission.stamp, self._options), script)
        path = written.output.strip()
        if not written.succeeded or not path:
            reason = output.read_error(written.errors) or "the script of the pilots could not be written"
            # Nothing was submitted, whether the script was written or not.
            unreached = written.status is None
            raise SubmissionFailed(
                SubmissionRefusal.UNREACHED if unreached else SubmissionRefusal.REFUSED, reason
            )
        return commands.script_in_file(path)

    def release(self, stamps: Sequence[str]) -> None:
        for stamp in stamps:
            if not self._change(commands.release(stamp, self._user, self._options)):
                self._check_owner(stamp)

    def _check_owner(self, stamp: str) -> None:
        """`SubmissionFailed` if the schedd has given the pilots to another account than the options name."""
        if not self._user:
            return
        command = commands.list_jobs(commands.of_stamps([stamp]), self._options, commands.OWNED)
        owners = output.read_owners(self._client.check_output(command))
        if owners and self._user not in owners:
            reason = output.describe_owner(owners[0], self._user)
            raise SubmissionFailed(SubmissionRefusal.REFUSED, reason)

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        for first in range(0, len(stamps), commands.MOST_NAMES):
            part = stamps[first : first + commands.MOST_NAMES]
            # The schedd may have given them to an account that the options do not name.
            constraint = commands.of_stamps(part)
            self._change(
                commands.remove(
                    f"{constraint} && {commands.WAITING}" if waiting_only else constraint, self._options
                )
            )
            if not (waiting_only or self._options.fetches_program):
                self._client.run(commands.remove_scripts(part, self._options))

    def _cancel_ids(self, batch_ids: Sequence[str]) -> None:
        for first in range(0, len(batch_ids), commands.MOST_IDS):
            constraint = commands.of_ids(batch_ids[first : first + commands.MOST_IDS])
            self._change(commands.remove(constraint, self._options))

    def _listed(self, stamps: Collection[str] | None) -> Iterable[ListedTask]:
        command = commands.list_jobs(self._constraint(stamps), self._options)
        return output.read_listing(self._client.check_output(command))

    def _constraint(self, stamps: Collection[str] | None) -> str:
        # One argument has at most 128 KiB. Above, the reader leaves other stamps out.
        if stamps is None or len(stamps) > commands.MOST_NAMES:
            return commands.of_account(self._user)
        return commands.of_stamps(stamps, self._user)

    def _accounted(self, stamps: Collection[str], since: float) -> Iterable[ListedTask]:
        """From the history of the schedd."""
        command = commands.list_accounted(self._constraint(stamps), since, self._options)
        return output.read_accounted(self._client.check_output(command))

    def _properties(self, stamps: Collection[str] | None) -> Properties:
        command = commands.list_jobs(
            self._constraint(stamps), self._options, (*commands.LISTED, commands.PROPERTIES)
        )
        return output.read_listed_properties(self._client.check_output(command))

    def describe(self) -> list[BatchPartition]:
        return [machines.partition_of(self._machines(), self._options.pool or self._schedd().name)]

    def information(self) -> CeInformation:
        """Three questions, however many machines there are."""
        schedd = self._schedd()
        counts = output.read_counts(self._client.check_output(commands.count_jobs(self._options)))
        return machines.describe_ce(schedd, self._options.pool, self._machines(), *counts)

    def _machines(self) -> list[machines.PoolMachine]:
        command = commands.list_machines(self._options, frozenset(self._attributes.values()))
        return machines.read_machines(self._client.check_output(command), self._attributes)

    def check(self, shape: Shape) -> str:
        sizes = [(machine.cores, machine.memory) for machine in self._machines()]
        return output.largest_fitting(sizes, shape.processors, shape.memory)

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        known = self._machines()
        published = {name for machine in known for name in machine.attributes}
        return [
            *(
                f"forward.{name}: no machine has the attribute {rule.name}"
                for name, rule in rules.items()
                if isinstance(rule, AttributeRule) and name in self._attributes and name not in published
            ),
            *unknown_hosts(hosts, {machine.name for machine in known}),
        ]

    def _schedd(self) -> ScheddAd:
        return output.read_schedd(self._client.check_output(commands.show_schedd(self._options)))

    def _epoch(self) -> str:
        """The schedd's start and its name: ids of another one may belong to other jobs."""
        schedd = self._schedd()
        return f"{schedd.started}{CLUSTER_MARK}{schedd.name}"

    def _change(self, command: list[str]) -> bool:
        """Run a command that does no harm where its jobs are gone. False: it found none."""
        result = self._client.run(command)
        # It may end well and say that it found nothing.
        if output.found_nothing(result.errors):
            return False
        if not result.succeeded:
            raise self._client.unreachable(command[0], result)
        return True
