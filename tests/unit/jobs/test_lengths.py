"""Every text of a job description has its limit, which an error names together with the field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from pilotage.client.row_upload import find_value_error
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.fields import BY_NAME
from pilotage.core.jobs.in_place import FILE_FIELDS
from pilotage.core.jobs.lengths import LENGTHS, MAX_TOTAL_CHARS, MAX_VALUE_CHARS, length_of
from pilotage.core.jobs.parsers import description_from_text, parse_yaml_mapping

ONE_TEXT = ("text", "program")
LISTS = {
    "arguments": lambda texts: texts,
    "environment": lambda texts: {f"V{place}": text for place, text in enumerate(texts)},
    "lines": lambda texts: texts,
    "paths": lambda texts: [f"{place}{text}" for place, text in enumerate(texts)],
    "names": lambda texts: [f"{place}{text}" for place, text in enumerate(texts)],
    "inputs": lambda texts: [f"d/{place}{text}" for place, text in enumerate(texts)],
}
FORMS = {"folder_mark", "umask", "mail_user"}
"""Texts of a fixed form, which bounds them."""
TEXTS = [
    one
    for one in BY_NAME.values()
    if one.kind in (*ONE_TEXT, *LISTS) and not (one.kind == "names" and one.choices) and one.name not in FORMS
]


def read(field: str, value: Any, **more: Any) -> JobDescription:
    return parse_yaml_mapping({"executable": "true", field: value, **more}).description


def test_every_field_of_text_is_tried_here() -> None:
    tried = {one.name for one in TEXTS}
    of_text = {
        one.name for one in fields(JobDescription) if "str" in str(one.type) or "Input" in str(one.type)
    }
    # Of these only some words are taken.
    chosen = {one.name for one in BY_NAME.values() if one.choices}
    # The names of parents have a form of their own.
    parents = {one.name for one in BY_NAME.values() if one.kind == "parents"}
    # An expression's size is bounded with its tree.
    assert of_text - tried - chosen - parents - FORMS == {"requirements", "host_requirements"}
    assert LENGTHS.keys() <= of_text


@pytest.mark.parametrize("name", [one.name for one in TEXTS])
def test_a_text_that_is_too_long_is_refused_with_field_and_limit(name: str) -> None:
    field, longest = BY_NAME[name], length_of(name).max_chars
    make = LISTS.get(field.kind, lambda texts: texts[0])
    first = "/" if name == "folder" else "x"
    more = {"folder": "/home"} if name in FILE_FIELDS else {}
    read(name, make([first + "x" * (longest - 10)]), **more)  # type: ignore[no-untyped-call]
    for length in (longest, 2_000_000):
        with pytest.raises(InvalidInput, match=f"{name}.*the limit is") as refused:
            read(name, make([first + "x" * length]), **more)  # type: ignore[no-untyped-call]
        assert f"{longest:,}" in str(refused.value) or f"{MAX_TOTAL_CHARS:,}" in str(refused.value)


@pytest.mark.parametrize("name", [one.name for one in TEXTS if one.kind in LISTS])
def test_a_list_with_too_many_entries_is_refused_with_field_and_limit(name: str) -> None:
    most = length_of(name).max_entries
    with pytest.raises(InvalidInput, match=f"{name} has .* entries; the limit is {most:,}"):
        read(name, LISTS[BY_NAME[name].kind](["x"] * (most + 1)))  # type: ignore[no-untyped-call]


def test_the_limits_hold_in_jdl_too() -> None:
    with pytest.raises(InvalidInput, match=r"JobName.* the limit is 1,024"):
        description_from_text(f'Executable = "true"; JobName = "{"n" * 1025}";', "jdl")


def test_all_texts_of_a_job_together_are_bounded() -> None:
    with pytest.raises(InvalidInput, match=f"texts of one job .* the limit is {MAX_TOTAL_CHARS:,}"):
        read("arguments", ["x" * 100_000] * 11)


@pytest.mark.parametrize(
    ("field", "text", "value", "named"),
    [
        ("job_name", "%s", "v" * 1025, "job_name.* 1,025 bytes; the limit is 1,024"),
        ("job_name", "ä%s", "ä" * 512, "job_name.* 1,026 bytes; the limit is 1,024"),
        ("executable", "%s", "v" * 5000, "executable.* the limit is 4,096"),
        ("arguments", ["%s" * 1000], "v" * 60_000, "arguments.* the limit is 131,071"),
        ("arguments", ["%s"] * 100, "v" * 60_000, f"texts of one job .* the limit is {MAX_TOTAL_CHARS:,}"),
        ("environment", {"A": "%s%s%s"}, "v" * 60_000, "environment.* the limit is 131,071"),
        ("job_name", "x", "v" * (MAX_VALUE_CHARS + 1), f"parameters.* the limit is {MAX_VALUE_CHARS:,}"),
    ],
)
def test_the_limits_hold_with_the_parameters_filled_in(field: str, text: Any, value: str, named: str) -> None:
    """Else a short description and one long value would make a payload of gigabytes."""
    with pytest.raises(InvalidInput, match=named):
        read(field, text, parameters=["short", value])
    assert read(field, text, parameters=["short", "value"])


def test_a_name_is_as_long_as_in_slurm_and_fits_into_an_index() -> None:
    assert read("job_name", "%s", parameters=["ä" * 512]).job_name == "%s"
    assert read("job_name", "n" * 1024).job_name == "n" * 1024
    with pytest.raises(InvalidInput, match=r"1,026 bytes; the limit is 1,024"):
        read("job_name", "ä" * 513)


def test_the_client_tells_of_a_long_value_before_it_sends_it() -> None:
    assert "the limit is" in find_value_error("v" * (MAX_VALUE_CHARS + 1))
    assert find_value_error("v" * MAX_VALUE_CHARS) == ""
