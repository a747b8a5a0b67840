"""Readers of the text that LSF's commands print. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pilotage.outside.batch.command_client import UnreadableOutput, describe_end
from pilotage.outside.batch.lsf.commands import DESCRIPTION_START
from pilotage.outside.batch.lsf.wait_reasons import classify_wait
from pilotage.outside.batch.properties import read_properties
from pilotage.outside.batch.submission import ListedTask, NativeState, SubmissionRefusal, in_short

STATES: Mapping[str, NativeState] = {
    "PEND": NativeState.WAITING,
    "PSUSP": NativeState.HELD,
    "FWD_PEND": NativeState.WAITING,
    "WAIT": NativeState.WAITING,
    "PROV": NativeState.RUNNING,
    "RUN": NativeState.RUNNING,
    "USUSP": NativeState.RUNNING,
    "SSUSP": NativeState.RUNNING,
    "DONE": NativeState.ENDED,
    "EXIT": NativeState.ENDED,
}
"""States by word. UNKWN and ZOMBI, of jobs whose host does not answer, are unknown here too."""

Row = Mapping[str, str]
"""A job of a listing, by the name of the field."""

_NO_JOBS = re.compile(r"No (?:unfinished )?job found|No matching job found")


def is_without_jobs(errors: str) -> bool:
    """Whether `bjobs` has failed only because the account has no jobs."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return bool(lines) and all(_NO_JOBS.search(line) for line in lines)


def read_rows(output: str) -> list[Row]:
    """The jobs of `commands.list_jobs`. A listing with another number of jobs than it says was cut."""
    begin = output.find("{")
    try:
        answer = json.loads(output[begin:], strict=False) if begin >= 0 else None
    except ValueError as error:
        raise UnreadableOutput(f"bjobs printed no JSON ({error}): {output[:200]!r}") from None
    if not isinstance(answer, dict):
        raise UnreadableOutput(f"bjobs printed no JSON: {output[:200]!r}")
    records = answer.get("RECORDS")
    if not isinstance(records, list) or str(answer.get("JOBS")) != str(len(records)):
        raise UnreadableOutput(f"bjobs printed another number of jobs than it says: {output[:200]!r}")
    return [_row(record) for record in records]


def _row(record: Any) -> Row:
    if not isinstance(record, dict) or "ERROR" in record:
        raise UnreadableOutput(f"not a job of bjobs: {str(record)[:200]!r}")
    row = {str(name): str(value) for name, value in record.items() if value is not None}
    if not re.fullmatch("[0-9]{1,18}", row.get("JOBID", "")) or not row.get("STAT"):
        raise UnreadableOutput(f"a job of the listing has no id or no state: {str(record)[:200]!r}")
    return row


def read_task(row: Row) -> ListedTask:
    """The task of a job of a listing. Indexes of LSF begin at 1; 0 means that the job is no array."""
    native = row["STAT"]
    state = STATES.get(native, NativeState.UNKNOWN)
    number, index = row["JOBID"], row.get("JOBINDEX", "")
    is_element = index.isdecimal() and index != "0"
    reason, wait = "", None
    if state in (NativeState.WAITING, NativeState.HELD):
        reason = plain_reason(row.get("PEND_REASON", ""))
        wait = classify_wait(reason or ("held" if state is NativeState.HELD else ""))
    return ListedTask(
        re.sub(r"\[[^\]]*\](?:%[0-9]+)?$", "", row.get("JOB_NAME", "")),
        int(index) - 1 if is_element else None,
        f"{number}[{index}]" if is_element else number,
        state,
        native,
        reason or ("held" if state is NativeState.HELD else ""),
        re.sub(r"^[0-9]+\*", "", row.get("EXEC_HOST", "").split(":", 1)[0]),
        number,
        wait,
    )


def plain_reason(text: str) -> str:
    """The sentences of a PEND_REASON on one line."""
    sentences = (" ".join(sentence.split()) for sentence in text.split(";"))
    return in_short("; ".join(dict.fromkeys(sentence for sentence in sentences if sentence)))


def read_accounted(row: Row) -> ListedTask | None:
    """The job with the reason of its end, if it has ended or runs."""
    task = read_task(row)
    if task.state is NativeState.RUNNING:
        return task
    if task.state is not NativeState.ENDED:
        return None
    code = row.get("EXIT_CODE", "")
    number = int(code) if re.fullmatch("[0-9]{1,9}", code) else 0
    words = [f"signal {number - 128}" if number > 128 else f"exit code {number}"] if number else []
    # Such as `TERM_MEMLIMIT: job killed after reaching LSF memory usage limit`.
    words += [text for text in [row.get("EXIT_REASON", "").partition(": ")[2]] if text]
    return replace(task, reason=in_short(", ".join(words)))


def read_listed_properties(row: Row) -> dict[str, str]:
    """The properties of a pilot; empty: it has none."""
    text = row.get("JOB_DESCRIPTION", "")
    return read_properties(text.removeprefix(DESCRIPTION_START)) if text.startswith(DESCRIPTION_START) else {}


def read_submitted(output: str) -> str:
    """The id in the output of `commands.submit`. Sites print lines of their own before it."""
    match = re.search(r"^Job <([0-9]{1,18})> is submitted", output, re.MULTILINE)
    if match is None:
        raise UnreadableOutput(f"bsub printed no job id: {output[:200]!r}")
    return match[1]


_FULL = (
    re.compile(r"[Pp]ending job (?:slot )?threshold"),
    re.compile(r"(?:job|pending|slot)s? (?:slot )?limit .*(?:reached|exceeded)|has reached .*limit"),
    re.compile(r"[Tt]oo many (?:jobs|pending)"),
)


def classify_failure(status: int | None, errors: str) -> tuple[SubmissionRefusal, str]:
    """Class and text of a failed submission. Only a failure that LSF reports as final is no doubt."""
    lines = (line.strip().removesuffix(" Job not submitted.") for line in errors.splitlines())
    text = "; ".join(dict.fromkeys(line for line in lines if line)) or describe_end("bsub", status)
    if status is None or status < 0:
        return SubmissionRefusal.IN_DOUBT, text
    if any(pattern.search(errors) for pattern in _FULL):
        return SubmissionRefusal.FULL, text
    if status in (126, 127) or "Job not submitted" in errors or "Illegal option" in errors:
        return SubmissionRefusal.REFUSED, text
    return SubmissionRefusal.IN_DOUBT, text


_NOTHING_THERE = re.compile(
    r"No matching job found|No match|already finished|has already been|No unfinished job|is not suspended"
    r"|is being (?:terminated|resumed|signaled)|[Jj]ob already"
)


def concerns_nothing(answer: str) -> bool:
    """Whether a command on jobs failed only because there is no such job any more, or it has the state already."""
    lines = [line for line in answer.splitlines() if line.strip()]
    return bool(lines) and all(_NOTHING_THERE.search(line) for line in lines)
