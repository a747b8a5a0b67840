"""What the values of a policy may be: whatever is accepted can be stored, reckoned with and shown by every statement.

Integers stay far within the 64 bits of a column even after they were added up or multiplied, numbers are finite and
far from overflow, and texts fit into an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pilotage.core.policy.corrector_keys import CORRECTOR_KEYS
from pilotage.core.policy.model import Policy

YEAR: Final = 366 * 86400.0

LONGEST_NAME: Final = 200
"""Characters of a text: it may be a column of an index, and travels in tokens and headers."""
LONGEST_LIST: Final = 1000

_SECONDS: Final = (0.0, 100 * YEAR)
_COUNT: Final = (0, 10**12)
_BYTES: Final = (0, 2**60)
# 0 switches off; what is above is not so small that dividing by it would overflow.
_SHARE: Final = (1e-6, 1e12)

RANGES: Final[dict[str, tuple[float, float]]] = {
    "groups.*.share": _SHARE,
    "ces.*.processors": (0, 10**6),
    "ces.*.memory": _COUNT,
    "ces.*.cpu_power": (1e-6, 1e6),
    "ces.*.wall": (1e-3, 100 * YEAR),
    "ces.*.idle": _SECONDS,
    "ces.*.lease": (1e-3, YEAR),
    "ces.*.heartbeat": (1e-3, YEAR),
    "ces.*.quantum": (1e-3, 100 * YEAR),
    "matching.cpu_buckets": (1, 10**12),
    "matching.memory_buckets": (1, 10**12),
    "jobs.max_reschedules": (0, 10**6),
    "jobs.retry_delay": _SECONDS,
    "jobs.offer_timeout": (1e-3, YEAR),
    "jobs.max_input_file": _BYTES,
    "jobs.max_input_sandbox": _BYTES,
    "jobs.max_output_file": _BYTES,
    "jobs.max_waiting_per_owner": _COUNT,
    "limits.*.running": (0, 10**9),
    "limits.*.delay": _SECONDS,
    "limits.*.burst": (1, 10**9),
    "correction.period": (1.0, YEAR),
    **{key.name: key.setting.range for key in CORRECTOR_KEYS if key.setting.range is not None},
    "accounting.history": (0.0, 20 * YEAR),
    **dict.fromkeys(
        (
            "retention.hot",
            "retention.jobs",
            "retention.outputs",
            "retention.attempts",
            "retention.events",
            "retention.pilots",
            "retention.uploads",
            "retention.reasons",
        ),
        _SECONDS,
    ),
}
"""The least and the most of every number, `*` for a name. A test holds that each number of a policy is here."""

ZERO_TOO: Final = frozenset({"groups.*.share", *(key.name for key in CORRECTOR_KEYS if key.setting.or_zero)})
"""Numbers that may be 0 besides."""


def out_of_bounds(policy: Policy) -> tuple[str, tuple[str, ...]] | None:
    """The first value that no policy may have: why, and its keys. None if there is none."""
    return next(_faults(policy, (), ()), None)


def _faults(
    value: Any, keys: tuple[str, ...], pattern: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    where = ".".join(keys)
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            name = field.encode_name
            yield from _faults(getattr(value, field.name), (*keys, name), (*pattern, name))
    elif isinstance(value, dict):
        for name, entry in value.items():
            reason = _fault_of_text(name)
            if reason:
                yield f"{where}: the name {reason}", (*keys, name)
            yield from _faults(entry, (*keys, name), (*pattern, "*"))
    elif isinstance(value, tuple):
        yield from _faults_of_list(value, keys, pattern)
    elif isinstance(value, str):
        reason = _fault_of_text(value)
        if reason:
            yield f"{where} {reason}", keys
    elif isinstance(value, int | float) and not isinstance(value, bool):
        reason = _fault_of_number(value, ".".join(pattern))
        if reason:
            yield f"{where} {reason}", keys


def _faults_of_list(
    values: tuple[Any, ...], keys: tuple[str, ...], pattern: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if len(values) > LONGEST_LIST:
        yield f"{'.'.join(keys)} has {len(values):,} entries: at most {LONGEST_LIST:,} can be", keys
    for place, entry in enumerate(values):
        if isinstance(entry, msgspec.Struct):
            yield from _faults(entry, (*keys, str(place)), (*pattern, "*"))
        else:
            yield from _faults(entry, keys, pattern)


def _fault_of_text(text: str) -> str:
    if len(text) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    if "\0" in text:
        # PostgreSQL has no place for it.
        return f"has a NUL character: {text!r}"
    return ""


def _fault_of_number(value: float, pattern: str) -> str:
    low, high = RANGES.get(pattern, _COUNT)
    if low <= value <= high or (value == 0 and pattern in ZERO_TOO):
        return ""
    zero = "0, or " if pattern in ZERO_TOO else ""
    return f"must be {zero}a number from {_shown(low)} to {_shown(high)}"


def range_of(pattern: str) -> str:
    """The range of a number, for a table; empty for what is none."""
    if pattern not in RANGES:
        return ""
    low, high = RANGES[pattern]
    return f"{'0, ' if pattern in ZERO_TOO else ''}{_shown(low)} to {_shown(high)}"


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number == 0 or number >= 1 else f"{number:g}"
