"""The reader of `-f` listings: jobs, queues and servers of all dialects of PBS, and of `pbsnodes`. Pure.

JSON is never asked for: it leaves out jobs and is no JSON where a variable of a job has odd characters.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache

from pilotage.outside.batch.command_client import UnreadableOutput

_NAME = "[A-Za-z_][A-Za-z0-9_.:-]*"

MOST_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True)
class PbsRecord:
    """One object of a listing. Sub-values have names such as resources_available.mem."""

    name: str
    values: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        return self.values.get(name, "")


def read_records(output: str, head: str, names: Collection[str] = ()) -> list[PbsRecord]:
    """The records that begin with `head`, such as `Job Id: `; empty: a name alone begins one, after an empty line.

    A long value goes on in lines that begin with a tab. A value with line ends of its own goes on in any line: so the
    first of two equal names counts. After each record comes an empty line; without it the listing was cut.
    `names`: the attributes that are needed; none: all. A listing of 50,000 jobs has millions of others.
    """
    if not output.endswith("\n\n") and output.strip():
        raise UnreadableOutput(f"the listing is cut after {output[-100:]!r}")
    output = f"\n{output}" if head else f"\n\n{output}"
    heads = _first_lines(head).finditer(output)
    first = next(heads, None)
    before = output[: len(output) if first is None else first.start()]
    if before.strip():
        raise UnreadableOutput(f"not a line of a listing: {before.strip()[:200]!r}")
    attribute = _attributes("|".join(map(re.escape, names)) or _NAME)
    records: list[PbsRecord] = []
    while first is not None:
        following = next(heads, None)
        end = len(output) if following is None else following.start()
        # A short piece at a time, since other threads wait meanwhile.
        records.append(_read(output[first.end() : end], attribute))
        first = following
        if len(records) > MOST_RECORDS:
            raise UnreadableOutput(f"the listing has more than {MOST_RECORDS} records")
    return records


@cache
def _first_lines(head: str) -> re.Pattern[str]:
    """The begin of the first line of a record. It begins with fixed text, which is found fastest."""
    return re.compile(rf"\n{re.escape(head)}" if head else r"\n\n(?=\S)")


@cache
def _attributes(names: str) -> re.Pattern[str]:
    """An attribute, with the lines in which its value goes on."""
    return re.compile(rf"\n     ?({names}) = (.*(?:\n(?!     ?{_NAME} = ).*)*)")


def _read(record: str, attribute: re.Pattern[str]) -> PbsRecord:
    values: dict[str, str] = {}
    for known, value in attribute.findall(record):
        if known not in values:
            values[known] = _joined(value) if "\n" in value else value
    return PbsRecord(record.partition("\n")[0].strip(), values)


def _joined(value: str) -> str:
    first, *further = value.split("\n")
    return first + "".join(line[1:] if line.startswith("\t") else f"\n{line}" for line in further if line)
