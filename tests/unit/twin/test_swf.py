"""The reader of the Standard Workload Format."""

from __future__ import annotations

import gzip
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import InvalidInput
from pilotage.twin.workload import TraceJob, TraceJobs
from pilotage.twin.workload.swf import MemoryUnit, SwfTrace, Unusable, read_swf, swf_jobs
from tests.public_traces import public_trace
from tests.unit.twin.swf_text import job, swf_line, swf_text

GOOD = "7 100 5 60 4 -1 -1 8 3600 2048 1 12 3 -1 -1 -1 -1 -1"


def read(text: str, memory: MemoryUnit = MemoryUnit.SWF) -> tuple[list[TraceJob], SwfTrace]:
    trace = SwfTrace()
    return list(swf_jobs(text.encode().splitlines(keepends=True), trace, memory)), trace


def test_a_line_is_a_job() -> None:
    assert read(GOOD)[0] == [
        TraceJob(
            number=7,
            submit=100.0,
            run=60.0,
            processors=8,
            memory=16,
            wall=3600.0,
            owner="user12",
            group="group3",
        )
    ]


def test_unknown_numbers_are_zero_or_have_a_name() -> None:
    (only,), _ = read("7 100 -1 60 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1")
    assert (only.processors, only.memory, only.wall) == (4, 0, 0.0)
    assert (only.owner, only.group) == ("user-unknown", "group-unknown")


@pytest.mark.parametrize(
    ("unit", "memory"), [(MemoryUnit.SWF, 16), (MemoryUnit.BYTES, 1), (MemoryUnit.NONE, 0)]
)
def test_the_unit_of_memory_is_chosen(unit: MemoryUnit, memory: int) -> None:
    (only,), _ = read(GOOD, unit)
    assert only.memory == memory


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3", Unusable.MISSING_FIELDS),
        (GOOD.replace("100", "soon"), Unusable.NOT_NUMBERS),
        (GOOD.replace("100", "nan"), Unusable.NOT_NUMBERS),
        (GOOD.replace("100", "inf"), Unusable.NOT_NUMBERS),
        (GOOD.replace("100", "9" * 12), Unusable.OUT_OF_RANGE),
        (GOOD.replace(" 8 ", " 8000000 "), Unusable.OUT_OF_RANGE),
        (GOOD.replace("100", "-5"), Unusable.NEGATIVE_SUBMIT),
        (GOOD.replace(" 60 ", " -1 "), Unusable.UNKNOWN_RUN),
        (GOOD.replace(" 60 ", " -7 "), Unusable.NEGATIVE_RUN),
        (GOOD.replace(" 60 ", " 0 "), Unusable.ZERO_RUN),
        (GOOD.replace(" 4 ", " 0 ").replace(" 8 ", " -1 "), Unusable.NO_PROCESSORS),
        (GOOD.replace(" 60 ", " -1 ").replace(" 2048 1 ", " 2048 5 "), Unusable.CANCELLED),
        (GOOD.replace(" 2048 1 ", " 2048 3 "), Unusable.PART),
        (GOOD, Unusable.REPEATED),
    ],
)
def test_an_unusable_line_is_counted_by_its_reason(line: str, reason: Unusable) -> None:
    jobs, trace = read(f"{GOOD}\n{line}\n")
    assert len(jobs) == 1
    assert trace.left_out.counts == {reason: 1}
    assert trace.left_out.sentences() == [f"1 line (2): {reason}"]


def test_a_job_that_was_cancelled_while_it_ran_is_used() -> None:
    assert len(read(GOOD.replace(" 2048 1 ", " 2048 5 "))[0]) == 1


def test_reasons_name_their_first_lines() -> None:
    _, trace = read("1 2\n" * 5)
    assert trace.left_out.sentences() == ["5 lines (1, 2, 3, ...): the line has fewer than 18 fields"]


def test_further_columns_and_fractions_are_allowed() -> None:
    (only,), _ = read(GOOD.replace(" 60 ", " 60.7 ") + " {1,2} q_1w 1:ppn=1")
    assert only.run == 60.0


def test_the_header_and_dependent_jobs_are_told() -> None:
    after = GOOD.replace("7 100", "8 100").replace("-1 -1\n", "").rsplit(" ", 2)[0] + " 7 10"
    _, trace = read(f"; Computer: none\n;MaxProcs:  1152 (12 nodes)\n; Note\n{GOOD}\n\n{after}\n")
    assert trace.header == {"Computer": "none", "MaxProcs": "1152 (12 nodes)"}
    assert trace.max_procs == 1152
    assert trace.dependent == 1


def test_times_begin_with_the_first_submission_and_jobs_are_sorted(tmp_path: Path) -> None:
    file = tmp_path / "trace.swf"
    file.write_text(
        swf_text([job(1, submit=1356996200.0), job(2, submit=1356996147.0), job(3, submit=1356996200.0)])
    )
    jobs = read_swf(file).jobs
    assert [(one.number, one.submit) for one in jobs] == [(2, 0.0), (1, 53.0), (3, 53.0)]


def test_a_compressed_file_is_known_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "trace.swf"
    file.write_bytes(gzip.compress(swf_text([job()]).encode()))
    assert len(read_swf(file).jobs) == 1


def damaged(content: bytes) -> bytes:
    return content[: len(content) // 2]


NO_GZIP = b"\x1f\x8bnothing of gzip" * 10
TRACE = swf_text([job(number) for number in range(1, 4000)]).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"; Version: 2.2\n\n", "has no jobs, only comments or empty lines"),
        (b"[groups.home]\nshare = 3\n", "is a usable job; 2 lines (1, 2): the line has fewer than 18 fields"),
        (b"\x00\xff" * 3_000_000, "is a usable job; 1 line (1): the line has more than a million characters"),
        (damaged(gzip.compress(TRACE)), "the compressed data is damaged or cut off after line"),
        (NO_GZIP, "the compressed data is damaged or cut off after line 0"),
    ],
)
def test_a_file_that_is_no_trace_is_one_sentence(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=r".") as error:
        read_swf(file)
    assert message in error.value.message


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "there is no file"), (tmp_path, "Is a directory")):
        with pytest.raises(InvalidInput, match=message):
            read_swf(path)


jobs_of_a_trace = st.lists(
    st.builds(
        TraceJob,
        number=st.integers(1, 10**9),
        submit=st.integers(0, 10**9).map(float),
        run=st.integers(1, 10**7).map(float),
        processors=st.sampled_from([1, 2, 8, 64]),
        memory=st.integers(0, 10**6).map(lambda size: size * 64),
        wall=st.integers(0, 10**7).map(float),
        owner=st.integers(0, 300).map(lambda number: f"user{number}"),
        group=st.integers(0, 30).map(lambda number: f"group{number}"),
    ),
    unique_by=lambda job: job.number,
    max_size=40,
)


@given(jobs_of_a_trace)
def test_written_jobs_are_read_again(jobs: list[TraceJob]) -> None:
    again, trace = read(swf_text(jobs))
    assert again == jobs
    assert list(TraceJobs(jobs)) == sorted(jobs, key=lambda job: job.submit)
    assert not trace.left_out.counts


def test_memory_does_not_grow_with_the_lines_that_are_left_out() -> None:
    lines = (swf_line(job(number)).encode() for number in range(1, 10**9))
    trace = SwfTrace()
    tracemalloc.start()
    try:
        for _ in islice(swf_jobs(lines, trace, MemoryUnit.SWF), 2000):
            pass
        first = tracemalloc.get_traced_memory()[0]
        for _ in islice(swf_jobs(lines, trace, MemoryUnit.SWF), 20_000):
            pass
        assert tracemalloc.get_traced_memory()[0] - first < 100_000
    finally:
        tracemalloc.stop()


def test_a_job_takes_few_bytes() -> None:
    jobs = TraceJobs()
    for number in range(10_000):
        jobs.append(job(number))
    assert jobs.rows.nbytes / len(jobs) == 56


def test_each_public_trace_is_read() -> None:
    lcg = read_swf(public_trace("LCG-2005-1.swf.gz"))
    assert (len(lcg.jobs), lcg.max_procs) == (187_520, 24_515)
    assert lcg.left_out.counts == {Unusable.ZERO_RUN: 521}
    assert (len(lcg.jobs.owners), len(lcg.jobs.groups)) == (216, 28)
    meta = read_swf(public_trace("metacentrum-wagap-2013.swf"), MemoryUnit.BYTES)
    assert len(meta.jobs) == 17_898
    assert meta.left_out.counts == {Unusable.NEGATIVE_RUN: 2}
