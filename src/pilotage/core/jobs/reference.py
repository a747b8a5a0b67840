"""The reference page of job descriptions, made from the table of fields."""

# ruff: noqa: E501 - the lines of the page are as long as its paragraphs and rows are.
from __future__ import annotations

import json
from dataclasses import MISSING
from typing import Final

from pilotage.core.jobs.description import MAX_JOBS
from pilotage.core.jobs.fields import FIELDS, UNSUPPORTED, Field
from pilotage.core.jobs.lengths import LENGTHS, MAX_TOTAL_CHARS, MAX_VALUE_CHARS, NAME

_KINDS: Final = {
    "text": "text",
    "arguments": "text or list of texts",
    "environment": "mapping, or list of `NAME=value`",
    "lines": "text or list of lines",
    "paths": "list of texts",
    "names": "name or list of names",
    "choice": "one of",
    "boolean": "true or false",
    "integer": "whole number",
    "seconds": "seconds, or `30 min`, `2 h`, `1 d`, or as Slurm writes it",
    "megabytes": "MB, or `500 MB`, `2 GB`",
    "expression": "ClassAd expression",
    "inputs": "list of texts or mappings",
}

_TEXT_BEFORE: Final = """# Job descriptions

<!-- Generated from src/pilotage/core/jobs/fields.py; a test compares. -->

A job is described in JDL, as DIRAC and gLite users write it, in YAML, or in JSON with the names of YAML. An unknown attribute, one given twice and a value of the wrong type are refused, with the line.

    Executable = "simulate.sh";                 executable: simulate.sh
    Arguments = "--seed %s --out 'a b'";        arguments: [--seed, "%s", --out, a b]
    InputSandbox = {"simulate.sh"};             input_sandbox: [simulate.sh]
    CPUTime = 3600;                             cpu_time: 1 h
    Parameters = 100;                           parameters: {count: 100, step: 1}
    ParameterStep = 1;

## Fields

*Queue*: jobs that differ in it wait in different task queues. *Filled*: placeholders of parameters are replaced in it.

| YAML | JDL | value | default | queue | filled | meaning |
|---|---|---|---|---|---|---|
"""

_LIMITS: Final = (
    "".join(f"| `{name}` | {one.max_chars:,} | {one.max_entries:,} |\n" for name, one in LENGTHS.items())
    + f"| all other texts and names | {NAME.max_chars:,} | {NAME.max_entries:,} |\n"
)

_TEXT_MIDDLE: Final = f"""
JDL may stand in brackets `[ … ]` or without; names are compared without case; comments are `//` and `/* */`. `Requirements` and `HostRequirements` are written as they are in JDL and as a text in YAML. Lists of names may be one text with commas. If `sites` is given, `banned_sites` is taken out of it; nothing left is refused. In YAML scalars are read as YAML 1.2 has it (`no` and `010` are texts); anchors and tags are refused.

A time that is a bare number is in **seconds**. With colons or days it is read as Slurm reads it: `1:30` is 1 minute 30 seconds, `1:30:00` an hour and a half, `1-12` a day and 12 hours (`1-12:30`, `1-12:30:00`). A bare number of Slurm is in minutes: write `90 min`.

## Parameters

Written in the description, parameters make up to {MAX_JOBS:,} jobs; any number comes from [a table](../how-to/submit-many-jobs.md#from-a-table).

| JDL | YAML | values |
|---|---|---|
| `Parameters = {{"a", "b"}}` | `parameters: [a, b]` | those |
| `Parameters = 3; ParameterStart = 1; ParameterStep = 1; ParameterFactor = 2` | `parameters: {{count: 3, start: 1, step: 1, factor: 2}}` | 1, 3, 7: each is the last times factor plus step |
| `Parameters.Seed = {{1, 2}}; Parameters.Mode = {{"x", "y"}}` | `parameters: {{Seed: [1, 2], Mode: [x, y]}}` | two jobs: (1, x) and (2, y) |

Start and step are 0 and factor is 1 unless given.

gLite's `JobType = "Parametric"` is understood: `_PARAM_` stands for `%s`, and a number in `Parameters` is where the values end, as in gLite: `Parameters = 10; ParameterStart = 1; ParameterStep = 4` makes 1, 5, 9 (start is 0 and step is 1 unless given).

| placeholder | is replaced by |
|---|---|
| `%s` | the nameless value |
| `%(Seed)s` | the value of that name |
| `%n` | the number of the job in the submission, from 0, padded with zeros to the width of the last |
| `%j` | the id of the job, with and without parameters |

An input file that is sent may differ from job to job, by a placeholder in its `path`, under one `name` or several. A placeholder that nothing fills is left as it is, and submission warns of it. In a field that decides the queue a placeholder is refused.

## Limits

| field | characters of a text | entries |
|---|---|---|
{_LIMITS}
All texts of one job together have at most {MAX_TOTAL_CHARS:,} characters, one parameter value {MAX_VALUE_CHARS:,}. The limits hold for each job with its parameters filled in.

## Refused, since Pilotage would not act upon it

| JDL | reason |
|---|---|
"""


def reference_markdown() -> str:
    """The whole of docs/reference/job-description.md."""
    fields = "".join(_row(one) for one in FIELDS)
    refused = "".join(f"| {name} | {reason} |\n" for name, reason in sorted(UNSUPPORTED.items()))
    return _TEXT_BEFORE + fields + _TEXT_MIDDLE + refused


def _row(one: Field) -> str:
    kind = _KINDS[one.kind]
    if one.choices:
        names = one.kind == "names"
        kind = f"{kind}: {', '.join(one.choices)}" if names else f"one of {', '.join(one.choices)}"
    elif one.kind == "integer":
        kind = f"{kind}, {one.low} to {one.high:,}"
    jdl = ", ".join(f"`{name}`" for name in one.jdl)
    marks = " | ".join("yes" if mark else "" for mark in (one.selects_queue, one.has_placeholders))
    return f"| `{one.name}` | {jdl} | {kind} | {_default(one)} | {marks} | {one.meaning} |\n"


def _default(one: Field) -> str:
    value = one.default
    if value is MISSING:
        return "must be given"
    if value in ("", ()):
        return "none"
    return f"{json.dumps(value)} {one.unit}".strip().replace('"', "`")
