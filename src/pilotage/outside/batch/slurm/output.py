"""Readers of the text that Slurm's commands print. Pure, and tested on recorded outputs of real commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchAccount, BatchPartition
from pilotage.outside.batch.command_client import UnreadableOutput, describe_end
from pilotage.outside.batch.properties import read_properties
from pilotage.outside.batch.slurm.commands import LINE_START
from pilotage.outside.batch.slurm.wait_reasons import classify_reason
from pilotage.outside.batch.submission import ListedTask, NativeState, SubmissionRefusal

STATES = {
    "PENDING": NativeState.WAITING,
    "REQUEUED": NativeState.WAITING,
    "REQUEUE_HOLD": NativeState.HELD,
    "REQUEUE_FED": NativeState.WAITING,
    "RESV_DEL_HOLD": NativeState.HELD,
    "SPECIAL_EXIT": NativeState.HELD,
    "CONFIGURING": NativeState.RUNNING,
    "COMPLETING": NativeState.RUNNING,
    "RESIZING": NativeState.RUNNING,
    "RUNNING": NativeState.RUNNING,
    "SIGNALING": NativeState.RUNNING,
    "STAGE_OUT": NativeState.RUNNING,
    "STOPPED": NativeState.RUNNING,
    "SUSPENDED": NativeState.RUNNING,
    "BOOT_FAIL": NativeState.ENDED,
    "CANCELLED": NativeState.ENDED,
    "COMPLETED": NativeState.ENDED,
    "DEADLINE": NativeState.ENDED,
    "FAILED": NativeState.ENDED,
    "NODE_FAIL": NativeState.ENDED,
    "OUT_OF_MEMORY": NativeState.ENDED,
    "PREEMPTED": NativeState.ENDED,
    "REVOKED": NativeState.ENDED,
    "TIMEOUT": NativeState.ENDED,
}

_HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin"})


def whole_lines(output: str) -> list[str]:
    """The lines of an output. `UnreadableOutput` if it was cut off within a line."""
    if output and not output.endswith("\n"):
        raise UnreadableOutput("the output ends in the middle of a line")
    return output.split("\n")[:-1]


def _is_number(text: str) -> bool:
    """Whether `text` is a number as Slurm prints ids. `str.isdigit` also accepts other scripts."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def read_listing(output: str) -> Iterator[ListedTask]:
    """Read the output of `commands.list_jobs`. `UnreadableOutput`: a line is damaged, so the listing is partial."""
    lines = whole_lines(output)
    if output and not output.startswith(LINE_START):
        raise UnreadableOutput(f"not a listing: {output[:200]!r}")
    for line in lines:
        if not line.startswith(LINE_START):
            continue  # The rest of a name with a line end: no pilot has one.
        fields = line.removeprefix(LINE_START).split("|", 5)
        if len(fields) < 5 or not _is_number(fields[0]):
            raise UnreadableOutput(f"not a line of a listing: {line[:200]!r}")
        job, task, native, node, name = (field.strip() for field in fields[:5])
        reason = fields[5].strip() if len(fields) > 5 else ""
        index = int(task) if _is_number(task) else None
        state = STATES.get(native, NativeState.UNKNOWN)
        reason = "" if reason in ("None", "(null)") else reason
        if state is NativeState.WAITING and reason in _HELD_REASONS:
            state = NativeState.HELD
        batch_id = job if index is None else f"{job}_{index}"
        waits = state in (NativeState.WAITING, NativeState.HELD)
        wait = classify_reason(reason) if waits else None
        yield ListedTask(name, index, batch_id, state, native, reason, node, job, wait)


_JOB_ID = re.compile(r"([0-9]{1,18})(?:_(?:([0-9]{1,9})|\[[^|]*\]))?")


LATE_END = 600.0
"""Seconds beyond its wall time for which a batch job may run, by the accounting."""


def read_accounted(output: str, user_name: Callable[[str], str], wall: float = 0.0) -> Iterator[ListedTask]:
    """Read the output of `commands.list_accounted`: jobs that have ended, with the reason of their end, or run.

    `user_name`: the name of a user id. Slurm's Reason says why a job waited, also after its end. `wall`: seconds that
    each job asked for; one that runs for much longer is left out, as its end never reached the accounting.
    """
    for line in whole_lines(output):
        fields = line.split("|", 6)
        if len(fields) < 7:
            continue  # The rest of a name with a line end: no pilot has one.
        job_id, said, exit_code, waited, node, elapsed, name = fields
        native, _, user = said.partition(" by ")
        ids, state = _JOB_ID.fullmatch(job_id), STATES.get(native)
        runs = state is NativeState.RUNNING and _is_number(elapsed)
        if ids is None or not (state is NativeState.ENDED or runs):
            continue
        if runs and wall and float(elapsed) > wall + LATE_END:
            continue
        started = node != _NEVER_STARTED
        reason = (
            ""
            if runs
            else _reason_of_end(native, user and user_name(user), exit_code, "" if started else waited)
        )
        index = None if ids[2] is None else int(ids[2])
        batch_id = ids[1] if index is None else f"{ids[1]}_{index}"
        assert state is not None
        yield ListedTask(name, index, batch_id, state, native, reason, node if started else "", ids[1])


_NEVER_STARTED = "None assigned"


def _reason_of_end(native: str, user: str, exit_code: str, waited: str) -> str:
    words = [f"by {user}"] if user else []
    status, _, killed_by = exit_code.partition(":")
    if native == "FAILED" and _is_number(killed_by) and int(killed_by):
        words.append(f"signal {int(killed_by)}")
    elif native == "FAILED" and _is_number(status) and int(status):
        words.append(f"exit code {int(status)}")
    if waited not in ("", "None", "(null)"):
        words.append(f"while it waited: {waited}")
    return ", ".join(words)


def read_listed_properties(output: str) -> dict[tuple[str, int | None], dict[str, str]]:
    """Read the output of `commands.list_properties`. Lines that are no pilot's are left out."""
    properties = {}
    for line in output.splitlines():
        fields = line.removeprefix(LINE_START).split("|", 3)
        if not line.startswith(LINE_START) or len(fields) < 4 or not fields[3].startswith("pilotage "):
            continue
        _, task, name, comment = (field.strip() for field in fields)
        index = int(task) if _is_number(task) else None
        properties[name, index] = read_properties(comment.removeprefix("pilotage "))
    return properties


_LIMIT = re.compile(r"\b(?:QOS|Assoc)[A-Z][A-Za-z]{2,60}\b")
"""The name of an accounting limit, such as QOSMaxSubmitJobPerUserLimit."""

_FULL = (
    "MaxJobCount",
    "job submit limit",
    "Slurm temporarily unable to accept job",
    "Resource temporarily unavailable",
)
_DOUBT = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Transport endpoint is not connected",
    "Connection reset",
    "Communication connection failure",
    "Message receive failure",
    "Message send failure",
)


def read_submitted(output: str) -> str:
    """Read the array's id from the output of `commands.submit`. `UnreadableOutput`: there is none."""
    [line] = output.split() if len(output.split()) == 1 else [""]
    job = line.partition(";")[0]
    if not _is_number(job):
        raise UnreadableOutput(f"sbatch printed no job id: {output[:200]!r}")
    return job


def is_unclear(errors: str) -> bool:
    """Whether a command failed because the controller gave no clear answer."""
    return any(word in errors for word in _DOUBT)


def is_full(errors: str) -> bool:
    """Whether a submission was refused only because too many jobs are submitted now.

    Slurm has one message for all limits of accounting. The name of the limit, where it prints it, tells them apart.
    """
    limits = _LIMIT.findall(errors)
    return "SubmitJob" in limits[0] if limits else any(word in errors for word in _FULL)


def read_refusal(errors: str) -> str:
    """The reason of `commands.check`, whose last line is the controller's own."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    reason = lines[-1] if lines else "sbatch said nothing"
    reason = reason.removeprefix("allocation failure:").removeprefix("sbatch: error:").strip()
    limits = _LIMIT.findall(errors)
    return f"{limits[0]}: {reason}" if limits and limits[0] not in reason else reason


_NEVER = (
    "configuration not available",
    "configuration is not available",
    "Invalid account",
    "Invalid qos",
    "not permitted",
    "Access/permission denied",
    "violates accounting/QOS policy",
)


def is_refused_release(errors: str) -> bool:
    """Whether Slurm will not start the jobs of a release as they are. Slurm checks the size of a held job only then."""
    return any(word in errors for word in _NEVER) and not is_unclear(errors)


def read_refused_release(errors: str) -> str:
    """The reason for a refused release, without the ids of jobs."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return re.sub(r"^[0-9_]+: ", "", lines[0]) if lines else "scontrol said nothing"


def classify_failure(status: int | None, errors: str) -> tuple[SubmissionRefusal, str]:
    """Class and text of a failed submission. Only a failure that Slurm itself reports as final is no doubt."""
    text = " ".join(
        line.split("error:", 1)[-1].strip() for line in errors.splitlines() if line.strip()
    ) or describe_end("sbatch", status)
    if status is None or status < 0 or any(word in errors for word in _DOUBT):
        return SubmissionRefusal.IN_DOUBT, text
    if is_full(errors):
        return SubmissionRefusal.FULL, text
    if status in (126, 127) or "sbatch: error:" in errors or "unrecognized option" in errors:
        return SubmissionRefusal.REFUSED, text
    return SubmissionRefusal.IN_DOUBT, text


_START_TIME = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)


def read_controller_start(output: str) -> str:
    """The controller's start time as it prints it. Another value means that batch ids may have been given again."""
    if (match := _START_TIME.search(output)) is None:
        raise UnreadableOutput("`scontrol show config` has no BOOT_TIME")
    return match[1]


def read_setting(output: str, name: str) -> str:
    """One value of `scontrol show config`; empty: it is not there."""
    match = re.search(rf"^{re.escape(name)}\s*=[ \t]*(.*)$", output, re.MULTILINE)
    return match[1].strip() if match else ""


def read_accounts(listed: str, shown: str) -> list[BatchAccount]:
    """Read the outputs of `commands.list_accounts` and `commands.show_default_account`."""
    default = next((line.partition("|")[2].strip() for line in shown.splitlines() if "|" in line), "")
    accounts = []
    for line in listed.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 3 or not fields[0]:
            raise UnreadableOutput(f"not an account of `sacctmgr`: {line[:200]!r}")
        name, partition, qos = fields
        names = tuple(word for word in qos.split(",") if word)
        accounts.append(BatchAccount(name, partition, names, name == default))
    return accounts


def read_partitions(output: str) -> list[BatchPartition]:
    """Read the output of `commands.list_partitions`: one partition for all its kinds of nodes, in the order listed."""
    partitions: dict[str, BatchPartition] = {}
    for line in output.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 9:
            raise UnreadableOutput(f"not a line of `sinfo`: {line[:200]!r}")
        marked, availability, wall, nodes, cores, memory, features, gres, _ = fields
        name = marked.removesuffix("*")
        known = partitions.get(name)
        kind = NodeSize(_leading_number(nodes), _leading_number(cores), _leading_number(memory))
        partitions[name] = BatchPartition(
            name,
            availability == "up",
            read_span(wall),
            (*(known.kinds if known else ()), kind),
            _names(features) | (known.features if known else frozenset()),
            _names(gres) | (known.gres if known else frozenset()),
            marked.endswith("*"),
        )
    return list(partitions.values())


def _names(text: str) -> frozenset[str]:
    return frozenset() if text in ("(null)", "N/A", "") else frozenset(text.split(","))


def _leading_number(text: str) -> int:
    """`sinfo` prints `16+` for nodes of several sizes."""
    match = re.match(r"[0-9]{1,18}", text)
    if match is None:
        raise UnreadableOutput(f"not a number: {text[:50]!r}")
    return int(match[0])


def read_span(text: str) -> float | None:
    """Seconds of Slurm's `[days-]hours:minutes:seconds`, `minutes:seconds` or `minutes`; None for no limit."""
    if text in ("infinite", "UNLIMITED", "n/a", "N/A", "NONE"):
        return None
    number = "([0-9]{1,9})"
    match = re.fullmatch(rf"(?:{number}-)?{number}(?::{number})?(?::{number})?", text)
    if match is None:
        raise UnreadableOutput(f"not a span of time: {text[:50]!r}")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)
