"""Readers of the output of HTCondor's commands. Pure, and tested on recorded outputs of real commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from pilotage.core.pilots.waits import WaitClass
from pilotage.outside.batch.command_client import UnreadableOutput, describe_end
from pilotage.outside.batch.htcondor import commands
from pilotage.outside.batch.htcondor.hold_codes import classify_hold, describe_hold
from pilotage.outside.batch.properties import read_properties
from pilotage.outside.batch.submission import ListedTask, NativeState, SubmissionRefusal

STATES = {
    1: ("IDLE", NativeState.WAITING),
    2: ("RUNNING", NativeState.RUNNING),
    3: ("REMOVED", NativeState.ENDED),
    4: ("COMPLETED", NativeState.ENDED),
    5: ("HELD", NativeState.HELD),
    6: ("TRANSFERRING_OUTPUT", NativeState.RUNNING),
    7: ("SUSPENDED", NativeState.RUNNING),
}
"""HTCondor's words and their meanings, by JobStatus."""

PIECE = 200
"""Ads that are read at once: other threads of the process wait meanwhile."""

CAME_BACK = "it was started and came back to the queue"


class JobAd(msgspec.Struct, frozen=True):
    """The attributes of a batch job in listings and in the history. Other jobs may have values of any kind."""

    cluster: int = msgspec.field(name="ClusterId")
    process: int = msgspec.field(name="ProcId")
    status: int = msgspec.field(name="JobStatus", default=0)
    stamp: object = msgspec.field(name=commands.STAMP, default="")
    index: object = msgspec.field(name=commands.INDEX, default=None)
    properties: object = msgspec.field(name=commands.PROPERTIES, default="")
    owner: object = msgspec.field(name="Owner", default="")
    batch_name: object = msgspec.field(name="JobBatchName", default="")
    host: object = msgspec.field(name="RemoteHost", default="")
    last_host: object = msgspec.field(name="LastRemoteHost", default="")
    starts: object = msgspec.field(name="NumJobStarts", default=0)
    hold_reason: object = msgspec.field(name="HoldReason", default="")
    hold_code: object = msgspec.field(name="HoldReasonCode", default=0)
    hold_subcode: object = msgspec.field(name="HoldReasonSubCode", default=0)
    remove_reason: object = msgspec.field(name="RemoveReason", default="")
    exit_code: object = msgspec.field(name="ExitCode", default=None)
    by_signal: object = msgspec.field(name="ExitBySignal", default=False)
    exit_signal: object = msgspec.field(name="ExitSignal", default=None)


Ad = TypeVar("Ad")


def read_ads(output: str, kind: type[Ad]) -> Iterator[Ad]:
    """Read a list of ads as `-json` prints it: each ad begins and ends with a line of its own.

    `UnreadableOutput`: it is cut, or no such list. Without an ad nothing is printed at all.
    """
    text = output.strip()
    if not text:
        return
    if not (text.startswith("[") and text.endswith("]")):
        raise UnreadableOutput(f"not a whole list of ads: {text[:100]!r} … {text[-50:]!r}")
    decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
    ads = text[1:-1].split("\n}\n,\n{\n")
    for first in range(0, len(ads), PIECE):
        piece = "\n}\n,\n{\n".join(ads[first : first + PIECE])
        piece = piece if first == 0 else "{\n" + piece
        piece = piece if first + PIECE >= len(ads) else piece + "\n}"
        try:
            yield from decoder.decode(f"[{piece}]")
        except (msgspec.DecodeError, UnicodeError) as error:
            raise UnreadableOutput(f"not a list of ads: {error}") from None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def read_listing(output: str) -> Iterator[ListedTask]:
    """Read the output of `commands.list_jobs`. `UnreadableOutput`: it is damaged, so the listing is partial."""
    for ad in read_ads(output, JobAd):
        native, state = STATES.get(ad.status, (f"JobStatus {ad.status}", NativeState.UNKNOWN))
        if ad.status == 3 and _text(ad.host):
            state = NativeState.RUNNING  # HTCondor is about to end it.
        reason, wait = _wait_of(ad, state)
        stamp = _text(ad.stamp)
        yield ListedTask(
            stamp or _text(ad.batch_name),
            _number(ad.index) if stamp and ad.index is not None else None,
            f"{ad.cluster}.{ad.process}",
            state,
            native,
            reason,
            _text(ad.host).rpartition("@")[2],
            str(ad.cluster),
            wait,
        )


def _wait_of(ad: JobAd, state: NativeState) -> tuple[str, WaitClass | None]:
    """Why a job waits, in plain words, and the class of the reason."""
    if state is NativeState.HELD:
        code, subcode = _number(ad.hold_code), _number(ad.hold_subcode)
        return describe_hold(code, subcode, _text(ad.hold_reason)), classify_hold(code)
    if state is NativeState.WAITING:
        return (CAME_BACK, WaitClass.ERROR) if _number(ad.starts) else ("", WaitClass.TRANSIENT)
    return "", None


def read_accounted(output: str) -> Iterator[ListedTask]:
    """Read the output of `commands.list_accounted`, with the reason of each end."""
    for ad in read_ads(output, JobAd):
        native, _ = STATES.get(ad.status, (f"JobStatus {ad.status}", NativeState.UNKNOWN))
        node = (_text(ad.host) or _text(ad.last_host)).rpartition("@")[2]
        yield ListedTask(
            _text(ad.stamp),
            _number(ad.index) if ad.index is not None else None,
            f"{ad.cluster}.{ad.process}",
            NativeState.ENDED,
            native,
            _reason_of_end(ad),
            node,
            str(ad.cluster),
        )


def _reason_of_end(ad: JobAd) -> str:
    if removed := _text(ad.remove_reason):
        held = _text(ad.hold_reason)
        return removed + (f", while it was held: {held}" if held else "")
    if ad.by_signal is True:
        return f"signal {_number(ad.exit_signal)}"
    return f"exit code {_number(ad.exit_code)}" if _number(ad.exit_code) else ""


def read_listed_properties(output: str) -> dict[tuple[str, int | None], dict[str, str]]:
    """Read the properties of pilots from a listing."""
    return {
        (_text(ad.stamp), _number(ad.index)): read_properties(_text(ad.properties))
        for ad in read_ads(output, JobAd)
        if _text(ad.stamp)
    }


def read_owners(output: str) -> list[str]:
    """The accounts of the listed jobs, each once."""
    return sorted({_text(ad.owner) for ad in read_ads(output, JobAd)})


def describe_owner(actual: str, configured: str) -> str:
    """Why pilots of another account than the configured one are refused, and how to mend it."""
    return (
        f"the schedd gives the pilots to account {actual or 'none'}, not to {configured}: set `owner` in the CE's"
        f" section of HTCondor to {actual or 'that account'}, or remove it"
    )


def read_submitted(output: str, count: int) -> tuple[str, tuple[str, ...]]:
    """The cluster and the batch ids of a submission, from `CLUSTER.FIRST - CLUSTER.LAST`."""
    match = re.fullmatch(r"([0-9]{1,12})\.0 - ([0-9]{1,12})\.([0-9]{1,9})", output.strip())
    if match is None or match[1] != match[2] or int(match[3]) != count - 1:
        raise UnreadableOutput(f"condor_submit did not print the ids of {count} jobs: {output[:200]!r}")
    return match[1], tuple(f"{match[1]}.{process}" for process in range(count))


class ScheddAd(msgspec.Struct, frozen=True):
    """A schedd as it describes itself."""

    name: str = msgspec.field(name="Name")
    started: int = msgspec.field(name="DaemonStartTime")
    version: str = msgspec.field(name="CondorVersion", default="")


def read_schedd(output: str) -> ScheddAd:
    """Read the output of `commands.show_schedd`."""
    ads = list(read_ads(output, ScheddAd))
    if len(ads) != 1:
        raise UnreadableOutput(f"condor_status printed {len(ads)} schedds instead of one")
    return ads[0]


_TOTALS = re.compile(
    r"Total for all users: .*?([0-9]+) idle, ([0-9]+) running, ([0-9]+) held(?:, ([0-9]+) suspended)?"
)


def read_counts(output: str) -> tuple[int, int]:
    """(running, waiting) jobs in the output of `commands.count_jobs`. Held jobs wait."""
    match = _TOTALS.search(output)
    if match is None:
        raise UnreadableOutput(f"condor_q printed no totals: {output[:200]!r}")
    idle, running, held, suspended = (int(number or 0) for number in match.groups())
    return running + suspended, idle + held


_NOT_SENT = (
    "unknown host",
    "Can't find address of",
    "Parse error in expression",
    "Can't open",
    "not allowed for security reasons",
    "Failed to parse",
    "no valid token",
    "Invalid value",
    "AUTHENTICATE:1003",
    "AUTHENTICATE:1004",
)
"""Failures before anything was sent, or for a caller whom the schedd does not let submit."""

_FULL = ("MAX_JOBS_", "would exceed", "Number of submitted jobs")


def classify_failure(status: int | None, errors: str) -> tuple[SubmissionRefusal, str]:
    """Class and text of a failed submission. Only a failure that is certain is no doubt."""
    text = read_error(errors) or describe_end("condor_submit", status)
    if status is None or status < 0:
        return SubmissionRefusal.IN_DOUBT, text
    if any(word in errors for word in _FULL):
        return SubmissionRefusal.FULL, text
    if status in (126, 127) or any(word in errors for word in _NOT_SENT):
        return SubmissionRefusal.REFUSED, text
    return SubmissionRefusal.IN_DOUBT, text


def read_error(errors: str) -> str:
    """The lines of an error on one line, without advice and addresses that change."""
    lines = [re.sub(r"^(?:ERROR|Error): ?|^-- ", "", line.strip()) for line in errors.splitlines()]
    kept = []
    for line in lines:
        if line.startswith("Extra Info"):
            break
        if line:
            kept.append(re.sub(r"\?addrs=[^>]*(?=>)", "", line))
    return "; ".join(dict.fromkeys(kept))


def found_nothing(errors: str) -> bool:
    """Whether a release or removal failed only because no job has the constraint."""
    return any(word in errors for word in ("There are no jobs in the queue", "Couldn't find"))


def largest_fitting(machines: Sequence[tuple[int, int]], processors: int, memory: int) -> str:
    """Why no machine (cores, MB) has room for a pilot; empty: one has."""
    if not machines or any(cores >= processors and size >= memory for cores, size in machines):
        return ""
    cores, size = max(machines)
    return f"no machine of the pool has {processors} cores and {memory} MB; the largest has {cores} cores and {size} MB"
