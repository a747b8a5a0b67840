"""WMCore's own cases of job splitting, asked of Pilotage.

Answered otherwise on purpose, each with an assertion of Pilotage's answer:

- *events of shared lumis* (JOB-LB-04): the reference spreads 100 events over 3 lumis as 33 + 33 + 33, and does not
  count the second file of a lumi. Here the events of all jobs add up to the events of all files;
- *one location for each element*: the element has one set of sites, so files at two sites are two elements
  (JOB-FB-01, `two_sites`).
"""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.splitting.mask import FileRecord, LumiRange, Mask
from pilotage.core.splitting.parser import parse_splitting
from pilotage.core.splitting.split import split
from pilotage.core.splitting.totals import first_part
from tests.conformance.recorded import wmcore_scenarios

EVENT = {"time_per_event": 12, "size_per_event": 400}
"""The reference's cases: 12 s and 400 kB for one event."""


SCENARIOS = wmcore_scenarios()


def wanted(case: str, *path: str) -> list[dict[str, Any]]:
    """The jobs that the reference makes, of all its groups."""
    value = SCENARIOS[case]["expect"]
    for step in path:
        value = value[step]
    return [job for group in value for job in group]


def runs_and_lumis(mask: Mask, files: list[FileRecord]) -> dict[str, list[list[int]]]:
    """The lumis of a mask by run, as the reference notes them: without the file, adjacent ones joined."""
    lumis_of = {file.id: file.lumis for file in files}
    ranges: dict[str, list[list[int]]] = {}
    for part in mask.ranges:
        for run, first, last in part.lumis or lumis_of[part.file]:
            known = ranges.setdefault(str(run), [])
            if known and known[-1][1] + 1 == first:
                known[-1][1] = last
            elif [first, last] not in known:
                known.append([first, last])
    return ranges


def test_generated_events_have_the_same_events_lumis_and_estimates() -> None:
    given = SCENARIOS["JOB-EB-03"]["given"]
    algorithm = parse_splitting(
        "EventBased",
        {"events_per_job": given["events_per_job"], "events_per_lumi": given["events_per_lumi"], **EVENT},
    )
    fake = given["fake_file"]
    first_lumi = int(fake["lumis"].partition("..")[0])
    masks = list(split([], algorithm, Mask((), fake["first_event"], fake["events"], first_lumi)))
    answer = [
        {
            "FirstEvent": mask.first_event,
            "LastEvent": mask.first_event + mask.events - 1,
            "FirstLumi": mask.first_lumi,
            "LastLumi": mask.first_lumi + mask.lumis - 1,
        }
        for mask in masks
    ]
    jobs = wanted("JOB-EB-03")
    assert answer == [job["mask"] for job in jobs]
    assert [algorithm.estimate(mask.events) for mask in masks] == [
        (job["jobTime"], job["disk"]) for job in jobs
    ]


@pytest.mark.parametrize(
    ("case", "elements", "parameters"),
    [
        ("plain", [[(f"f{n}", 100) for n in range(10)]], {"files_per_job": 4}),
        ("total6", [[(f"f{n}", 100) for n in range(10)]], {"files_per_job": 4, "total_files": 6}),
        (
            "two_sites",
            [[("a0", 10), ("a1", 10), ("a2", 10)], [("b0", 10), ("b1", 10), ("b2", 10)]],
            {"files_per_job": 2},
        ),
    ],
)
def test_files_have_the_same_jobs_and_estimates(
    case: str, elements: list[list[tuple[str, int]]], parameters: dict[str, Any]
) -> None:
    algorithm = parse_splitting("FileBased", {**parameters, **EVENT})
    answer = []
    for element in elements:
        files = [FileRecord(n, name, events=events) for n, (name, events) in enumerate(element, 1)]
        names = {file.id: file.name for file in files}
        for mask in split(files, algorithm, first_part(files, None, algorithm)[0]):
            estimate = algorithm.estimate(mask.events)
            answer.append(([names[part.file] for part in mask.ranges], estimate.seconds, estimate.kilobytes))
    assert answer == [(job["files"], job["jobTime"], job["disk"]) for job in wanted("JOB-FB-01", case)]


@pytest.mark.parametrize("correction", [True, False])
def test_a_lumi_of_two_files_gets_the_same_jobs(correction: bool) -> None:
    given = SCENARIOS["JOB-LB-04"]["given"]
    files = [
        FileRecord(number, name, events=100, lumis=tuple(LumiRange(file["run"], n, n) for n in file["lumis"]))
        for number, (name, file) in enumerate(given["files"].items(), 1)
    ]
    algorithm = parse_splitting(
        "LumiBased",
        {
            "lumis_per_job": given["lumis_per_job"],
            "split_on_run": given["split_on_run"],
            "lumi_correction": correction,
            **EVENT,
        },
    )
    names = {file.id: file.name for file in files}
    masks = list(split(files, algorithm))
    jobs = wanted("JOB-LB-04", "correction" if correction else "without")
    assert [[names[part.file] for part in mask.ranges] for mask in masks] == [job["files"] for job in jobs]
    named = [runs_and_lumis(mask, files) for mask in masks]
    assert named == [job["mask"]["runAndLumis"] for job in jobs]
    assert sum(mask.events for mask in masks) == 200
    for mask, job in zip(masks, jobs, strict=True):
        # The reference leaves out the rest of the division, and the second file of a shared lumi.
        assert algorithm.estimate(mask.events).seconds - job["jobTime"] in (0, 12, 12 * 34, 12 * 35)


def lumi_files() -> list[FileRecord]:
    return [FileRecord(n, f"f{n}", events=100, lumis=(LumiRange(n, 5 * n, 5 * n + 4),)) for n in range(5)]


def test_lumis_up_to_a_number_of_events_are_the_same_jobs() -> None:
    given = SCENARIOS["JOB-EALB-01"]["given"]
    algorithm = parse_splitting(
        "EventAwareLumiBased", {"events_per_job": given["events_per_job"], "split_on_run": False, **EVENT}
    )
    masks = list(split(lumi_files(), algorithm))
    jobs = wanted("JOB-EALB-01", "jobs")
    assert [[f"f{part.file}" for part in mask.ranges] for mask in masks] == [job["files"] for job in jobs]
    assert [runs_and_lumis(mask, lumi_files()) for mask in masks] == [
        job["mask"]["runAndLumis"] for job in jobs
    ]
    assert [algorithm.estimate(mask.events) for mask in masks] == [
        (job["jobTime"], job["disk"]) for job in jobs
    ]


def test_a_limit_of_events_gives_the_same_number_of_jobs() -> None:
    counts = SCENARIOS["JOB-EALB-01"]["expect"]["job_count_by_total_events"]
    for total, count in counts.items():
        algorithm = parse_splitting(
            "EventAwareLumiBased", {"events_per_job": 60, "split_on_run": False, "total_events": int(total)}
        )
        mask, _ = first_part(lumi_files(), None, algorithm)
        assert len(list(split(lumi_files(), algorithm, mask))) == count, total


@pytest.mark.parametrize("settings", sorted(SCENARIOS.get("JOB-MERGE-01", {}).get("expect", ["absent"])))
def test_merges_have_the_same_units(settings: str) -> None:
    least, most, events, closed = settings.strip("()").split(",")
    units = SCENARIOS["JOB-MERGE-01"]["given"]["units"]
    files: list[FileRecord] = []
    parents: dict[int, str] = {}
    for parent, unit in enumerate(units, 1):
        for _ in range(unit["files"]):
            number = len(files) + 1
            parents[number] = unit["parent"]
            files.append(
                FileRecord(
                    id=number,
                    name=f"f{number}",
                    size=unit["bytes"] // unit["files"],
                    events=unit["events"] // unit["files"],
                    lumis=(LumiRange(unit["run"], unit["lumi"], unit["lumi"]),),
                    parent=parent,
                )
            )
    parameters = {"min_size": int(least), "max_size": int(float(most)), "max_events": int(float(events))}
    masks = split(files, parse_splitting("MergeBySize", parameters), closed=closed == "closed")
    answer = [list(dict.fromkeys(parents[part.file] for part in mask.ranges)) for mask in masks]
    assert answer == SCENARIOS["JOB-MERGE-01"]["expect"][settings]
