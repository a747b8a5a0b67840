"""Elements for tests of splitting, and the checker of masks: every event, lumi and file once."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from hypothesis import assume
from hypothesis import strategies as st

from pilotage.core.setting import keys_of
from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.algorithms import ALGORITHMS
from pilotage.core.splitting.mask import FileRecord, LumiRange, Mask
from pilotage.core.splitting.parser import parse_splitting

Atom = tuple[int, str, int, int]
"""(file, "event", number, 0), (file, "lumi", run, lumi) or (file, "file", 0, 0)."""


def atoms_of_mask(mask: Mask, files: Mapping[int, FileRecord], *, lumis: bool) -> Iterable[Atom]:
    """The parts of files that a job with this mask processes; `lumis`: counted in lumis, else in events."""
    for part in mask.ranges:
        file = files[part.file]
        if part.lumis:
            assert lumis, "an event algorithm named lumis"
            for run, first, last in part.lumis:
                yield from ((file.id, "lumi", run, lumi) for lumi in range(first, last + 1))
        elif part.first == 0 and part.events < 0:
            yield from atoms_of_file(file, lumis=lumis)
        else:
            assert not lumis, "a lumi algorithm named events"
            end = part.first + part.events if part.events >= 0 else file.events
            yield from ((file.id, "event", event, 0) for event in range(part.first, end))


def atoms_of_file(file: FileRecord, *, lumis: bool) -> Iterable[Atom]:
    if lumis and file.lumis:
        return ((file.id, "lumi", run, n) for run, first, last in file.lumis for n in range(first, last + 1))
    if not lumis and file.events:
        return ((file.id, "event", event, 0) for event in range(file.events))
    return ((file.id, "file", 0, 0),)


def assert_each_once(masks: Iterable[Mask], files: Iterable[FileRecord], *, lumis: bool = False) -> None:
    """Fail if a part of a file is in no mask, or in two."""
    by_id = {file.id: file for file in files}
    processed = Counter(atom for mask in masks for atom in atoms_of_mask(mask, by_id, lumis=lumis))
    expected = Counter(atom for file in by_id.values() for atom in atoms_of_file(file, lumis=lumis))
    assert processed == expected


def algorithm(name: str, **parameters: Any) -> Algorithm:
    return parse_splitting(name, parameters)


@st.composite
def lumi_ranges(draw: st.DrawFn) -> tuple[LumiRange, ...]:
    """Disjoint lumis of one file, in any order."""
    lumis: list[LumiRange] = []
    for run in draw(st.lists(st.integers(1, 3), max_size=2, unique=True)):
        begin = 0
        for gap, length in draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=3)):
            lumis.append(LumiRange(run, begin + gap, begin + gap + length - 1))
            begin += gap + length
    return tuple(draw(st.permutations(lumis)))


@st.composite
def file_lists(draw: st.DrawFn) -> list[FileRecord]:
    """Files in any order of arrival; some without events, some without lumis, some with lumis of others."""
    count = draw(st.integers(0, 9))
    files = [
        FileRecord(
            id=number,
            name=f"f{number}",
            size=draw(st.integers(0, 50)),
            events=draw(st.integers(0, 40)),
            lumis=draw(lumi_ranges()),
            parent=draw(st.integers(0, 3)),
        )
        for number in range(1, count + 1)
    ]
    return draw(st.permutations(files))


def parameters_of(kind: type[Algorithm]) -> st.SearchStrategy[dict[str, Any]]:
    """Parameters of the class. Its total, which would leave data out, and keys of other types are not drawn."""
    drawn: dict[str, st.SearchStrategy[Any]] = {}
    for key in keys_of(kind):
        if key.type is bool:
            drawn[key.name] = st.booleans()
        elif key.type is int and key.setting.range and key.name != f"total_{kind.total_unit}":
            low, high = 0 if key.setting.or_zero else int(key.setting.range[0]), key.setting.range[1]
            # Most files, and most jobs of the drawn files, have a few units.
            drawn[key.name] = st.one_of(*(st.integers(low, int(min(most, high))) for most in (low + 7, 60)))
    given = tomllib.loads(kind.example)
    return st.fixed_dictionaries(drawn).map(lambda parameters: {**given, **parameters})


@st.composite
def algorithms(draw: st.DrawFn) -> Algorithm:
    """Any algorithm with any parameters that process all of the data."""
    kind = ALGORITHMS[draw(st.sampled_from(sorted(ALGORITHMS)))]
    parameters = draw(parameters_of(kind))
    assume(not any(msgspec.convert(parameters, kind).faults()))
    return algorithm(kind.algorithm, **parameters)
