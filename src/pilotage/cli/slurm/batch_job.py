"""From the options and the script of sbatch to a submission of Pilotage."""

from __future__ import annotations

import getpass
import itertools
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pilotage import wire
from pilotage.cli.slurm.dependencies import parse_dependency
from pilotage.cli.slurm.file_patterns import DEFAULT_ARRAY_NAME, DEFAULT_NAME, output_name
from pilotage.cli.slurm.partitions import VARIABLE, Partitions
from pilotage.cli.slurm.resources import parse_signal, resource_fields, task_count
from pilotage.cli.slurm.script import BatchScript
from pilotage.cli.slurm.start_script import (
    STEPS_SIGNAL,
    WARNING_VARIABLE,
    as_utf8,
    is_utf8,
    order_arguments,
    sent_variables,
)
from pilotage.client.in_place import folder_fields, present_folder
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.arrays import Array, parse_array
from pilotage.wire.batch_script import PROGRAM, ScriptOrder

COMMAND_VARIABLE: Final = "PILOTAGE_SLURM_COMMAND"
"""The path of the batch script at submission, and its arguments, as far as `_SHOWN` characters."""
_SHOWN: Final = 4096
_OPEN_MODES: Final = ("append", "truncate")
_IN_JOB: Final = {
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "mem-per-cpu": "SLURM_MEM_PER_CPU",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "gpus": "SLURM_GPUS",
    "account": "SLURM_JOB_ACCOUNT",
    "comment": "SLURM_JOB_COMMENT",
    "qos": "SLURM_JOB_QOS",
    "constraint": "SLURM_JOB_CONSTRAINTS",
}
"""Options whose value is a variable of the job."""


@dataclass(frozen=True)
class DescribedBatchJob:
    """A description with the values of its array, the group, and notes for the user."""

    description: dict[str, Any]
    values: list[int] | None
    group: str
    notes: list[str]


def make_batch_job(
    values: Mapping[str, str],
    script: BatchScript,
    arguments: list[str],
    *,
    parent: Callable[[str], str],
    namesakes: Callable[[str], list[str]],
    partitions: Partitions,
    tasks: int = 1,
) -> DescribedBatchJob:
    """`parent` names a job for a dependency, and `namesakes` all jobs of a name that have not ended.

    `partitions`: all of the pool. `tasks`: of the command, if there is no script. Raises InvalidInput.
    """
    chosen = partitions.chosen(values.get("partition", ""))
    array = _array(values)
    variables, unset = sent_variables(values.get("export", "ALL"), os.environ)
    signal, before = parse_signal(values["signal"]) if "signal" in values else ("", 0)
    fields = resource_fields(values)
    facts = _facts(values, script, array, arguments) | _sizes(values, fields) | {VARIABLE: chosen.names}
    # A description replaces placeholders, and has UTF-8 only.
    hidden = {
        name: value
        for name, value in facts.items()
        if ("%" in value and not name.endswith(_OF_TASK)) or not is_utf8(value)
    }
    order = replace(
        _order(script, arguments, variables | hidden, chosen.ces(), signal, values.get("input", "")),
        tasks=tasks,
    )
    fields |= _files(values, array=array is not None)
    # Names here are lines of text, and `%` begins a placeholder.
    name = re.sub(r"[\r\n]", " ", values.get("job-name") or script.name).replace("%", "_")
    name = os.fsencode(name).decode("utf-8", "backslashreplace")
    if "dependency" in values:
        fields |= parse_dependency(values["dependency"], parent, lambda: namesakes(name))
    fields |= chosen.fields()
    if signal:
        # Slurm also sends a signal that is due before the job has begun, as soon as it begins.
        fields["warn"] = min(before, fields["wall_time"] - 1) if "wall_time" in fields else before
    fields |= {
        "executable": PROGRAM,
        "arguments": order_arguments(order),
        "environment": {name: value for name, value in facts.items() if name not in hidden},
        "job_name": name,
        "hold": "hold" in values,
        "parallel": array.parallel if array else 0,
    }
    notes = [f"--export {name}: {name} is not set here, and the job does not get it" for name in unset]
    notes += _unsent(values)
    fields |= _mail(values)
    stated = {name: value for name, value in fields.items() if value not in (0, False, "", [])}
    return DescribedBatchJob(stated, array.values if array else None, values.get("account", ""), notes)


def _order(
    script: BatchScript,
    arguments: Sequence[str],
    variables: dict[str, str],
    partitions: dict[str, list[str]],
    warning: str,
    standard_input: str,
) -> ScriptOrder:
    """`warning`: `[B:]SIGNAL` before the end, or ""."""
    to_script, _, signal = warning.rpartition(":")
    if signal and not to_script and script.text:
        # The script itself gets none, as in Slurm.
        variables = variables | {WARNING_VARIABLE: signal}
        signal = STEPS_SIGNAL
    return ScriptOrder(
        script=script.text.decode("utf-8", "surrogateescape"),
        arguments=[as_utf8(word) for word in arguments],
        variables=variables,
        partitions=partitions,
        standard_input=as_utf8(_input(standard_input)),
        signal=signal,
        is_for_script=bool(to_script),
    )


_OF_TASK: Final = ("ARRAY_TASK_ID", "ARRAY_POSITION", "ARRAY_INDEX")
"""Ends of the names of variables that differ from task to task."""


_MAIL: Final = {"END": ["end"], "FAIL": ["fail"], "ALL": ["end", "fail"]}
_UNSENT: Final = (
    "BEGIN", "REQUEUE", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT", "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90",
    "ARRAY_TASKS", "NONE",
)  # fmt: skip
"""Words of `--mail-type` in Slurm for which no mail is sent here."""


def _mail_words(values: Mapping[str, str]) -> list[str]:
    if "mail-type" not in values:
        return []
    words = [word for part in values["mail-type"].split(",") if (word := part.strip().upper())]
    known = [word for word in words if word in _MAIL or word in _UNSENT]
    if not known:
        raise InvalidInput(
            f"--mail-type {values['mail-type']}: it names no event", hint=", ".join((*_MAIL, *_UNSENT))
        )
    return words


def _mail(values: Mapping[str, str]) -> dict[str, Any]:
    events = dict.fromkeys(event for word in _mail_words(values) for event in _MAIL.get(word, ()))
    address = values.get("mail-user", "")
    # In Slurm a name without a host is an account, whose address the policy has here.
    return {"mail_type": list(events), "mail_user": address if "@" in address else ""}


def _unsent(values: Mapping[str, str]) -> list[str]:
    others = [word for word in _mail_words(values) if word not in _MAIL and word != "NONE"]
    return [f"--mail-type {word}: no mail is sent for this; END and FAIL are" for word in others]


def _array(values: Mapping[str, str]) -> Array | None:
    if "array" not in values:
        return None
    # Slurm takes brackets, a comma at an end, a number that is named twice, and a limit of 0 or of nothing.
    if " " in values["array"]:
        raise InvalidInput(f"--array {values['array']}: it has a blank", hint="1,2 or 1-2")
    ranges, _, at_once = re.sub(r"[\[\]]", "", values["array"]).partition("%")
    text = ranges.strip(",") + (f"%{at_once}" if at_once.strip("0") else "")
    array = parse_array(text, wire.submissions.MAX_JOBS_PER_SUBMISSION, repeats=True)
    return Array(sorted(set(array.values)), array.parallel)


def _facts(
    values: Mapping[str, str], script: BatchScript, array: Array | None, arguments: Sequence[str]
) -> dict[str, str]:
    """Variables of the job that are known at submission."""
    facts = {
        "SLURM_JOB_NAME": values.get("job-name") or script.name,
        "SLURM_SUBMIT_DIR": present_folder(),
        "SLURM_SUBMIT_HOST": socket.gethostname(),
        "SLURM_JOB_USER": getpass.getuser(),
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), _tasks_named(values)),
        COMMAND_VARIABLE: " ".join([script.path, *arguments])[:_SHOWN] if script.path else "",
    }
    facts |= {variable: values[name] for name, variable in _IN_JOB.items() if values.get(name)}
    if array is not None:
        numbers = array.values
        step = min((after - before for before, after in itertools.pairwise(numbers)), default=1)
        facts |= {
            "SLURM_ARRAY_TASK_ID": "%s",
            "SLURM_ARRAY_TASK_COUNT": str(len(numbers)),
            "SLURM_ARRAY_TASK_MIN": str(numbers[0]),
            "SLURM_ARRAY_TASK_MAX": str(numbers[-1]),
            "SLURM_ARRAY_TASK_STEP": str(step),
            "PILOTAGE_ARRAY_INDEX": "%s",
            "PILOTAGE_ARRAY_POSITION": "%n",
        }
    return {name: as_utf8(value) for name, value in facts.items() if value}


def _tasks_named(values: Mapping[str, str]) -> str:
    """Their number, if an option names one; else Slurm sets no variable."""
    count = task_count(values)
    return str(count) if count > 1 or values.keys() & {"ntasks", "ntasks-per-node"} else ""


def _sizes(values: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, str]:
    given = "mem" in values and fields.get("memory")
    return {"SLURM_MEM_PER_NODE": str(fields["memory"])} if given else {}


def _files(values: Mapping[str, str], *, array: bool) -> dict[str, str]:
    given = values.get("open-mode", "truncate").lower()
    mode = next((mode for mode in _OPEN_MODES if given and mode.startswith(given)), "")
    if not mode:
        raise InvalidInput(f"--open-mode {given}: it is append or truncate")
    output = values.get("output") or (DEFAULT_ARRAY_NAME if array else DEFAULT_NAME)
    files = {
        **_folder(values.get("chdir", "")),
        "stdout_file": output_name(output, "--output"),
        "open_mode": mode,
    }
    if "error" in values:
        files["stderr_file"] = output_name(values["error"], "--error")
    return files


def _folder(path: str) -> dict[str, str]:
    """The fields for `--chdir`. A folder that does not exist here would not be found on any node."""
    if path and not os.path.isdir(path):
        raise InvalidInput(f"--chdir {path}: there is no such folder", hint="mkdir -p makes it")
    return folder_fields(path)


def _input(text: str) -> str:
    """The file for standard input, which the node opens. Raises InvalidInput for a pattern."""
    if "%" in text:
        raise InvalidInput(
            f"--input {text}: patterns are not understood here", hint="read the file in the script"
        )
    return text
