"""Folders of outputs by name and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilotage.cli.output_folders import folders_of, has_placeholders
from pilotage.core.errors import InvalidInput
from pilotage.wire.jobs import JobSummary
from tests.unit.client.fake_server import job


def summary(number: int, **more: Any) -> JobSummary:
    values = job(number, **more)
    del values["a_later_field"]
    return JobSummary(**values)


JOBS = [
    summary(1, name="a", parameters={"": 7, "x": 0.5}),
    summary(2, name="b/c", parameters={"": True, "x": "é"}),
]


@pytest.mark.parametrize(
    ("pattern", "folders"),
    [
        ("out/{name}", ["out/a", "out/b_c"]),
        ("{id}", ["1", "2"]),
        ("r-{submission}-{x}-{param}", ["r-1-0.5-7", "r-1-é-true"]),
        ("{{x}}/{name}", ["{x}/a", "{x}/b_c"]),
    ],
)
def test_placeholders(pattern: str, folders: list[str]) -> None:
    assert has_placeholders(pattern)
    assert folders_of(pattern, JOBS) == dict(zip((1, 2), map(Path, folders), strict=True))


def test_a_plain_folder_has_none() -> None:
    assert not has_placeholders("out")
    assert not has_placeholders("{{out}}")


@pytest.mark.parametrize("pattern", ["{", "}", "out/{name"])
def test_open_braces(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="--dir"):
        has_placeholders(pattern)


@pytest.mark.parametrize("pattern", ["{y}", "{}", "{0}", "{name!r}", "{name:5}", "{name.real}", "{x[0]}"])
def test_unknown_placeholders(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="job 1 has no value") as refused:
        folders_of(pattern, JOBS)
    assert refused.value.hint == "known: {id}, {submission}, {name}, {param}, {x}"


def test_two_jobs_share_no_folder() -> None:
    with pytest.raises(InvalidInput, match="jobs 1 and 2 would both go to out/1"):
        folders_of("out/{submission}", JOBS)


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_leads_nowhere_else(value: str) -> None:
    with pytest.raises(InvalidInput, match="no name of a folder"):
        folders_of("out/{name}", [summary(1, name=value)])
