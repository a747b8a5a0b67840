"""Records of accounting for other systems: messages of APEL, and records of AUDITOR.

Both are made of the attempts that ended in a month. docs/how-to/accounting-records.md explains each field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.wire.accounting import AccountedAttempt

APEL_HEADER: Final = "APEL-normalised-summary-message: v0.4"
_FORBIDDEN: Final = re.compile(r'[/()"<>\\{}%\x00-\x1f\x7f]')
"""Characters that AUDITOR refuses in texts, and the sign of their code."""
_LINE_ENDS: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_BENCHMARK: Final = re.compile(r"([A-Za-z][A-Za-z0-9]{0,30})=([0-9]{1,6}(?:\.[0-9]{1,6})?)")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, and the score of one reference core."""

    name: str
    score: float


def parse_benchmark(text: str) -> Benchmark:
    """Such as "hepscore23=15.3"."""
    match = _BENCHMARK.fullmatch(text)
    if match is None or not float(match[2]):
        raise InvalidInput(
            f"{text!r} is no benchmark with a score", hint="the score of a reference core: hepscore23=15.3"
        )
    return Benchmark(match[1], float(match[2]))


@dataclass
class _Sums:
    """The attempts of one record of APEL."""

    first: float
    last: float
    jobs: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    normalised_wall: float = 0.0
    normalised_cpu: float = 0.0


_Key = tuple[str, str, str, str, str, int]
"""Month, site, user, VO, CE and cores."""


def apel_message(attempts: Iterable[AccountedAttempt], benchmark: Benchmark, host: str) -> Iterator[str]:
    """The lines of one message: a record for each month, site, user, VO, CE and number of cores.

    `host`: the part of SubmitHost before the name of the CE.
    """
    sums: dict[_Key, _Sums] = {}
    for attempt in attempts:
        user, vo = attempt.subject or attempt.owner, attempt.vo or attempt.group
        month = f"{datetime.fromtimestamp(attempt.ended, UTC):%Y-%m}"
        key = (month, attempt.site, user, vo, attempt.ce, attempt.processors)
        record = sums.setdefault(key, _Sums(attempt.ended, attempt.ended))
        factor = attempt.cpu_power * benchmark.score
        record.first = min(record.first, attempt.ended)
        record.last = max(record.last, attempt.ended)
        record.jobs += 1
        record.wall += attempt.wall
        record.cpu += attempt.cpu
        record.normalised_wall += attempt.wall * factor
        record.normalised_cpu += attempt.cpu * factor
    yield APEL_HEADER
    for key, record in sorted(sums.items()):
        yield from _apel_record(key, record, benchmark, host)
        yield "%%"


def _apel_record(key: _Key, record: _Sums, benchmark: Benchmark, host: str) -> Iterator[str]:
    month, site, user, vo, ce, processors = key
    values: dict[str, object] = {
        "Site": site,
        "Month": int(month[5:]),
        "Year": int(month[:4]),
        "GlobalUserName": user,
        "VO": vo,
        "SubmitHost": f"{host}/{ce}" if ce else host,
        "Infrastructure": "grid",
        "NodeCount": 1,
        "Processors": processors,
        "EarliestEndTime": int(record.first),
        "LatestEndTime": int(record.last),
        "WallDuration": round(record.wall),
        "CpuDuration": round(record.cpu),
        "NormalisedWallDuration": f"{{{benchmark.name}: {round(record.normalised_wall)}}}",
        "NormalisedCpuDuration": f"{{{benchmark.name}: {round(record.normalised_cpu)}}}",
        "NumberOfJobs": record.jobs,
    }
    for name, value in values.items():
        # A line of a message is one field.
        yield f"{name}: {_LINE_ENDS.sub(' ', str(value)) or 'None'}"


def auditor_records(
    attempts: Iterable[AccountedAttempt], instance: str, benchmark: Benchmark | None
) -> Iterator[str]:
    """The lines of a JSON list with one record for each attempt, as AUDITOR takes it at `/records`."""
    separator = "["
    for attempt in attempts:
        yield separator + json.dumps(_auditor_record(attempt, instance, benchmark), ensure_ascii=False)
        separator = ","
    yield "[]" if separator == "[" else "]"


def _auditor_record(attempt: AccountedAttempt, instance: str, benchmark: Benchmark | None) -> dict[str, Any]:
    meta = {
        "site_id": attempt.site,
        "user_id": attempt.subject or attempt.owner,
        "group_id": attempt.group,
        "voms": attempt.vo or attempt.group,
        "submit_host": attempt.ce,
        "node": attempt.host,
        "outcome": attempt.outcome,
    }
    scores = [{"name": "reference-cores", "value": attempt.cpu_power}]
    if benchmark is not None:
        scores.append({"name": benchmark.name, "value": attempt.cpu_power * benchmark.score})
    components = [
        _component("Cores", attempt.processors, scores),
        _component("TotalCPU", round(attempt.cpu)),
        _component("Wall", round(attempt.wall)),
        _component("MaxRSS", attempt.max_rss),
    ]
    return {
        "record_id": f"pilotage-{_encoded(instance)}-{attempt.job}-{attempt.epoch}",
        "meta": {name: [_encoded(value)] for name, value in meta.items() if value},
        "components": components,
        "start_time": _instant(attempt.started),
        "stop_time": _instant(max(attempt.started, attempt.ended)),
    }


def _component(name: str, amount: int, scores: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"name": name, "amount": amount, "scores": scores or []}


def _encoded(text: str) -> str:
    """A text that AUDITOR takes: characters that it refuses are percent-encoded."""
    return _FORBIDDEN.sub(lambda found: quote(found[0], safe=""), text)


def _instant(at: float) -> str:
    return f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%dT%H:%M:%SZ}"
