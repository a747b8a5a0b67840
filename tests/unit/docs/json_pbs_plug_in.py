"""An adapter for PBS by its JSON, as CONTRIBUTING tells. `test_plug_ins.py` puts it into a copy of the program."""

OPTIONS = '''\
"""Options of CEs that are PBS clusters read by JSON."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.setting import Setting


class JsonPbsOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of PBS, read from its JSON"
    partition_key: ClassVar[str] = "queue"

    queue: Annotated[str, Setting("queue of its pilots; empty: the default one of the server")] = ""
    log_folder: Annotated[str, Setting("folder on the nodes for the output of pilots")] = ""

    @property
    def own_queue(self) -> str:
        return self.queue

    @property
    def own_log_folder(self) -> str:
        return self.log_folder
'''

ADAPTER = '''\
"""PBS as a batch system, read from its JSON. Its server never gives an id again, so its name is the epoch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation, Value
from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.json_pbs import JsonPbsOptions
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import (
    BatchAdapter,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    unknown_hosts,
)
from pilotage.outside.batch.ce_facts import job_counts, minima_of_hosts
from pilotage.outside.batch.command_batch import CommandBatch, Properties
from pilotage.outside.batch.command_client import CommandClient, UnreadableOutput
from pilotage.outside.batch.properties import all_properties, read_properties, write_properties
from pilotage.outside.batch.registry import ServerMachine
from pilotage.outside.batch.runner import Runner
from pilotage.outside.batch.submission import (
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "PBS_SERVER")
PILOT_OPTIONS: Mapping[str, str] = {"--batch-id": "${PBS_JOBID}"}
STATES = {
    "H": NativeState.HELD,
    "Q": NativeState.WAITING,
    "R": NativeState.RUNNING,
    "E": NativeState.RUNNING,
    "F": NativeState.ENDED,
    "X": NativeState.ENDED,
}
JOB = re.compile(r"([0-9]+)(?:\\[([0-9]+)\\])?([.].*)")


class JsonPbsBatch(CommandBatch):
    """The adapter of one CE: a `BatchAdapter`."""

    index_variable = "PILOTAGE_INDEX"
    pilot_options = PILOT_OPTIONS

    def __init__(self, runner: Runner, user: str, options: JsonPbsOptions, timeout: float) -> None:
        hint = "`qstat -B` says whether the server of PBS answers"
        client = CommandClient(runner, "PBS", "the server of PBS", hint, timeout)
        super().__init__(client, user, options.log_folder)
        self._options = options

    def submit(self, submission: BatchSubmission) -> Receipt:
        first, _, rest = submission.script.partition("\\n")
        index = f"{self.index_variable}=${{PBS_ARRAY_INDEX:-0}}; export {self.index_variable}"
        result = self._client.run(self._qsub(submission), f"{first}\\n{index}\\n{rest}")
        if result.status is None:
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, "qsub did not answer in time")
        if not result.succeeded:
            raise SubmissionFailed(SubmissionRefusal.REFUSED, result.errors)
        array = result.output.strip()
        if submission.count == 1:
            return Receipt(array, (array,))
        return Receipt(array, tuple(array.replace("[]", f"[{index}]") for index in range(submission.count)))

    def _qsub(self, submission: BatchSubmission) -> list[str]:
        shape = submission.shape
        select = f"select=1:ncpus={shape.processors}" + (f":mem={shape.memory}mb" if shape.memory else "")
        command = ["qsub", "-h", "-r", "n", "-N", submission.stamp, "-l", select, "-j", "oe"]
        command += ["-A", write_properties(all_properties(submission))]
        if shape.wall:
            command += ["-l", f"walltime={ceil(shape.wall)}"]
        # An array of PBS has two tasks at least.
        command += ["-J", f"0-{submission.count - 1}"] if submission.count > 1 else []
        return command + (["-q", self._options.queue] if self._options.queue else [])

    def release(self, stamps: Sequence[str]) -> None:
        self._change("qrls", stamps, lambda task: task.state is NativeState.HELD)

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        self._change("qdel", stamps, lambda task: not waiting_only or task.state is not NativeState.RUNNING)

    def _change(self, command: str, stamps: Sequence[str], concerns: Callable[[ListedTask], bool]) -> None:
        tasks = [task for task in self._tasks(stamps) if task.state is not NativeState.ENDED and concerns(task)]
        self._run(command, [task.batch_id for task in tasks])

    def _run(self, command: str, ids: Sequence[str]) -> None:
        result = self._client.run([command, *ids]) if ids else None
        if result is not None and not result.succeeded and "Unknown Job" not in result.errors:
            raise self._client.unreachable(command, result)

    def _cancel_ids(self, batch_ids: Sequence[str]) -> None:
        self._run("qdel", batch_ids)

    def _accounted(self, stamps: Collection[str], since: float) -> Iterable[ListedTask]:
        return []

    def _epoch(self) -> str:
        return str(self._ask("qstat", "-B", "-f", "-F", "json")["pbs_server"])

    def _ask(self, *command: str) -> dict[str, Any]:
        output = self._client.check_output(list(command))
        try:
            answer: dict[str, Any] = json.loads(output)
        except ValueError as error:
            raise UnreadableOutput(f"{command[0]}: {error}") from None
        return answer

    def _jobs(self) -> dict[str, dict[str, Any]]:
        jobs: dict[str, dict[str, Any]] = self._ask("qstat", "-t", "-f", "-F", "json").get("Jobs", {})
        return jobs

    def _listed(self, stamps: Collection[str] | None) -> Iterable[ListedTask]:
        return self._read(self._jobs())

    def _read(self, jobs: Mapping[str, Mapping[str, Any]]) -> Iterator[ListedTask]:
        for batch_id, job in jobs.items():
            # The line of a whole array has empty brackets.
            if (match := JOB.fullmatch(batch_id)) and job["Job_Owner"].partition("@")[0] == self._user:
                number, index, server = match.groups()
                native = job["job_state"]
                yield ListedTask(
                    job["Job_Name"],
                    int(index or 0),
                    batch_id,
                    STATES.get(native, NativeState.UNKNOWN),
                    native,
                    job.get("comment", ""),
                    job.get("exec_host", "").partition("/")[0],
                    batch_id if index is None else f"{number}[]{server}",
                )

    def _properties(self, stamps: Collection[str] | None) -> Properties:
        jobs = self._jobs()
        return {
            (task.stamp, task.index): read_properties(jobs[task.batch_id]["Account_Name"])
            for task in self._read(jobs)
            if task.state is not NativeState.ENDED
        }

    def _nodes(self) -> dict[str, dict[str, Any]]:
        nodes: dict[str, dict[str, Any]] = self._ask("pbsnodes", "-a", "-F", "json")["nodes"]
        return nodes

    def describe(self) -> list[BatchPartition]:
        queues = self._ask("qstat", "-Q", "-f", "-F", "json")["Queue"]
        default = self._ask("qstat", "-B", "-f", "-F", "json")["Server"]
        named = {server["default_queue"] for server in default.values()}
        sizes = [node["resources_available"] for node in self._nodes().values()]
        kinds = tuple(NodeSize(1, size["ncpus"], _megabytes(size["mem"])) for size in sizes)
        return [
            BatchPartition(name, queue["started"] == "True", None, kinds, default=name in named)
            for name, queue in queues.items()
        ]

    def information(self) -> CeInformation:
        nodes, tasks = self._nodes(), list(self._read(self._jobs()))
        classes = group_hosts([Host(name, _host(node)) for name, node in nodes.items()])
        running = sum(task.state is NativeState.RUNNING for task in tasks)
        waiting = sum(task.state in (NativeState.WAITING, NativeState.HELD) for task in tasks)
        cores = sum(node["resources_available"]["ncpus"] for node in nodes.values())
        used = sum(node["resources_assigned"].get("ncpus", 0) for node in nodes.values())
        attributes: dict[str, Value] = {
            **minima_of_hosts(classes),
            **job_counts(running, waiting),
            "GlueCEName": self._options.queue,
            "GlueCEInfoLRMSType": "json_pbs",
            "GlueCEInfoTotalCPUs": cores,
            "GlueCEStateFreeCPUs": cores - used,
            "GlueCEStateStatus": "Production",
        }
        return CeInformation(attributes, classes)

    def check(self, shape: Shape) -> str:
        most = max(node["resources_available"]["ncpus"] for node in self._nodes().values())
        return "" if shape.processors <= most else f"no node has {shape.processors} cores"

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        return unknown_hosts(hosts, self._nodes())


def _host(node: Mapping[str, Any]) -> dict[str, Value]:
    size = node["resources_available"]
    return {
        "GlueHostArchitectureSMPSize": size["ncpus"],
        "GlueHostMainMemoryRAMSize": _megabytes(size["mem"]),
    }


def _megabytes(text: str) -> int:
    return int(text.removesuffix("kb")) // 1024


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> BatchAdapter:
    options = ce.options_as(JsonPbsOptions)
    return JsonPbsBatch(machine.runner(machine.variables(VARIABLES)), machine.user, options, timeout)
'''
