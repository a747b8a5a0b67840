"""Names of standard output and error that no job can mean are refused when it is submitted."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import (
    COPY,
    SHARED,
    InputFile,
    JobDescription,
    Submission,
    validate_description,
)
from pilotage.core.jobs.parametric import validate_parameters

INPUTS = (
    InputFile("in.txt", COPY, "in.txt"),
    InputFile("data/a", COPY, "a"),
    InputFile("big", SHARED, "/shared/big"),
)


def described(field: str, name: str, executable: str = "run.sh") -> JobDescription:
    return JobDescription(executable=executable, input_sandbox=INPUTS, **{field: name})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["std_output", "std_error"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".", "a directory"),
        ("./", "not a file name"),
        ("a/..", "outside of the job's folder"),
        ("..", "outside of the job's folder"),
        ("/abs", "absolute"),
        ("a/", "not a file name"),
        ("./a", "not a normalized path"),
        ("a//b", "not a normalized path"),
        ("run.sh", "name of the executable"),
        ("in.txt", "is also an input"),
        ("data", "a directory of input files"),
        ("big/out", "inside the shared input directory 'big'"),
    ],
)
def test_names_that_are_refused_with_the_field(field: str, name: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        validate_description(described(field, name))
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["a", "a/b", "data/out", "in.txt.out", "run", ".hidden", "a b"])
def test_names_that_are_taken(name: str) -> None:
    validate_description(described("std_output", name))


def test_both_streams_may_have_one_file_but_none_is_the_others_folder() -> None:
    validate_description(JobDescription(executable="x", std_output="all", std_error="all"))
    with pytest.raises(InvalidInput, match="'a' is also the directory of 'a/b'"):
        validate_description(JobDescription(executable="x", std_output="a", std_error="a/b"))


@pytest.mark.parametrize("value", ["in.txt", "./x", ".", "run.sh", "err/"])
def test_values_of_parameters_are_checked_too(value: str) -> None:
    description = described("std_output", "%s")
    validate_parameters(Submission(description, ("",), (("good",), ("better",))))
    with pytest.raises(InvalidInput):
        validate_parameters(Submission(description, ("",), (("good",), (value,))))
