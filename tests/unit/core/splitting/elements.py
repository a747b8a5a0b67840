"""Elements for tests of splitting, and the checker of masks: every event, lumi and file once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from pilotage.core.splitting.algorithm import Algorithm
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


@st.composite
def algorithms(draw: st.DrawFn) -> Algorithm:
    """Any algorithm with any parameters that process all of the data."""
    number, flag = st.integers(1, 30), st.booleans()
    lumi_flags = {"split_on_run": flag, "split_on_file": flag, "lumi_correction": flag}
    per_algorithm: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "EventBased": {"events_per_job": number},
        "FileBased": {"files_per_job": st.integers(1, 5), "split_on_run": flag},
        "SizeBased": {"size_per_job": number, "max_files": st.integers(1, 4)},
        "LumiBased": {"lumis_per_job": st.integers(1, 7), **lumi_flags},
        "EventAwareLumiBased": {"events_per_job": number, **lumi_flags},
        "EventAwareLumiByWork": {"events_per_job": number, **lumi_flags},
        "MergeBySize": {
            "min_size": st.integers(0, 20),
            "max_size": st.integers(20, 60),
            "max_events": st.integers(1, 60),
            "max_files": st.integers(1, 5),
            "across_runs": flag,
        },
    }
    name = draw(st.sampled_from(sorted(per_algorithm)))
    return algorithm(name, **{key: draw(value) for key, value in per_algorithm[name].items()})
