"""The report that a program may write about its outputs: events and lumis of each file, and a message.

    {"outputs": {"hits.root": {"events": 100, "lumis": [[1, 5, 9]]}}, "message": "2 bad channels"}

The file is a payload's: nothing in it is believed without a check.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List

from pilotage.wire.data import MAX_LUMI_RANGES, DataOrder
from pilotage.wire.limits import MAX_FILE_EVENTS, MAX_LUMI

from .safe_open import open_file, open_root

MAX_REPORT = 16_000_000
"""Bytes of a report."""
MAX_MESSAGE = 2000


class BadReport(Exception):
    """The report, or a record that follows from the input, is not valid; the message tells why."""


@dataclass
class OutputFacts:
    """The events and lumis of one output file."""

    events: int = 0
    lumis: List[List[int]] = field(default_factory=list)


@dataclass
class DataReport:
    """All that a program reported."""

    outputs: Dict[str, OutputFacts] = field(default_factory=dict)
    message: str = ""

    def facts_of(self, name: str, order: DataOrder) -> OutputFacts:
        """The facts of an output. Without a report it has all events and lumis of the job.

        Raises BadReport for more events than the job's order has, or for lumis that are not in the order. Events or
        lumis of the input that the catalogue does not know are not compared.
        """
        whole = facts_of_order(order)
        facts = self.outputs.get(name)
        if facts is None:
            return whole
        if all(file.events for file in order.files) and facts.events > whole.events > 0:
            raise BadReport(f"outputs: {name}: {facts.events:,} events; the job was given {whole.events:,}")
        if whole.lumis and all(file.lumis for file in order.files):
            _check_lumis(name, facts.lumis, whole.lumis)
        return facts


def _check_lumis(name: str, lumis: List[List[int]], given: List[List[int]]) -> None:
    """`given`: sorted ranges without overlap."""
    firsts = [(run, first) for run, first, _ in given]
    for run, first, last in lumis:
        place = bisect_right(firsts, (run, first)) - 1
        if place < 0 or given[place][0] != run or last > given[place][2]:
            raise BadReport(
                f"outputs: {name}: lumis {first} to {last} of run {run} were not given to the job"
            )


def facts_of_order(order: DataOrder) -> OutputFacts:
    """Events and lumis of a job that keeps every event."""
    lumis = [span for file in order.files for span in file.lumis]
    if not order.files and order.lumis:
        lumis = [[1, order.first_lumi, order.first_lumi + order.lumis - 1]]
    return OutputFacts(order.events, joined_lumis(lumis))


def joined_lumis(spans: Iterable[List[int]]) -> List[List[int]]:
    """The ranges, sorted and without overlap. Raises BadReport if they are too many for one file."""
    joined: List[List[int]] = []
    for run, first, last in sorted(spans):
        if joined and joined[-1][0] == run and first <= joined[-1][2] + 1:
            joined[-1][2] = max(joined[-1][2], last)
        else:
            joined.append([run, first, last])
    if len(joined) > MAX_LUMI_RANGES:
        raise BadReport(f"an output file has more than {MAX_LUMI_RANGES:,} ranges of lumis")
    return joined


def read_report(folder: str, name: str) -> DataReport:
    """The report `name` in `folder`; an empty one if there is none. Raises BadReport."""
    try:
        root = open_root(folder)
        try:
            number = open_file(root, name)
        finally:
            os.close(root)
        with os.fdopen(number, "rb") as file:
            data = file.read(MAX_REPORT + 1)
    except FileNotFoundError:
        return DataReport()
    except OSError as error:
        raise BadReport(f"cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_REPORT:
        raise BadReport(f"it has more than {MAX_REPORT:,} bytes")
    return parse_text(data)


def parse_text(data: "bytes | str") -> DataReport:
    """The report in a file. Raises BadReport."""
    try:
        return parse_report(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise BadReport(str(error) or "its values are nested too deeply") from None


def parse_report(document: Any) -> DataReport:
    """Raises ValueError if the document is not a report."""
    if not isinstance(document, dict):
        raise ValueError("an object was expected")
    message, outputs = document.get("message", ""), document.get("outputs", {})
    if not isinstance(message, str):
        raise ValueError("message: a text was expected")
    if not isinstance(outputs, dict):
        raise ValueError("outputs: an object with the names of files was expected")
    return DataReport(
        {os.path.normpath(name): _facts(name, value) for name, value in outputs.items()},
        message[:MAX_MESSAGE],
    )


def _facts(name: str, value: Any) -> OutputFacts:
    if not isinstance(value, dict):
        raise ValueError(f"outputs: {name}: an object was expected")
    lumis = value.get("lumis", [])
    if not isinstance(lumis, list) or len(lumis) > MAX_LUMI_RANGES:
        raise ValueError(f"outputs: {name}: lumis: a list of at most {MAX_LUMI_RANGES:,} ranges was expected")
    return OutputFacts(
        _number(value.get("events", 0), f"outputs: {name}: events", MAX_FILE_EVENTS),
        [_range(name, span) for span in lumis],
    )


def _range(name: str, span: Any) -> List[int]:
    where = f"outputs: {name}: lumis: [run, first, last]"
    if not isinstance(span, list) or len(span) != 3:
        raise ValueError(f"{where} was expected")
    run, first, last = (_number(value, where, MAX_LUMI) for value in span)
    if last < first:
        raise ValueError(f"{where}: the last is before the first")
    return [run, first, last]


def _number(value: Any, where: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{where}: a whole number from 0 to {most} was expected")
    return value
