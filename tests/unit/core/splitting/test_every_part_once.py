"""Every event, lumi and file gets one job: whatever the algorithm, the order of arrival and the jobs that exist."""

from __future__ import annotations

import json
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.algorithms.merge_by_size import MergeBySize
from pilotage.core.splitting.mask import FileRange, FileRecord, LumiRange, Mask
from pilotage.core.splitting.split import split
from tests.unit.core.splitting.elements import (
    algorithm,
    algorithms,
    assert_each_once,
    atoms_of_mask,
    file_lists,
)


@given(algorithms(), file_lists())
def test_every_part_of_an_element_gets_one_job(kind: Algorithm, files: list[FileRecord]) -> None:
    masks = list(split(files, kind))
    assert_each_once(masks, files, lumis=kind.needs_lumis)
    assert all(mask.ranges for mask in masks)
    assert masks == list(split(files, kind)), "the same input gave other masks"


@given(algorithms(), file_lists(), st.data())
def test_after_a_partial_post_the_next_agent_makes_exactly_the_rest(
    kind: Algorithm, files: list[FileRecord], data: st.DataObject
) -> None:
    first = list(split(files, kind))
    posted = data.draw(st.lists(st.sampled_from(first), unique_by=id)) if first else []
    arrival = data.draw(st.permutations(files))
    rest = list(split(arrival, kind, existing=posted))
    assert_each_once([*posted, *rest], files, lumis=kind.needs_lumis)
    assert list(split(arrival, kind, existing=[*posted, *rest])) == []


@given(algorithms(), file_lists(), st.data())
def test_the_failed_jobs_of_an_element_are_split_again_and_nothing_else(
    kind: Algorithm, files: list[FileRecord], data: st.DataObject
) -> None:
    """A resubmission: the element's mask has the ranges of the failed jobs."""
    first = list(split(files, kind))
    failed = data.draw(st.lists(st.sampled_from(first), min_size=1, unique_by=id)) if first else []
    if not failed:
        return
    wanted = Mask(tuple(part for mask in failed for part in mask.ranges), events=0)
    again = list(split(files, kind, wanted))
    by_id, lumis = {file.id: file for file in files}, kind.needs_lumis
    expected = sorted(atom for mask in failed for atom in atoms_of_mask(mask, by_id, lumis=lumis))
    assert sorted(atom for mask in again for atom in atoms_of_mask(mask, by_id, lumis=lumis)) == expected
    assert sum(mask.events for mask in again) == sum(mask.events for mask in failed)


@given(algorithms(), file_lists())
def test_the_events_of_the_jobs_are_the_events_of_the_files(kind: Algorithm, files: list[FileRecord]) -> None:
    assert sum(mask.events for mask in split(files, kind)) == sum(file.events for file in files)


@given(algorithms(), file_lists())
def test_masks_survive_their_json_form(kind: Algorithm, files: list[FileRecord]) -> None:
    for mask in split(files, kind):
        again = Mask.from_json(json.loads(mask.text))
        assert again == mask
        assert again.digest == mask.digest


@given(file_lists())
def test_a_merge_does_not_depend_on_the_order_of_arrival(files: list[FileRecord]) -> None:
    kind = algorithm("MergeBySize", min_size=10, max_size=60)
    first = [mask.digest for mask in split(files, kind)]
    assert [mask.digest for mask in split(sorted(files), kind)] == first


@given(algorithms(), file_lists())
def test_open_data_leaves_files_to_a_later_element_and_none_is_lost(
    kind: Algorithm, files: list[FileRecord]
) -> None:
    early = list(split(files, kind, closed=False))
    assert early == list(split(files, kind)) or isinstance(kind, MergeBySize)
    late = list(split(files, kind, existing=early))
    assert_each_once([*early, *late], files, lumis=kind.needs_lumis)


@given(
    st.integers(0, 1000),
    st.integers(1, 500),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(0, 50),
    st.data(),
)
def test_generated_events_and_lumis_are_numbered_once(
    first: int, events: int, per_job: int, per_lumi: int, first_lumi: int, data: st.DataObject
) -> None:
    kind = algorithm("EventBased", events_per_job=per_job, events_per_lumi=min(per_lumi, per_job))
    element = Mask((), first, events, first_lumi)
    masks = list(split([], kind, element))
    posted = data.draw(st.lists(st.sampled_from(masks), unique_by=lambda mask: mask.first_event))
    rest = list(split([], kind, element, existing=posted))
    assert sorted([*posted, *rest], key=lambda mask: mask.first_event) == masks
    numbered = [
        number for mask in masks for number in range(mask.first_event, mask.first_event + mask.events)
    ]
    assert numbered == list(range(first, first + events))
    lumis = [lumi for mask in masks for lumi in range(mask.first_lumi, mask.first_lumi + mask.lumis)]
    assert lumis == list(range(first_lumi, first_lumi + len(lumis)))


@given(st.integers(1, 500), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.integers(0, 60))
def test_jobs_of_a_generated_range_that_is_split_anew_keep_to_its_lumis(
    events: int, per_job: int, per_lumi: int, new_per_job: int, new_per_lumi: int
) -> None:
    """The next lumis belong to other jobs of the first request."""
    first = algorithm("EventBased", events_per_job=per_job, events_per_lumi=min(per_lumi, per_job))
    new = algorithm("EventBased", events_per_job=new_per_job, events_per_lumi=min(new_per_lumi, new_per_job))
    for failed in split([], first, Mask((), 1, events, 1)):
        assert list(split([], first, failed)) == [failed]
        again = list(split([], new, failed))
        numbered = [n for mask in again for n in range(mask.first_event, mask.first_event + mask.events)]
        assert numbered == list(range(failed.first_event, failed.first_event + failed.events))
        for mask in again:
            assert mask.lumis >= 1
            assert mask.first_lumi >= failed.first_lumi
            assert mask.first_lumi + mask.lumis <= failed.first_lumi + failed.lumis


def test_a_mask_of_generated_events_with_another_size_of_job_leaves_exactly_the_other_events() -> None:
    element = Mask((), 100, 50)
    posted = list(split([], algorithm("EventBased", events_per_job=7), element))[2:4]
    rest = list(split([], algorithm("EventBased", events_per_job=10), element, existing=posted))
    numbers = [
        n for mask in [*posted, *rest] for n in range(mask.first_event, mask.first_event + mask.events)
    ]
    assert sorted(numbers) == list(range(100, 150))


def test_a_lumi_of_three_files_gets_one_job_in_every_order() -> None:
    lumi = (LumiRange(1, 5, 5),)
    files = [FileRecord(number, f"f{number}", events=10, lumis=lumi) for number in (1, 2, 3)]
    for arrival in permutations(files):
        (mask,) = split(arrival, algorithm("LumiBased", lumis_per_job=1))
        assert sorted(part.file for part in mask.ranges) == [1, 2, 3]
        assert mask.events == 30


def test_lumis_that_one_file_names_twice_are_processed_once() -> None:
    file = FileRecord(1, "f", events=10, lumis=(LumiRange(1, 1, 5), LumiRange(1, 4, 9)))
    masks = list(split([file], algorithm("LumiBased", lumis_per_job=4)))
    named = [n for mask in masks for part in mask.ranges for _, a, b in part.lumis for n in range(a, b + 1)]
    assert named == list(range(1, 10))


def test_events_after_the_known_end_belong_to_the_last_mask_of_an_open_range() -> None:
    """A posted range without an end leaves nothing behind it."""
    file = FileRecord(1, "f", events=100)
    posted = [Mask((FileRange(1, 40, -1),), events=60)]
    (mask,) = split([file], algorithm("EventBased", events_per_job=50), existing=posted)
    assert mask.ranges == (FileRange(1, 0, 40),)


@given(file_lists(), st.integers(1, 60), st.booleans(), st.booleans())
def test_a_job_exceeds_its_events_or_mixes_files_only_for_one_lumi_of_several_files(
    files: list[FileRecord], events: int, on_run: bool, on_file: bool
) -> None:
    """The rules with `lumi_correction`: the events of a shared lumi count in all of its files."""
    parameters = {"events_per_job": events, "split_on_run": on_run, "split_on_file": on_file}
    kind = algorithm("EventAwareLumiBased", **parameters, max_lumi_time=0)
    by_id = {file.id: file for file in files}
    for mask in split(files, kind):
        lumis = {atom[2:] for atom in atoms_of_mask(mask, by_id, lumis=True) if atom[1] == "lumi"}
        unnumbered = sum(not by_id[part.file].lumis for part in mask.ranges)
        # The events of a file are spread over its lumis, so each lumi may count for one event more or less.
        assert mask.events <= events + len(lumis) or len(lumis) + unnumbered <= 1
        assert not on_file or len({part.file for part in mask.ranges}) == 1 or len(lumis) == 1
        assert not on_run or len({run for run, _ in lumis}) <= 1 or unnumbered


def test_a_shared_lumi_joins_a_job_only_with_all_of_its_events() -> None:
    """Both files have lumi 2. 30 events for 50, and then not 1,000 more."""
    files = [
        FileRecord(1, "a", events=60, lumis=(LumiRange(1, 1, 2),)),
        FileRecord(2, "b", events=1000, lumis=(LumiRange(1, 2, 2),)),
    ]
    masks = list(split(files, algorithm("EventAwareLumiBased", events_per_job=50)))
    assert [mask.events for mask in masks] == [30, 1030]
    assert [[part.file for part in mask.ranges] for mask in masks] == [[1], [1, 2]]
    together = algorithm("LumiBased", lumis_per_job=10, split_on_file=True)
    assert [[part.file for part in mask.ranges] for mask in split(files, together)] == [[1], [1, 2]]


def test_a_shared_lumi_is_refused_by_its_time_in_all_files() -> None:
    lumi = (LumiRange(1, 5, 5),)
    files = [FileRecord(number, "f", events=10, lumis=lumi) for number in (1, 2, 3)]
    other = FileRecord(4, "g", events=10, lumis=(LumiRange(1, 6, 6),))
    times = {"time_per_event": 10.0, "max_lumi_time": 250.0}
    kind = algorithm("EventAwareLumiBased", events_per_job=50, **times)
    refused, made = split([*files, other], kind)
    assert "about 30 events" in refused.refused
    assert [part.file for part in refused.ranges] == [1, 2, 3]
    assert (made.refused, [part.file for part in made.ranges]) == ("", [4])
