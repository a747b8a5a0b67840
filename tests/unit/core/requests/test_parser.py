"""The specification of a request: the same in three formats, and all of its mistakes at once with their lines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scripts.reference.requests import EXAMPLE, STEPS_EXAMPLE

from pilotage.core.errors import InvalidInput, Mistakes
from pilotage.core.requests.json_format import (
    specification_from_text,
    specification_to_text,
    splitting_to_text,
    stored_steps,
)
from pilotage.core.requests.parser import parse_mapping, parse_text
from pilotage.core.requests.plan import plan_steps
from pilotage.core.requests.reading import amount_of_bytes
from pilotage.core.requests.specification import Specification, StepSplitting
from pilotage.core.splitting.parser import parse_splitting

SMALL: dict[str, Any] = {
    "name": "small",
    "input": "/data",
    "program": {"executable": "run.sh"},
    "splitting": {"algorithm": "FileBased", "files_per_job": 2},
}


def test_hints_have_no_links_of_the_reference() -> None:
    hints = [hint for *_, hint in mistakes('name = "n"\n')]
    assert any(hint.startswith("The program: fields of job descriptions, without") for hint in hints), hints
    assert not [hint for hint in hints if "](" in hint]


def parsed(**changes: Any) -> Specification:
    return parse_mapping({name: value for name, value in {**SMALL, **changes}.items() if value is not None})


def mistakes(text: str, kind: str = "toml") -> list[tuple[int | None, str, str]]:
    with pytest.raises(InvalidInput) as refused:
        parse_text(text, kind)
    error = refused.value
    return [
        (one.line, one.message, one.hint) for one in (error.all if isinstance(error, Mistakes) else [error])
    ]


def refusal(**changes: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        parsed(**changes)
    return str(refused.value)


@pytest.mark.parametrize("text", [EXAMPLE, STEPS_EXAMPLE])
def test_the_three_formats_say_the_same(text: str) -> None:
    request, mapping = parse_text(text, "toml")
    assert parse_text(json.dumps(mapping), "json")[0] == request
    assert parse_text(yaml.safe_dump(mapping), "yaml")[0] == request
    assert parse_mapping(mapping) == request
    assert specification_from_text(specification_to_text(request)) == request


def test_the_fields_of_the_example_are_read() -> None:
    request = parse_text(EXAMPLE, "toml")[0]
    [step] = request.steps
    assert (request.priority, request.sites, request.open_for) == (9000, ("cellar", "attic"), 172_800)
    assert (step.name, step.type, step.start_policy, step.input) == (
        *("process", "Processing", "Block"),
        ("/data/2026/raw",),
    )
    assert step.program.description.memory == 2048
    assert dict(step.splitting.parameters) == {"files_per_job": 10}
    assert step.merge is not None
    assert dict(step.merge.parameters) == {"min_size": 2 * 10**9, "max_size": 4 * 10**9}
    assert (step.retry.max_retries, step.retry.fatal_exit_codes) == (5, (66,))


def test_every_mistake_is_told_with_its_line_and_the_nearest_name() -> None:
    text = """\
name = "two words"
priority = 1_000_000
teem = "home"
input = ["bad name"]
sites = []
max_size = 3
[program]
arguments = ["--all"]
sites = ["x"]
memory = "x"
[splitting]
algorithm = "FileBase"
[merge]
max_sise = "4 GB"
min_size = "4 XB"
[output]
file = ["*.json"]
"""
    found = mistakes(text)
    assert [line for line, _, _ in found] == [1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 14, 15, 16, 17]
    hints = {line: hint for line, _, hint in found}
    assert hints[3] == "did you mean team?"
    assert hints[6] == "max_size belongs to [merge]"
    assert hints[9] == "set `sites` of the request"
    assert hints[12] == "did you mean FileBased?"
    assert hints[17] == "did you mean files?"


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_mistakes_of_yaml_and_json_have_lines_too(kind: str) -> None:
    text = json.dumps({**SMALL, "splitting": {"algorithm": "FileBased", "files_per_jo": 2}}, indent=1)
    [(line, message, hint), *_] = mistakes(text, kind)
    assert line is not None
    assert "files_per_jo" in text.splitlines()[line - 1]
    assert "files_per_jo" in message
    assert hint == "did you mean files_per_job?"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input": None}, "neither input nor events"),
        ({"events": 5}, "input and events exclude each other"),
        ({"input": None, "events": 5}, "FileBased cannot split events that are generated"),
        ({"start_policy": "MonteCarlo"}, "MonteCarlo does not go with input"),
        ({"merge": True}, "there is no output to merge"),
        ({"output": {"files": ["/etc/passwd"]}}, "absolute path"),
        ({"output": {"files": ["../x"]}}, "outside of the job's folder"),
        ({"output": {"files": ["x"], "dataset": "/data"}}, "both an input and an output"),
        ({"sites": ["a"], "banned_sites": ["a", "b"]}, "all sites are also in banned_sites"),
        ({"program": {"executable": "x", "parameters": [1]}}, "the splitting makes the jobs"),
        ({"program": "run.sh"}, "program must be a table, not the text 'run.sh'"),
        ({"program": {"executable": "x", "memory": "1 XB"}}, "memory must be"),
        (
            {"merge": {"min_size": "9 GB", "max_size": "1 GB"}, "output": {"files": ["x"]}},
            "larger than max_size",
        ),
        ({"retry": {"max_retries": -1}}, "max_retries must be"),
        ({"retry": {"growth": "cubic"}}, "growth must be one of default"),
        ({"priority": True}, "priority must be"),
        ({"runs": [1, "x"]}, "runs must be"),
        ({"steps": []}, "steps must be a list of tables"),
        ({"name": "n\x00"}, "NUL"),
        ({"input": ["x" * 2000]}, "characters"),
        ({"input": None, "events": 5, "open_for": 5}, "open_for needs an input data set"),
        ({"input": None, "events": 5, "blocks": ["b"]}, "have no blocks or runs"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(**changes)


def test_steps_follow_each_other_by_order_or_by_name() -> None:
    step = {"program": SMALL["program"], "splitting": SMALL["splitting"], "output": {"files": ["o"]}}
    steps = [
        {**step, "name": "a", "input": ["/x", "/y"], "merge": True},
        {**step, "name": "b"},
        {**step, "name": "c", "after": "a", "output": {"files": ["p"], "dataset": "/final"}},
    ]
    request = parse_mapping({"name": "chain", "steps": steps})
    rows = plan_steps(request, 7)
    assert [(row.position, row.name, row.type, row.input, row.after, row.output.dataset) for row in rows] == [
        (0, "a", "Processing", "/x", None, "chain-7/a/unmerged"),
        (1, "a.2", "Processing", "/y", None, "chain-7/a/unmerged"),
        (2, "a.merge", "Merge", "chain-7/a/unmerged", 1, "chain-7/a"),
        (3, "b", "Processing", "chain-7/a", 2, "chain-7/b"),
        (4, "c", "Processing", "chain-7/a", 2, "/final"),
    ]
    assert [row.action for row in rows] == ["", "", "concatenate", "", ""]
    assert stored_steps(specification_to_text(request), 7) == rows
    assert json.loads(splitting_to_text(rows[0].splitting)) == {
        "algorithm": "FileBased",
        "parameters": {"files_per_job": 2},
    }


def test_a_resubmission_has_the_steps_of_the_earlier_request_and_more() -> None:
    step = {"program": SMALL["program"], "splitting": SMALL["splitting"], "output": {"files": ["o"]}}
    steps = [
        {**step, "name": "a", "input": "/x", "merge": {"cleanup": True}},
        {**step, "name": "b", "output": {"files": ["p"], "dataset": "/final"}},
    ]
    request = parse_mapping({"name": "chain", "steps": steps})
    assert [(row.name, row.after) for row in plan_steps(request, 7)] == [
        ("a", None),
        ("a.merge", 0),
        ("b", 1),
        ("a.cleanup", 1),
    ]
    again = replace(request, resubmits=(7,))
    rows = plan_steps(again, 9)
    assert [(row.name, row.start_policy, row.after, row.input, row.output.dataset) for row in rows] == [
        ("a", "Resubmit", None, "/x", "chain-9/a/unmerged"),
        ("a.merge", "Resubmit", None, "chain-7/a/unmerged", "chain-9/a"),
        ("b", "Resubmit", None, "chain-7/a", "/final"),
        ("a.cleanup", "Resubmit", 1, "chain-7/a/unmerged", ""),
        ("a.merge.rest", "Block", 0, "chain-9/a/unmerged", "chain-9/a"),
        ("b.rest", "Block", 4, "chain-9/a", "/final"),
        ("a.cleanup.rest", "Block", 4, "chain-9/a/unmerged", ""),
    ]
    assert [row.position for row in rows] == list(range(7))
    third = plan_steps(replace(request, resubmits=(7, 9)), 12)
    assert [row.name for row in third[7:]] == ["a.merge.rest2", "b.rest2", "a.cleanup.rest2"]
    assert [row.input for row in third[4:7]] == ["chain-9/a/unmerged", "chain-9/a", "chain-9/a/unmerged"]
    assert {row.output.dataset for row in third} == {"chain-12/a/unmerged", "chain-12/a", "/final", ""}
    assert specification_from_text(specification_to_text(again)) == again


def test_logs_are_collected_from_every_step_and_archived_after_the_last() -> None:
    step = {"program": SMALL["program"], "splitting": SMALL["splitting"], "output": {"files": ["o"]}}
    steps = [
        {**step, "name": "a", "input": "/x", "merge": {"cleanup": True}},
        {**step, "name": "b"},
    ]
    collect = {"max_size": "2 MB", "max_files": 7, "places": ["/pool"], "cleanup": True}
    request = parse_mapping({"name": "chain", "steps": steps, "log_collect": collect})
    rows = plan_steps(request, 7)
    assert [(row.name, row.type, row.after, row.logs.dataset) for row in rows] == [
        ("a", "Processing", None, "chain-7/logs/unmerged"),
        ("a.merge", "Merge", 0, "chain-7/logs/unmerged"),
        ("b", "Processing", 1, "chain-7/logs/unmerged"),
        ("a.cleanup", "Cleanup", 1, ""),
        ("logs.collect", "LogCollect", 2, ""),
        ("logs.cleanup", "Cleanup", 4, ""),
    ]
    archive = rows[4]
    assert (archive.input, archive.output.dataset) == ("chain-7/logs/unmerged", "chain-7/logs")
    assert (archive.output.files, archive.output.places) == (("logs.tar",), ("/pool",))
    assert (archive.action, archive.program) == ("archive", None)
    assert archive.splitting == StepSplitting("SizeBased", (("max_files", 7), ("size_per_job", 2_000_000)))
    assert (rows[5].input, rows[5].action) == ("chain-7/logs/unmerged", "remove")
    assert stored_steps(specification_to_text(request), 7) == rows
    again = plan_steps(replace(request, resubmits=(7,)), 9)
    assert [(row.name, row.after, row.input, row.logs.dataset) for row in again if "b" in row.name[:1]] == [
        ("b", None, "chain-7/a", "chain-9/logs/unmerged"),
        ("b.rest", 6, "chain-9/a", "chain-9/logs/unmerged"),
    ]
    assert [
        (row.name, row.after, row.input, row.output.dataset) for row in again if row.type == "LogCollect"
    ] == [
        ("logs.collect", None, "chain-7/logs/unmerged", "chain-7/logs"),
        ("logs.collect.rest", 7, "chain-9/logs/unmerged", "chain-7/logs"),
    ]


@pytest.mark.parametrize(
    "changes",
    [{"output": {"files": ["o"], "places": "a/pool"}}, {"log_collect": {"places": ["/pool", "../pool"]}}],
)
def test_a_place_that_no_site_can_have_is_refused(changes: dict[str, Any]) -> None:
    assert "pool' cannot be a storage place" in refusal(**changes)


def test_the_steps_that_a_request_implies_are_split_within_the_bounds() -> None:
    request = parse_mapping(
        {
            **SMALL,
            "output": {"files": ["o"], "dataset": "/o"},
            "merge": {"cleanup": True},
            "log_collect": True,
        }
    )
    rows = plan_steps(request, 7)
    assert {row.type for row in rows} >= {"Processing", "Merge", "Cleanup", "LogCollect"}
    for row in rows:
        parse_splitting(row.splitting.algorithm, dict(row.splitting.parameters))


def test_a_request_without_log_collect_stores_no_logs() -> None:
    for value in ({}, {"log_collect": False}):
        rows = plan_steps(parse_mapping({**SMALL, **value}), 1)
        assert {row.logs.files for row in rows} == {()}
        assert "LogCollect" not in {row.type for row in rows}
    assert "LogCollect" in {row.type for row in plan_steps(parse_mapping({**SMALL, "log_collect": True}), 1)}


def test_mistakes_of_log_collect_have_line_and_nearest_name() -> None:
    text = """\
name = "n"
input = "/x"
splitting = { algorithm = "FileBased", files_per_job = 2 }
program = { executable = "x" }
output = { files = ["o"], dataset = "/same" }
[log_collect]
max_sise = "1 GB"
max_files = 0
dataset = "/same"
"""
    with pytest.raises(InvalidInput) as refused:
        parse_text(text, "toml")
    words = str(refused.value)
    assert "line 7: unknown field 'max_sise' (did you mean max_size?)" in words
    assert "line 8: max_files" in words
    assert "line 9: /same is also the data set of a step" in words
    with pytest.raises(InvalidInput, match="log_collect must be a table"):
        parse_mapping({**SMALL, "log_collect": 7})
    step = {"program": SMALL["program"], "splitting": SMALL["splitting"], "input": "/x", "name": "logs"}
    with pytest.raises(InvalidInput, match="with log_collect no step has the name logs"):
        parse_mapping({"name": "n", "steps": [step], "log_collect": True})
    assert parse_mapping({"name": "n", "steps": [step]}).steps[0].name == "logs"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"after": "z"}, "there is no step 'z' before this one"),
        ({"after": "b"}, "there is no step 'b' before this one"),
        ({"name": "a"}, "2 steps have the name 'a'"),
        ({"name": "a.merge"}, "cannot be a name"),
        ({"input": "/x", "after": "a"}, "exclude each other"),
    ],
)
def test_steps_that_cannot_follow_are_refused(changes: dict[str, Any], words: str) -> None:
    step = {"program": SMALL["program"], "splitting": SMALL["splitting"], "output": {"files": ["o"]}}
    with pytest.raises(InvalidInput) as refused:
        parse_mapping(
            {"name": "n", "steps": [{**step, "name": "a", "input": "/x"}, {**step, "name": "b", **changes}]}
        )
    assert words in str(refused.value)


def test_a_step_without_output_feeds_no_other() -> None:
    step = {"program": SMALL["program"], "splitting": SMALL["splitting"]}
    with pytest.raises(InvalidInput, match="writes no data set"):
        parse_mapping({"name": "n", "steps": [{**step, "name": "a", "input": "/x"}, {**step, "name": "b"}]})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2 GB", 2 * 10**9),
        ("1.5kB", 1500),
        ("1 GiB", 2**30),
        ("7 B", 7),
        ("3 XB", "3 XB"),
        (5, 5),
        ("5", "5"),
    ],
)
def test_amounts_of_bytes(text: Any, number: Any) -> None:
    assert amount_of_bytes(text) == number


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    [
        *SMALL,
        "steps",
        "merge",
        "log_collect",
        "output",
        "retry",
        "sites",
        "priority",
        "runs",
        "events",
        "after",
        "type",
        "blocks",
    ]
)


@given(st.dictionaries(names, plain, max_size=6))
def test_any_values_are_read_or_refused_in_words(changes: dict[str, Any]) -> None:
    try:
        request = parse_mapping({**SMALL, **changes})
    except InvalidInput:
        return
    assert specification_from_text(specification_to_text(request)) == request


STRICT = """\
name = "strict"
input = "/data"
priority = "8000"
team = 12
campaign = true
trust_input = "yes"
open_for = "3600"
blocks = ["a", 7]
runs = [1, "2"]
sites = [1]
type = 3
start_policy = false
[program]
executable = "run.sh"
processors = "4"
[splitting]
algorithm = "EventAwareLumiBased"
events_per_job = "10"
split_on_run = "no"
max_lumi_time = "1 d"
[output]
files = ["out"]
dataset = 7
[merge]
cleanup = "yes"
across_runs = "true"
max_files = "3"
max_size = "2000"
[retry]
max_retries = "3"
growth = 2
fatal_exit_codes = "66"
[log_collect]
cleanup = "yes"
max_size = true
"""


def test_a_value_of_another_type_is_refused_with_its_line_and_field() -> None:
    """JDL has texts where others have types, so the readers of job descriptions convert them."""
    found = {(line, message.partition(" must be ")[0]) for line, message, _ in mistakes(STRICT)}
    expected = {
        *((number, STRICT.splitlines()[number - 1].partition(" = ")[0]) for number in range(3, 13)),
        (15, "processors"),
        *((number, STRICT.splitlines()[number - 1].partition(" = ")[0]) for number in (18, 19, 20)),
        *((23, "dataset"), (25, "cleanup"), (26, "across_runs"), (27, "max_files")),
        *((28, "max_size"), (30, "max_retries"), (31, "growth"), (32, "fatal_exit_codes")),
        *((34, "cleanup"), (35, "max_size")),
    }
    assert found == expected
    told = {message: hint for _, message, hint in mistakes(STRICT)}
    assert told["trust_input must be true or false, not the text 'yes'"] == "write it without quotes"
    assert told["team must be a text, not the number 12"] == "write it in quotes"


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ({"trust_input": "true"}, "trust_input"),
        ({"program": {"executable": "x", "memory": "2048"}}, "memory"),
        ({"program": {"executable": "x", "cpu_time": "60"}}, "cpu_time"),
        ({"retry": {"cooloff": "60"}}, "cooloff"),
        ({"log_collect": "true"}, "log_collect"),
        ({"merge": "yes", "output": {"files": ["x"]}}, "merge"),
    ],
)
def test_texts_are_no_numbers_and_no_truths(table: dict[str, Any], value: str) -> None:
    assert f"{value} must be" in refusal(**table)


def test_amounts_with_units_are_read() -> None:
    request = parsed(
        open_for="2 d",
        program={"executable": "x", "memory": "2 GB", "cpu_time": "1 h"},
        retry={"cooloff": "10 min"},
        splitting={"algorithm": "FileBased", "files_per_job": 2, "size_per_event": "2 MB"},
    )
    [step] = request.steps
    assert (request.open_for, step.retry.cooloff) == (172_800, 600)
    assert (step.program.description.memory, step.program.description.cpu_time) == (2048, 3600)
    assert dict(step.splitting.parameters)["size_per_event"] == 2000.0, "its unit is kB"
