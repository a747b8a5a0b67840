"""Parameters of splitting: each mistake has its field, and the nearest right name."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from pilotage.core.errors import InvalidInput, Mistakes
from pilotage.core.setting import keys_of
from pilotage.core.splitting.algorithm import Amount
from pilotage.core.splitting.algorithms import ALGORITHMS
from pilotage.core.splitting.mask import FileRange, FileRecord, LumiRange
from pilotage.core.splitting.parser import parse_splitting, stored_splitting
from pilotage.core.splitting.split import split


@pytest.mark.parametrize(
    ("name", "parameters", "field", "text", "hint"),
    [
        ("Filebased", {}, "algorithm", "unknown splitting algorithm 'Filebased'", "did you mean FileBased?"),
        ("zzz", {}, "algorithm", "unknown splitting algorithm 'zzz'", "known: Event"),
        ("FileBased", {}, "files_per_job", "FileBased needs files_per_job", "the most files"),
        ("FileBased", {"file_per_job": 1}, "file_per_job", "no parameter 'file_per_job'", "files_per_job?"),
        ("FileBased", {"files_per_job": 0}, "files_per_job", "between 1 and 10,000", "the most files"),
        ("FileBased", {"files_per_job": "3"}, "files_per_job", "must be a whole number", "the most files"),
        ("FileBased", {"files_per_job": True}, "files_per_job", "must be a whole number", "the most files"),
        ("FileBased", {"files_per_job": 1.5}, "files_per_job", "must be a whole number", "the most files"),
        ("FileBased", {"files_per_job": -(10**30)}, "files_per_job", "between", "the most files"),
        (
            "LumiBased",
            {"lumis_per_job": 1, "split_on_run": 1},
            "split_on_run",
            "true or false",
            "share a job",
        ),
        ("MergeBySize", {"min_size": 5, "max_size": 4}, "min_size", "larger than max_size", "merged"),
        ("EventBased", {"events_per_job": 5, "events_per_lumi": 6}, "events_per_lumi", "larger", "one job"),
        ("EventBased", {"events_per_job": float("nan")}, "events_per_job", "whole number", "the most events"),
        (
            "EventBased",
            {"events_per_job": 5, "time_per_event": float("nan")},
            "time_per_event",
            "between",
            "",
        ),
    ],
)
def test_a_mistake_is_named(name: str, parameters: dict[str, Any], field: str, text: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_splitting(name, parameters)
    assert caught.value.field == field
    assert text in caught.value.message
    assert hint in caught.value.hint


def test_a_stored_number_beyond_a_bound_becomes_the_bound() -> None:
    """A step that was accepted goes on after an update with lower bounds."""
    stored = {"files_per_job": 100_000}
    assert stored_splitting("FileBased", stored) == parse_splitting("FileBased", {"files_per_job": 10_000})
    zero = {"events_per_job": 5, "time_per_event": 0.0}
    assert stored_splitting("EventBased", zero) == parse_splitting("EventBased", zero)


def test_several_mistakes_are_told_together() -> None:
    with pytest.raises(Mistakes) as caught:
        parse_splitting("FileBased", {"files_per_job": 0, "lumis": 3})
    assert [error.field for error in caught.value.all] == ["files_per_job", "lumis"]


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_each_algorithm_tells_its_parameters(name: str) -> None:
    import tomllib

    kind = ALGORITHMS[name]
    assert kind.meaning
    annotated = {key.name for key in keys_of(kind)}
    assert annotated == {field.name for field in msgspec.structs.fields(kind)}
    assert isinstance(parse_splitting(name, tomllib.loads(kind.example)), kind)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_estimate_of_jobs_is_near_the_number_of_jobs(name: str) -> None:
    import tomllib

    from pilotage.core.splitting.mask import LumiRange

    kind = parse_splitting(name, tomllib.loads(ALGORITHMS[name].example))
    files = [
        FileRecord(n, f"f{n}", 900_000_000, 2000, (LumiRange(1, 10 * n, 10 * n + 9),)) for n in range(1, 201)
    ]
    amount = Amount(200, 200 * 2000, 200 * 900_000_000, 2000)
    made = len(list(split(files, kind)))
    assert made / 1.25 <= kind.estimate_jobs(amount) <= made * 1.25
    assert kind.estimate_jobs(Amount()) == 1


def test_time_and_output_of_a_job_are_estimated() -> None:
    kind = parse_splitting("FileBased", {"files_per_job": 2, "time_per_event": 3, "size_per_event": 0.5})
    (mask,) = split([FileRecord(1, "a", events=10), FileRecord(2, "b", events=30)], kind)
    assert kind.estimate(mask.events) == (120.0, 20.0)


@pytest.mark.parametrize("name", ["EventAwareLumiBased", "EventAwareLumiByWork"])
def test_a_lumi_that_takes_longer_than_two_days_is_refused(name: str) -> None:
    """14,400 events of 12 s are 48 h; a lumi is never divided, so a longer one fits in no job."""
    lumis = (LumiRange(7, 3, 4),)
    long, longer = (FileRecord(9, "f", events=2 * events, lumis=lumis) for events in (14_400, 14_401))
    by_default = parse_splitting(name, {"events_per_job": 1000})
    assert len(list(split([long], by_default))) == 2
    [refused] = split([longer], by_default)
    assert re.search(r"lumi 3 of run 7 has about 14,401 events.* 48\.0 h", refused.refused)
    assert refused.ranges == (FileRange(9),)
    others = [FileRecord(8, "g", events=10, lumis=(LumiRange(7, 1, 2),)), longer]
    assert [(mask.ranges, bool(mask.refused)) for mask in split(others, by_default)] == [
        ((FileRange(9),), True),
        ((FileRange(8),), False),
    ]
    for given in ({"time_per_event": 1.0}, {"max_lumi_time": 0}, {"max_lumi_time": 200_000}):
        assert len(list(split([longer], parse_splitting(name, {"events_per_job": 1000, **given})))) == 2


def test_a_stored_step_reads_the_keys_of_its_algorithm_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intake, agents and roll-up read stored steps again and again, and msgspec takes a millisecond for each table."""
    stored_splitting("EventBased", {"events_per_job": 10})
    read: list[object] = []
    monkeypatch.setattr(msgspec.structs, "fields", read.append)
    assert stored_splitting("EventBased", {"events_per_job": 10}) is not None
    assert not read
