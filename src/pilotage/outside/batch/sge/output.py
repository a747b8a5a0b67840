"""Readers of the text that Grid Engine's commands print. Pure, and tested on outputs of real commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from pilotage.outside.batch import xml_answers
from pilotage.outside.batch.command_client import UnreadableOutput, describe_end
from pilotage.outside.batch.sge.wait_reasons import classify_wait
from pilotage.outside.batch.submission import ListedTask, NativeState, SubmissionRefusal

WAITING = (NativeState.WAITING, NativeState.HELD)

MOST_TASKS = 1_000_000
"""Tasks of one listing."""

_SPACED_TAG = re.compile("<(/?)job ids>")
"""Grid Engine names a list so in messages about a single job, such as one that was started again."""


def read_xml(output: str) -> ElementTree.Element:
    """The root element of a command's XML. A text that is cut off, or that declares entities, is an error."""
    return xml_answers.read_xml(_SPACED_TAG.sub(r"<\1job_ids>", output))


def read_listing(output: str) -> Iterator[ListedTask]:
    """Read the output of `commands.list_jobs`: one task for each index, in the order listed.

    Only the reason of a hold is known: `read_reasons` tells why other jobs wait.
    """
    total = 0
    for job in read_xml(output).iter("job_list"):
        number, native = _text(job, "JB_job_number"), _text(job, "state")
        if not _is_number(number) or not native:
            raise UnreadableOutput("a job of the listing has no number or no state")
        name, queue, tasks = _text(job, "JB_name"), _text(job, "queue_name"), _text(job, "tasks")
        state = read_state(native)
        node = queue.partition("@")[2]
        reason = "held" if state is NativeState.HELD else ""
        for task in read_tasks(tasks):
            total += 1
            if total > MOST_TASKS:
                raise UnreadableOutput(f"the listing has more than {MOST_TASKS} tasks")
            batch_id = number if task is None else f"{number}.{task}"
            index = None if task is None else task - 1
            wait = classify_wait(native, "") if state in WAITING else None
            yield ListedTask(name, index, batch_id, state, native, reason, node, number, wait)


def _text(element: ElementTree.Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def read_tasks(text: str) -> Iterator[int | None]:
    """The tasks of `1-3:1,7`; None alone: the job is no array."""
    if not text:
        yield None
        return
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UnreadableOutput(f"not the tasks of an array: {text[:100]!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        yield from range(first, last + 1, max(1, step))


_LETTERS = frozenset("dEhqrRtwsSTNPz")


def read_state(letters: str) -> NativeState:
    """The meaning of the letters of a state, such as hqw, r, dr, Eqw, Rr, T."""
    if not letters or not set(letters) <= _LETTERS:
        return NativeState.UNKNOWN
    if "z" in letters:
        return NativeState.ENDED
    if set(letters) & set("rtsSTNP"):
        return NativeState.RUNNING
    return NativeState.HELD if "h" in letters else NativeState.WAITING


def read_context(output: str) -> dict[str, dict[str, str]]:
    """The context variables of the jobs of `commands.show_jobs`, by job id."""
    contexts = {}
    for job in _shown_jobs(output):
        variables = job.find("JB_context")
        pairs = () if variables is None else variables
        contexts[_text(job, "JB_job_number")] = {
            name: _text(pair, "VA_value") for pair in pairs if (name := _text(pair, "VA_variable"))
        }
    return contexts


def _shown_jobs(output: str) -> list[ElementTree.Element]:
    """The jobs of `commands.show_jobs`. Jobs that have ended meanwhile are left out."""
    root = read_xml(output)
    if root.tag == "unknown_jobs":
        return []
    information = root.find("djob_info")
    if information is None:
        raise UnreadableOutput(f"not a description of jobs: {output[:200]!r}")
    return information.findall("element")


MOST_REASONS = 3


def read_reasons(output: str) -> dict[str, str]:
    """Why the jobs of `commands.show_jobs` wait, by job id: errors first, then the messages of the scheduler."""
    jobs = _shown_jobs(output)
    reasons: dict[str, list[str]] = {_text(job, "JB_job_number"): _errors_of(job) for job in jobs}
    for message in read_xml(output).iterfind(".//messages//SME_message_list/element"):
        text = _tidy(_text(message, "MES_message"))
        for number in message.iterfind("MES_job_number_list//ULNG_value"):
            reasons.setdefault((number.text or "").strip(), []).append(text)
    shared = [
        _tidy(_text(message, "MES_message"))
        for message in read_xml(output).iterfind(".//messages//SME_global_message_list/element")
    ]
    return {
        number: "; ".join([text for text in dict.fromkeys([*own, *shared]) if text][:MOST_REASONS])
        for number, own in reasons.items()
    }


def _errors_of(job: ElementTree.Element) -> list[str]:
    """The messages of a job's tasks in an error state."""
    return [_tidy(_text(message, "QIM_message")) for message in job.iterfind(".//JAT_message_list/*")]


def _tidy(text: str) -> str:
    """A reason without numbers of jobs and times, so that equal reasons are equal texts."""
    text = re.sub(r"^[0-9/]+ [0-9:]+ \[[0-9:]+\]: ", "", " ".join(text.split()))
    return re.sub(r"^[Jj]ob [0-9.]+ (\(-l [^)]*\) )?", "", text)


_END = re.compile(r"^=+$", re.MULTILINE)


def read_accounted(output: str) -> Iterator[ListedTask]:
    """Read the output of `commands.list_accounted`: the jobs that have ended, with the reason of their end."""
    for block in _END.split(output):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            name, _, value = line.partition(" ")
            fields.setdefault(name, value.strip())
        number, task = fields.get("jobnumber", ""), fields.get("taskid", "")
        if not _is_number(number) or "jobname" not in fields:
            continue
        index = int(task) - 1 if _is_number(task) and int(task) else None
        batch_id = number if index is None else f"{number}.{task}"
        native, reason = _reason_of_end(fields.get("failed", ""), fields.get("exit_status", ""))
        yield ListedTask(
            fields["jobname"],
            index,
            batch_id,
            NativeState.ENDED,
            native,
            reason,
            fields.get("hostname", ""),
            number,
        )


_SIGNALLED = 128


def _reason_of_end(failed: str, exit_status: str) -> tuple[str, str]:
    """Grid Engine's word and reason for an end, of `100 : assumedly after job` and `137 (Killed)`."""
    code, _, text = (part.strip() for part in failed.partition(":"))
    status = exit_status.split(" ", 1)[0]
    number = int(status) if _is_number(status) else 0
    words = [text] if code not in ("", "0") and text else []
    if number > _SIGNALLED:
        words.append(f"signal {number - _SIGNALLED}")
    elif number:
        words.append(f"exit code {number}")
    return (f"failed {code}" if code not in ("", "0") else "ended"), ", ".join(words)


_NO_RECORDS = re.compile(
    r"job (name|id|number) .* not found|no jobs running since startup|accounting: No such file or directory"
)


def is_without_records(errors: str) -> bool:
    """Whether the accounting has no such job, or the cell has no accounting that this machine can read."""
    return _NO_RECORDS.search(errors) is not None


_DOUBT = (
    "unable to contact qmaster",
    "commlib error",
    "communication error",
    "unable to send message to qmaster",
    "failed receiving gdi request",
    "got select error",
    "got read error",
    "got send error",
    "Error reading answer list",
    "got no response",
    "can't unpack",
    "qmaster is not running",
)
_FULL = (
    re.compile(r"only [0-9]+ jobs are allowed per (user|cluster)"),
    re.compile(r"more than [0-9]+ tasks"),
)


def read_submitted(output: str) -> str:
    """Read the array's id from the output of `commands.submit`. `UnreadableOutput`: there is none."""
    match = re.search(r"^([0-9]{1,18})(\.[0-9]+-[0-9]+:[0-9]+)?$", output.strip(), re.MULTILINE)
    if match is None:
        raise UnreadableOutput(f"qsub printed no job id: {output[:200]!r}")
    return match[1]


def is_unclear(errors: str) -> bool:
    """Whether a command failed because the master gave no clear answer."""
    return any(word in errors for word in _DOUBT)


def is_full(errors: str) -> bool:
    """Whether a submission was refused only because too many jobs are submitted now."""
    return any(pattern.search(errors) for pattern in _FULL)


def read_refusal(errors: str) -> str:
    """The reason of a refused command: Grid Engine's own lines, without its job number."""
    lines: list[str] = []
    for line in errors.splitlines():
        text = _tidy(line.strip().removeprefix("Unable to run job:").removeprefix("qsub:").strip())
        if text and text not in ("Exiting.", "verification: no suitable queues", *lines):
            lines.append(text)
    return "; ".join(lines[:MOST_REASONS]) or "no queue can run it"


def classify_failure(status: int | None, errors: str) -> tuple[SubmissionRefusal, str]:
    """Class and text of a failed submission. Only a failure that Grid Engine reports as final is no doubt."""
    if status is None or status < 0 or is_unclear(errors):
        text = " ".join(errors.split()) or describe_end("qsub", status)
        return SubmissionRefusal.IN_DOUBT, text
    if is_full(errors):
        return SubmissionRefusal.FULL, read_refusal(errors)
    if status in (126, 127) or "Unable to run job:" in errors or "qsub:" in errors or "denied" in errors:
        return SubmissionRefusal.REFUSED, read_refusal(errors)
    return SubmissionRefusal.IN_DOUBT, " ".join(errors.split()) or describe_end("qsub", status)


_NOTHING_THERE = re.compile(
    r"does not exist|is already in deletion|has registered the job|has deleted job|modified hold|[Nn]o active job"
    r"|there are no jobs registered"
)


def concerns_nothing(answer: str) -> bool:
    """Whether a command on jobs by name or id failed only because there is no such job any more."""
    lines = [line for line in answer.splitlines() if line.strip()]
    return bool(lines) and all(_NOTHING_THERE.search(line) for line in lines)


_START = re.compile(r"^start time:.*\(([0-9]{1,18})\)", re.MULTILINE)


def read_master_start(output: str) -> str:
    """When the master was started, in epoch seconds. Another value means that batch ids may belong to other jobs."""
    if (match := _START.search(output)) is None:
        raise UnreadableOutput("`qping -info` has no start time")
    return match[1]
