"""A manifest with a value of any kind in any field is read, or refused with the field: also beside other mistakes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import yaml

from pilotage.core.datasets.facts import check_data_set_name
from pilotage.core.datasets.manifest import parse_manifest
from pilotage.core.errors import InvalidInput

VALUES = (
    "{a: b}",
    "[[]]",
    "[1, {a: b}]",
    "1e999",
    "-.inf",
    ".nan",
    "1.5",
    "-1",
    "true",
    "null",
    "9" * 40,
    "''",
    "x",
)
FIELDS = (
    *(
        "name: {}",
        "prefix: {}",
        "replicas: {}",
        "replicas: {{here: {}}}",
        "events_per_file: {}",
        "closed: {}",
    ),
    *("blocks: {}", "blocks: [{}]", "blocks: [{{name: {}}}]", "blocks: [{{name: b, files: {}}}]"),
    *("blocks: [{{name: b, replicas: {}}}]", "files: {}", "files: [{}]", "files: [{{name: {}}}]"),
    *(f"files: [{{{{name: f, {name}: {{}}}}}}]" for name in ("size", "events", "checksum", "lumis", "block")),
    *("files: [{{name: f, lumis: [{}]}}]", "files: [{{name: f, lumis: [[1, {}, 2]]}}]", "{}: 1"),
)
MISTAKES = ("", "unknown: 1\n", "closed: 5\n")


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_field_ends_the_parser(field: str) -> None:
    for value in VALUES:
        for mistake in MISTAKES:
            text = f"{field.format(value)}\n{mistake}"
            for kind, written in (("yaml", text), *_as_json(text)):
                with contextlib.suppress(InvalidInput):
                    parse_manifest(written, kind)


def _as_json(text: str) -> list[tuple[str, str]]:
    """The same manifest as JSON and as JSON lines, if it is one."""
    try:
        document: Any = yaml.safe_load(text)
        written = json.dumps(document)
    except (yaml.YAMLError, TypeError, ValueError):
        return []
    return [("json", written.replace("Infinity", "1e999")), ("jsonl", written)]


@pytest.mark.parametrize("name", [{"a": "b"}, 1e999, 5, None, ["a"], True])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(InvalidInput, match="must be a text"):
        check_data_set_name(name)
