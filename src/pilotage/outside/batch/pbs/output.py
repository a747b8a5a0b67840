"""Readers of the output of the commands of PBS: ids, jobs and errors. Pure, of all dialects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from pilotage.outside.batch.command_client import UnreadableOutput, describe_end
from pilotage.outside.batch.pbs.commands import PROPERTIES_VARIABLE, STAMP_VARIABLE
from pilotage.outside.batch.pbs.records import PbsRecord, read_records
from pilotage.outside.batch.pbs.wait_reasons import classify_comment, describe_hold, plain_comment
from pilotage.outside.batch.properties import read_properties
from pilotage.outside.batch.submission import ListedTask, NativeState, SubmissionRefusal, in_short

_ID = re.compile(r"([0-9]{1,18})(\[[0-9]{0,9}\])?((?:\.[A-Za-z0-9_-]+)+)?")
"""A batch id: a number, the index of a job of an array or empty brackets for all of it, and the server."""

STATES: Mapping[str, NativeState] = {
    "H": NativeState.HELD,
    "Q": NativeState.WAITING,
    "T": NativeState.WAITING,
    "W": NativeState.WAITING,
    "B": NativeState.RUNNING,
    "R": NativeState.RUNNING,
    "S": NativeState.RUNNING,
    "U": NativeState.RUNNING,
    "E": NativeState.RUNNING,
    "C": NativeState.ENDED,
    "F": NativeState.ENDED,
    "X": NativeState.ENDED,
}
"""States by letter. M, a job moved to another server, is unknown here."""


_INDEX = re.compile(r"\[([0-9]+)\]")
_BRACKETS = re.compile(r"\[[0-9]*\]")
_HOST_END = re.compile("[/:+]")

READ = (
    *("Job_Name", "Job_Owner", "job_state", "Hold_Types", "comment", "exec_host", "Variable_List"),
    *("Exit_status", "exit_status"),
)
"""The attributes of jobs that are read."""

_OWN_VARIABLE = re.compile(r"PILOTAGE_(?<![^,]PILOTAGE_)(?<!\\,PILOTAGE_)(\w+)=([^,]*(?:(?<=\\),[^,]*)*)")
"""A variable that Pilotage has set. A comma after a backslash belongs to a value."""


def read_id(text: str) -> str:
    """A batch id of qsub, qselect or a listing. A truncated one, such as `123.polaris.al*`, is an error."""
    if _ID.fullmatch(text) is None:
        raise UnreadableOutput(f"not the id of a job: {text[:100]!r}")
    return text


def number_of(batch_id: str) -> str:
    """The number of a job or array."""
    return batch_id.partition(".")[0].partition("[")[0]


def read_submitted(output: str) -> str:
    """The id in the output of `commands.submit`. Sites print lines of their own before it."""
    ids = [line.strip() for line in output.splitlines() if _ID.fullmatch(line.strip())]
    if not ids:
        raise UnreadableOutput(f"qsub printed no job id: {output[:200]!r}")
    return ids[-1]


def ids_of_array(array: str, count: int) -> tuple[str, ...]:
    """The ids of the jobs of an array, by index; of a job alone, its id."""
    if "[]" in array:
        return tuple(array.replace("[]", f"[{index}]", 1) for index in range(count))
    if count == 1:
        return (array,)
    raise UnreadableOutput(f"qsub gave {array!r}, which is no id of an array")


def read_ids(output: str) -> list[str]:
    """The ids in the output of `commands.select_jobs`."""
    return [read_id(line.strip()) for line in output.splitlines() if line.strip()]


def read_jobs(output: str, user: str) -> list[PbsRecord]:
    """The jobs of an account in a listing with whole records. Jobs of others are left out."""
    return [
        record
        for record in read_records(output, "Job Id:", READ)
        if record.get("Job_Owner").partition("@")[0] in ("", user)
    ]


def missing_from(listed: Iterable[PbsRecord], ids: Iterable[str]) -> set[str]:
    """The ids that a listing should have, and has not. Jobs of arrays and whole arrays have one number."""
    numbers = {number_of(record.name) for record in listed}
    return {batch_id for batch_id in ids if number_of(batch_id) not in numbers}


def read_tasks(records: Collection[PbsRecord]) -> Iterator[ListedTask]:
    """A task for each job; for an array the listing of its jobs, else one for all of them."""
    arrays = {number_of(record.name): record for record in records if "[]" in record.name}
    divided = {number_of(record.name) for record in records if _INDEX.search(record.name)}
    for record in records:
        if not record.get("job_state"):
            raise UnreadableOutput(f"the job {record.name[:100]!r} has no state")
        if "[]" not in record.name or number_of(record.name) not in divided:
            yield _task(record, arrays.get(number_of(record.name)))


def _task(record: PbsRecord, array: PbsRecord | None) -> ListedTask:
    read_id(record.name)
    letter, holder = record.values["job_state"][0], record
    if letter == "Q" and array is not None and array.values["job_state"][0] == "H":
        # Jobs of a held array say that they are queued.
        letter, holder = "H", array
    state = STATES.get(letter, NativeState.UNKNOWN)
    reason, wait = "", None
    comment = record.get("comment") or (array.get("comment") if array is not None else "")
    if state is NativeState.HELD:
        reason, wait = describe_hold(holder.get("Hold_Types"), comment)
    elif state is NativeState.WAITING:
        reason, wait = in_short(plain_comment(comment)), classify_comment(comment)
    stamp = _variables(record).get(STAMP_VARIABLE, "")
    index = _INDEX.search(record.name)
    return ListedTask(
        stamp or record.get("Job_Name"),
        int(index[1]) if index is not None else (0 if stamp and "[]" not in record.name else None),
        record.name,
        state,
        letter,
        reason,
        _HOST_END.split(record.get("exec_host"), maxsplit=1)[0],
        _BRACKETS.sub("[]", record.name, count=1),
        wait,
    )


def _variables(record: PbsRecord) -> dict[str, str]:
    """The variables of a job that Pilotage has set. The others may have odd escapes, and are nobody's business."""
    own = _OWN_VARIABLE.findall(record.get("Variable_List"))
    return {f"PILOTAGE_{name}": value for name, value in own}


def read_job_properties(record: PbsRecord) -> dict[str, str]:
    """The properties of a pilot; empty: it has none."""
    return read_properties(_variables(record).get(PROPERTIES_VARIABLE, "").replace(";", ","))


def read_ended(records: Collection[PbsRecord]) -> Iterator[ListedTask]:
    """The tasks of a listing with history that have ended or run, with the reason of their end."""
    by_id = {record.name: record for record in records}
    for task in read_tasks(records):
        record = by_id[task.batch_id]
        if task.state is NativeState.ENDED and task.stamp:
            native, reason = _reason_of_end(record)
            yield ListedTask(
                task.stamp, task.index, task.batch_id, task.state, native, reason, task.node, task.array
            )
        elif task.state is NativeState.RUNNING:
            yield task


_SIGNALLED = 256
"""PBS adds this number to the signal that ended a job; shells add 128."""

_OF_PBS = {
    -1: "PBS could not run it",
    -2: "PBS could not run it after its files were staged in",
    -3: "PBS could not run it, and will try again",
    -29: "it used more memory than it asked for",
    -25: "it used more cores than it asked for",
    -27: "it used more memory than it asked for",
}
"""Negative exit codes of OpenPBS and Torque that are said otherwise than by their number."""


def _reason_of_end(record: PbsRecord) -> tuple[str, str]:
    text = record.get("Exit_status") or record.get("exit_status")
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        return "ended", in_short(plain_comment(record.get("comment")))
    status = int(text)
    if status < 0:
        return f"exit {status}", _OF_PBS.get(status, in_short(record.get("comment")))
    if status > _SIGNALLED:
        return "ended", f"signal {status - _SIGNALLED}"
    if status > _SIGNALLED // 2:
        return "ended", f"signal {status - _SIGNALLED // 2}"
    return "ended", f"exit code {status}" if status else ""


_DOUBT = (
    "annot connect to server",
    "Communication failure",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "End of File",
    "timed out",
    "Protocol",
    "No free connections",
    "connection table full",
    "Server shutting down",
    "pbs_iff",
    "trqauthd",
    "internal error",
    "System error",
)
_FULL = (
    re.compile(r"Maximum number of jobs"),
    re.compile(r"would exceed (?:queue|complex|group|user|project)[^,]* limit"),
    re.compile(r"would exceed (?:per-\w+ )?limit on resource"),
    re.compile(r"maximum number of jobs|[Tt]oo many jobs|max_(?:user_)?queuable"),
)


def is_unclear(errors: str) -> bool:
    """Whether a command failed because the server gave no clear answer."""
    return any(word in errors for word in _DOUBT)


def classify_failure(status: int | None, errors: str) -> tuple[SubmissionRefusal, str]:
    """Class and text of a failed submission. Only a failure that PBS reports as final is no doubt."""
    text = _without_command(errors) or describe_end("qsub", status)
    if status is None or status < 0 or is_unclear(errors):
        return SubmissionRefusal.IN_DOUBT, text
    if any(pattern.search(errors) for pattern in _FULL):
        return SubmissionRefusal.FULL, text
    if status in (126, 127) or "qsub:" in errors or "usage:" in errors:
        return SubmissionRefusal.REFUSED, text
    return SubmissionRefusal.IN_DOUBT, text


def _without_command(errors: str) -> str:
    lines = (re.sub(r"^qsub:\s*", "", line.strip()) for line in errors.splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))


_NOTHING_THERE = re.compile(
    r"Unknown Job|[Jj]ob has finished|Request invalid for (?:state|finished)|invalid state for job"
    r"|Delete already in progress|Job is not held|[Uu]nknown job id|use -x or -H"
)


def concerns_nothing(errors: str) -> bool:
    """Whether a command on ids failed only because its jobs are gone, or have the state already."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return bool(lines) and all(_NOTHING_THERE.search(line) for line in lines)


def is_without_history(errors: str) -> bool:
    """Whether the server keeps no ended jobs."""
    return "not configured to maintain job history" in errors


def read_server(output: str) -> PbsRecord:
    """The server in the output of `commands.show_server`. `UnreadableOutput`: there is none."""
    servers = read_records(output, "Server:")
    if not servers or not servers[0].name:
        raise UnreadableOutput(f"`qstat -B -f` names no server: {output[:200]!r}")
    return servers[0]
