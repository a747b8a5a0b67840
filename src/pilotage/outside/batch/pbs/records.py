"""The reader of `-f` listings: jobs, queues and servers of all dialects of PBS, and of `pbsnodes`. Pure.

JSON is never asked for: it leaves out jobs and is no JSON where a variable of a job has odd characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pilotage.outside.batch.command_client import UnreadableOutput

_ATTRIBUTE = re.compile(r" {4,5}([A-Za-z_][A-Za-z0-9_.:-]*) = (.*)")

MOST_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True)
class PbsRecord:
    """One object of a listing. Sub-values have names such as resources_available.mem."""

    name: str
    values: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        return self.values.get(name, "")


def read_records(output: str, head: str) -> list[PbsRecord]:
    """The records that begin with `head`, such as `Job Id: `; empty: a name alone begins one, after an empty line.

    A long value goes on in lines that begin with a tab. A value with line ends of its own goes on in any line: so the
    first of two equal names counts. After each record comes an empty line; without it the listing was cut.
    """
    if output.strip() and not output.endswith("\n\n"):
        raise UnreadableOutput(f"the listing is cut after {output[-100:]!r}")
    records = list(_read(output, head))
    if len(records) > MOST_RECORDS:
        raise UnreadableOutput(f"the listing has more than {MOST_RECORDS} records")
    return records


def _read(output: str, head: str) -> Iterator[PbsRecord]:
    record: PbsRecord | None = None
    last, after_empty = "", True
    for line in output.split("\n"):
        if line.startswith(head) if head else after_empty and line[:1].strip():
            if record is not None:
                yield record
            record, last = PbsRecord(line[len(head) :].strip()), ""
        elif record is None:
            if line.strip():
                raise UnreadableOutput(f"not a line of a listing: {line[:200]!r}")
        elif (match := _ATTRIBUTE.fullmatch(line)) is not None:
            last = "" if match[1] in record.values else match[1]
            record.values.setdefault(match[1], match[2])
        elif last and line:
            record.values[last] += line[1:] if line.startswith("\t") else f"\n{line}"
        after_empty = not line
    if record is not None:
        yield record
