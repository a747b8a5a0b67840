"""The reference page of job descriptions, generated from the table of fields."""

# ruff: noqa: E501 - each paragraph and row of the page is one line.
from __future__ import annotations

import json
from dataclasses import MISSING
from typing import Final

from pilotage.core.jobs.description import MAX_JOBS
from pilotage.core.jobs.fields import FIELDS, UNSUPPORTED, Field
from pilotage.core.jobs.lengths import LENGTHS, MAX_TOTAL_CHARS, MAX_VALUE_CHARS, NAME

_KINDS: Final = {
    "text": "text",
    "program": "text",
    "arguments": "text or list of texts",
    "environment": "mapping, or list of `NAME=value`",
    "lines": "text or list of lines",
    "paths": "list of texts",
    "names": "name or list of names",
    "parents": "jobs `12`, submissions `s:12`, or a list of them",
    "choice": "one of",
    "boolean": "true or false",
    "integer": "whole number",
    "seconds": "seconds, or `30 min`, `2 h`, `1 d`, or a time in Slurm's syntax",
    "megabytes": "MB, or `500 MB`, `2 GB`",
    "expression": "ClassAd expression",
    "inputs": "list of texts or mappings",
}

_TEXT_BEFORE: Final = """# Job descriptions

<!-- Made by scripts/write-docs from core/jobs/fields.py; a test compares. -->

A job is described in JDL, the language of DIRAC and gLite, in YAML, or in JSON with the names of YAML. Unknown attributes, repeated attributes and values of the wrong type are refused with their line.

    Executable = "simulate.sh";                 executable: simulate.sh
    Arguments = "--seed %s --out 'a b'";        arguments: [--seed, "%s", --out, a b]
    InputSandbox = {"simulate.sh"};             input_sandbox: [simulate.sh]
    CPUTime = 3600;                             cpu_time: 1 h
    Parameters = 100;                           parameters: {count: 100, step: 1}
    ParameterStep = 1;

## Fields

*Queue*: jobs that differ in this field wait in different task queues. *Filled*: placeholders of parameters are replaced in this field.

| YAML | JDL | value | default | queue | filled | meaning |
|---|---|---|---|---|---|---|
"""

_LIMITS: Final = (
    "".join(
        f"| `{name}` | {length.max_chars:,} | {length.max_entries:,} |\n" for name, length in LENGTHS.items()
    )
    + f"| all other texts and names | {NAME.max_chars:,} | {NAME.max_entries:,} |\n"
)

_TEXT_MIDDLE: Final = f"""
JDL may be enclosed in brackets `[ … ]`. Its names are case-insensitive, and comments are `//` and `/* */`. `Requirements` and `HostRequirements` are expressions in JDL and texts in YAML. Lists of names may be one text with commas. If `sites` is given, `banned_sites` are removed from it; a job without a remaining site is refused. Scalars in YAML follow YAML 1.2 (`no` and `010` are texts); anchors and tags are refused.

A bare number is a time in **seconds**. A time with colons or days follows Slurm's syntax: `1:30` is 1 minute 30 seconds, `1:30:00` an hour and a half, `1-12` a day and 12 hours (`1-12:30`, `1-12:30:00`). In Slurm a bare number is in minutes: write `90 min`.

## Parameters

Parameters in the description make up to {MAX_JOBS:,} jobs; for more jobs use [a table](../how-to/submit-many-jobs.md#from-a-table).

| JDL | YAML | values |
|---|---|---|
| `Parameters = {{"a", "b"}}` | `parameters: [a, b]` | a, b |
| `Parameters = 3; ParameterStart = 1; ParameterStep = 1; ParameterFactor = 2` | `parameters: {{count: 3, start: 1, step: 1, factor: 2}}` | 1, 3, 7: each value is the previous one times factor plus step |
| `Parameters.Seed = {{1, 2}}; Parameters.Mode = {{"x", "y"}}` | `parameters: {{Seed: [1, 2], Mode: [x, y]}}` | two jobs: (1, x) and (2, y) |

The defaults are 0 for start and step, and 1 for factor.

gLite's `JobType = "Parametric"` is supported: `_PARAM_` means `%s`, and a number in `Parameters` is the end of the values. `Parameters = 10; ParameterStart = 1; ParameterStep = 4` makes 1, 5, 9 (the defaults are 0 for start and 1 for step).

| placeholder | is replaced by |
|---|---|
| `%s` | the value of the unnamed parameter |
| `%(Seed)s` | the value of the parameter `Seed` |
| `%n` | the number of the job in the submission, from 0, padded with zeros to the width of the last number |
| `%j` | the id of the job, also without parameters |

An uploaded input file may differ from job to job: put a placeholder into its `path`; its `name` may be constant or not. A placeholder without a value is passed on unchanged, with a warning at submission. In a field that selects the queue, a placeholder is refused.

## Limits

| field | characters of a text | entries |
|---|---|---|
{_LIMITS}
The texts of one job have at most {MAX_TOTAL_CHARS:,} characters in total, and a parameter value at most {MAX_VALUE_CHARS:,}. The limit of `job_name` counts bytes. The limits apply to each job after its placeholders are replaced.

## Refused attributes

| JDL | reason |
|---|---|
"""


def reference_markdown() -> str:
    """The text of docs/reference/job-description.md."""
    fields = "".join(_row(field) for field in FIELDS)
    refused = "".join(f"| {name} | {reason} |\n" for name, reason in sorted(UNSUPPORTED.items()))
    return _TEXT_BEFORE + fields + _TEXT_MIDDLE + refused


def _row(field: Field) -> str:
    kind = _KINDS[field.kind]
    if field.choices:
        names = field.kind == "names"
        kind = f"{kind}: {', '.join(field.choices)}" if names else f"one of {', '.join(field.choices)}"
    elif field.kind == "integer":
        kind = f"{kind}, {field.low} to {field.high:,}"
    jdl = ", ".join(f"`{name}`" for name in field.jdl)
    marks = " | ".join("yes" if mark else "" for mark in (field.selects_queue, field.has_placeholders))
    return f"| `{field.name}` | {jdl} | {kind} | {_default(field)} | {marks} | {field.meaning} |\n"


def _default(field: Field) -> str:
    value = field.default
    if value is MISSING:
        return "(required)"
    if value in ("", ()):
        return "none"
    return f"{json.dumps(value)} {field.unit}".strip().replace('"', "`")
