"""Inputs that are outputs of other jobs, as descriptions and documents write them."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.dependencies import Dependency, Parent, RunAfter
from pilotage.core.jobs.description import OF_JOB, InputFile
from pilotage.core.jobs.graphs import (
    AcceptedName,
    check_sources,
    inputs_with_ids,
    read_graph,
    with_ids,
)
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.parsers import parse_yaml_mapping

IN = InputFile("in.json", OF_JOB, "12/result.json")


def described(*inputs: Any, **fields: Any) -> Any:
    return parse_yaml_mapping({"executable": "true", "input_sandbox": list(inputs), **fields}).description


def test_every_spelling_is_one_input() -> None:
    assert described("job:12/result.json=in.json").input_sandbox == (IN,)
    mapping = {"path": "12/result.json", "mode": "job", "name": "in.json"}
    assert described(mapping).input_sandbox == (IN,)
    jdl = 'Executable = "true"; InputSandbox = {"job:12/result.json=in.json"};'
    assert parse_jdl(jdl).description.input_sandbox == (IN,)
    assert described("job:12/deep/a b.txt").input_sandbox == (
        InputFile("a b.txt", OF_JOB, "12/deep/a b.txt"),
    )


def test_the_job_must_be_done_unless_a_condition_names_it() -> None:
    on_success = Dependency(RunAfter.SUCCEEDED, Parent(12, 0))
    assert described("job:12/a", "job:12/b").dependencies == [on_success]
    assert described("job:12/a", after_ok="12").dependencies == [on_success]
    after = Dependency(RunAfter.ENDED, Parent(12, 0))
    assert described("job:12/a", after="12").dependencies == [after]
    assert described("job:12/a").is_dependent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job:12/../secret", "outside of the job's folder"),
        ("job:12//etc/passwd", "absolute path"),
        ("job:12/~root", "absolute path"),
        ("job:12", "not an output of a job"),
        ("job:12/", "not an output of a job"),
        ("job:", "not the name of a file|not an output"),
        ("job:12/out-%s.json", "not an output of a job"),
        ("job:12/a=../b", "outside of the job's folder"),
        ("job:12/a=/b", "absolute path"),
        ("job:12/a\nb", "control characters"),
    ],
)
def test_other_places_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        described(text)


@pytest.mark.parametrize("parent", ["prepare", "0", "-1", "s:12", "9" * 30, "١٢"])
def test_only_ids_are_known_outside_of_a_document(parent: str) -> None:
    with pytest.raises(InvalidInput, match="not the id of a job"):
        _ = described(f"job:{parent}/a").dependencies


def test_an_output_of_each_counterpart_is_refused() -> None:
    with pytest.raises(InvalidInput, match="after_each cannot be combined"):
        described("job:12/a", after_each="s:3")


def graph(**jobs: dict[str, Any]) -> Any:
    return read_graph({"jobs": {name: {"executable": "true", **job} for name, job in jobs.items()}})


def test_names_of_a_document_become_ids() -> None:
    takes = {"input_sandbox": ["job:prepare/out=in", "job:7/other"], "after": "prepare"}
    prepare, merge = graph(merge=takes, prepare={})
    assert (prepare.name, merge.sources) == ("prepare", ("prepare", "7"))
    known = {"prepare": AcceptedName(3, 40)}
    assert with_ids(merge, known) == {"after": ("40",)}
    inputs = parse_yaml_mapping(merge.mapping).description.input_sandbox
    assert [file.source for file in inputs_with_ids(inputs, known)] == ["40/out", "7/other"]


def test_a_cycle_of_outputs_is_refused_with_its_path() -> None:
    with pytest.raises(InvalidInput, match="wait for each other: a after b after a"):
        graph(a={"input_sandbox": "job:b/x"}, b={"input_sandbox": "job:a/x"})
    with pytest.raises(InvalidInput, match="job a depends on 'c'"):
        graph(a={"input_sandbox": "job:c/x"})


def test_outputs_are_taken_of_single_jobs() -> None:
    jobs = graph(many={"parameters": 3}, one={"input_sandbox": "job:many/x"})
    with pytest.raises(InvalidInput, match="job one takes an output of many, which makes 3 jobs"):
        check_sources(jobs, {"many": 3, "one": 1})
