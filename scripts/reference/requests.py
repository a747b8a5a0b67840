"""The reference page of requests, generated from the tables of fields."""

# ruff: noqa: E501 - each paragraph and row of the page is one line.
from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from pilotage.core.requests.fields import (
    LOG_COLLECT,
    MERGE,
    NOT_IN_PROGRAMS,
    OUTPUT,
    REQUEST,
    REQUIRED,
    RETRY,
    STEP,
    SpecificationField,
)
from pilotage.core.setting import Key, keys_of
from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.algorithms import ALGORITHMS

_KINDS: Final = {
    "text": "text",
    "paths": "text or list of texts",
    "names": "name or list of names",
    "choice": "one of",
    "boolean": "true or false",
    "integer": "whole number",
    "integers": "whole number or list of them",
    "seconds": "seconds, or `30 min`, `2 h`, `1 d`",
    "bytes": "bytes, or `500 MB`, `2 GB` (10^9), `2 GiB` (2^30)",
    "table": "table",
}

EXAMPLE: Final = """\
name = "charm"
priority = 9000
team = "home"
input = "/data/2026/raw"
sites = ["cellar", "attic"]
open_for = "2 d"               # blocks of the next two days are processed too

[program]                      # as a job description
executable = "select.py"
arguments = ["--cut", "5"]
input_sandbox = ["select.py"]
memory = "2 GB"
cpu_time = "4 h"

[splitting]
algorithm = "FileBased"
files_per_job = 10

[output]
files = ["*.root"]
dataset = "/data/2026/charm"

[merge]                        # files of about 2 to 4 GB
min_size = "2 GB"
max_size = "4 GB"

[retry]
max_retries = 5
fatal_exit_codes = [66]
"""

STEPS_EXAMPLE: Final = """\
name = "toy-study"
team = "home"

[[steps]]
name = "generate"
events = 1_000_000
program = { executable = "generate.sh", input_sandbox = ["generate.sh"] }
splitting = { algorithm = "EventBased", events_per_job = 10_000 }
output = { files = ["events.npz"] }

[[steps]]                      # reads the output of the step before
name = "analyse"
program = { executable = "analyse.py", input_sandbox = ["analyse.py"] }
splitting = { algorithm = "SizeBased", size_per_job = "1 GB" }
output = { files = ["histograms.json"], dataset = "/toys/histograms" }
"""

_BEFORE: Final = f"""# Requests

<!-- Made by scripts/write-docs from core/requests/fields.py; a test compares. -->

A request asks to process data sets, or to generate events. `pilotage request submit FILE` reads it in TOML, YAML or JSON. All mistakes are reported together, each with its line. Values have the types of the format: the text `"yes"` is not `true`. [How a request becomes jobs](states.md#requests) shows its states.

```toml
{EXAMPLE}```

A request with several steps lists them. A step without `input` and `events` reads the output of the step before:

```toml
{STEPS_EXAMPLE}```

"""

_NOTES: Final = """
Outputs that will be merged go to the data set NAME/unmerged; the merged files go to NAME. Merging is a step of its own with the name STEP.merge and the type Merge.

A data set is written by one step. Several input data sets of a step are processed one beside the other into the same output.

"""

_LOGS: Final = """\
The table `log_collect` of the request. Each job stores its logs as one file of the data set NAME/unmerged, also if it failed: standard output, standard error, and the pilot's record of the job ([Data in jobs](data-in-jobs.md#logs)). A step of the type LogCollect archives each closed block of these files at their site: one tar file, or more if a limit is reached. The last block is closed when all other steps have ended. Its name is `logs.collect`, and that of the cleanup is `logs.cleanup`. Jobs of cleanups and of this step store no logs."""


def reference_markdown() -> str:
    """The text of docs/reference/requests.md."""
    refused = "".join(f"| `{name}` | {hint} |\n" for name, hint in NOT_IN_PROGRAMS.items())
    return (
        _BEFORE
        + _section("Request", "", REQUEST)
        + _section("Step", "Fields of `[[steps]]`, or of the request itself if it has one step.", STEP)
        + _NOTES
        + _section("Output", "The table `output` of a step.", OUTPUT)
        + _section("Merge", "The table `merge` of a step.", MERGE)
        + _section("Log collection", _LOGS, LOG_COLLECT)
        + _section("Retry", "The table `retry` of a step.", RETRY)
        + "## Program\n\nThe tables `program` of a step and of its merge are [job descriptions](job-description.md)."
        " Some fields are refused there:\n\n| field | instead |\n|---|---|\n"
        + refused
        + "\n## Splitting algorithms\n\nEach is a value of `algorithm` in the table `splitting`.\n\n"
        + "\n".join(_algorithm(kind) for _, kind in sorted(ALGORITHMS.items()))
    )


def _algorithm(kind: type[Algorithm]) -> str:
    """An algorithm and its parameters."""
    head = "| parameter | default | range | meaning |\n|---|---|---|---|\n"
    rows = "".join(_parameter(key) for key in keys_of(kind))
    return f"### {kind.algorithm}\n\n{kind.meaning[:1].upper()}{kind.meaning[1:]}.\n\n{head}{rows}"


def _parameter(key: Key) -> str:
    default = "(required)" if key.default is msgspec.NODEFAULT else f"`{json.dumps(key.default)}`"
    limits = key.setting.range
    bounds = "" if limits is None else f"{limits[0]:,.15g} to {limits[1]:,.15g}"
    zero = ", or 0" if key.setting.or_zero else ""
    return f"| `{key.name}` | {default} | {bounds}{zero} | {key.setting.meaning} |\n"


def _section(title: str, text: str, fields: Iterable[SpecificationField]) -> str:
    intro = f"{text}\n\n" if text else ""
    head = "| field | value | default | meaning |\n|---|---|---|---|\n"
    return f"## {title}\n\n{intro}{head}{''.join(map(_row, fields))}\n"


def _row(field: SpecificationField) -> str:
    facts = field.field
    kind = _KINDS[facts.kind]
    if facts.choices:
        kind = f"{kind} {', '.join(facts.choices)}"
    elif facts.kind == "integer":
        kind = f"{kind}, {facts.low:,} to {facts.high:,}"
    return f"| `{field.name}` | {kind} | {_default(field)} | {facts.meaning} |\n"


def _default(field: SpecificationField) -> str:
    if field.default is REQUIRED:
        return "(required)"
    if field.default is None or field.default in ("", ()):
        return ""
    return f"{json.dumps(field.default)} {field.field.unit}".strip().replace('"', "`")
