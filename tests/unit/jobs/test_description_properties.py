"""Descriptions at random: stored and read again, written as JDL and read, never crashing."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.core.classads import quote
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.fields import FIELDS, LOG_LEVELS
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.json_format import description_from_json, description_to_json
from pilotage.core.jobs.parametric import bind
from pilotage.core.jobs.parsers import from_json, from_yaml, parse_yaml_mapping

words = st.text("abcXYZ019_-.é", min_size=1, max_size=8).filter(lambda word: word.upper() != "ANY")
paths = words.filter(lambda word: ".." not in word and word.strip("."))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
sets = st.lists(words, max_size=3, unique=True)

plain: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"executable": words},
    optional={
        "arguments": st.lists(texts, max_size=4),
        "environment": st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), texts, max_size=3),
        "setup_lines": st.lists(texts, max_size=2),
        "container": words,
        "input_sandbox": st.lists(paths, max_size=3, unique=True),
        "output_sandbox": st.lists(paths, max_size=3),
        "std_output": paths.map("printed.{}".format),  # no name of an input or program
        "job_name": words,
        "user_priority": st.integers(0, 10),
        "cpu_time": st.integers(0, 10**6),
        "memory": st.integers(0, 10**6),
        "processors": st.integers(1, 128),
        "whole_node": st.booleans(),
        "tags": sets,
        "sites": sets,
        "platforms": sets,
        "pilot_types": st.sampled_from(([], ["private"])),
        "requirements": st.sampled_from(("", "other.X > 1", 'a && (b || c == "d")')),
        "log_level": st.sampled_from(LOG_LEVELS),
        "on_cutoff": st.sampled_from(("continue", "stop")),
        "retries": st.integers(0, 100),
    },
)
JDL_NAMES = {one.name: one.jdl[0] for one in FIELDS}


def jdl_value(name: str, value: Any) -> str:
    if name == "requirements":
        return str(value) or '""'
    if name == "environment":
        value = [f"{key}={one}" for key, one in value.items()]
    if isinstance(value, list):
        return "{" + ", ".join(quote(item) for item in value) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    return quote(value) if isinstance(value, str) else str(value)


@settings(deadline=None)
@given(plain)
def test_all_ways_in_agree(fields: dict[str, Any]) -> None:
    from_mapping = parse_yaml_mapping(fields)
    jdl = ";\n".join(f"{JDL_NAMES[name]} = {jdl_value(name, value)}" for name, value in fields.items())
    assert parse_jdl(jdl) == from_mapping
    assert parse_jdl(f"[{jdl}]") == from_mapping
    assert from_json(json.dumps(fields)) == from_mapping


@settings(deadline=None)
@given(plain)
def test_stored_and_read_again(fields: dict[str, Any]) -> None:
    description = parse_yaml_mapping(fields).description
    stored = description_to_json(description)
    assert description_from_json(json.loads(json.dumps(stored))) == description
    assert all(stored[name] != getattr(JobDescription("x"), name) for name in stored if name != "executable")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*JDL_NAMES, "parameters", "nonsense"]), junk, max_size=4))
def test_any_mapping_is_taken_or_refused(fields: dict[str, Any]) -> None:
    with suppress(InvalidInput):
        parse_yaml_mapping({"executable": "x", **fields})


@settings(deadline=None)
@given(st.text("abE=:;{}[]\"'%(),.-\n \t1&*!|>#", max_size=40))
def test_any_text_is_taken_or_refused(text: str) -> None:
    for read in (parse_jdl, from_yaml, from_json):
        with suppress(InvalidInput):
            read(text)


@given(st.lists(st.text("a%sn()../", max_size=6), min_size=1, max_size=5))
def test_binding_never_leads_out(values: list[str]) -> None:
    try:
        submission = parse_yaml_mapping(
            {"executable": "x", "arguments": ["%s"], "output_sandbox": ["d/%s"], "parameters": values}
        )
    except InvalidInput:
        return
    for index, row in enumerate(submission.parameters):
        bound = bind(submission.description, submission.names, row, index, submission.count)
        assert bound.arguments == (values[index],)
        assert ".." not in bound.output_sandbox[0].split("/")
