"""The fields of a request's specification: kinds, defaults and meanings, by table. Parser and reference use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pilotage.core.jobs.fields import Field
from pilotage.core.requests.retries import PauseRule
from pilotage.core.requests.specification import (
    BLOCK,
    DEFAULT_PRIORITY,
    LOG_BYTES,
    LOG_FILES,
    MAX_PRIORITY,
    MONTE_CARLO,
    PROCESSING,
    STEP_TYPES,
)
from pilotage.core.requests.start_policies import GIVEN_BY_USERS, START_POLICIES
from pilotage.core.setting import BYTES

MAX_EVENTS: Final = 10**15
REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class SpecificationField:
    """One field. A field of kind `table` has its own fields below."""

    field: Field
    default: Any = REQUIRED

    @property
    def name(self) -> str:
        return self.field.name


def _field(name: str, kind: str, meaning: str, default: Any = REQUIRED, **facts: Any) -> SpecificationField:
    return SpecificationField(Field(name, kind, meaning, **facts), default)


REQUEST: Final = (
    _field("name", "text", "A name for display; letters, digits and `._-`."),
    _field("group", "text", "The group that the jobs belong to; absent: the group of the token.", ""),
    _field("priority", "integer", "Higher numbers go first.", DEFAULT_PRIORITY, low=0, high=MAX_PRIORITY),
    _field(
        "team",
        "text",
        "The team of agents that take its work. A request without a team waits until it is assigned.",
        "",
    ),
    _field("campaign", "text", "A label to group related requests.", ""),
    _field("sites", "names", "Sites where its jobs may run; absent or `ANY`: all.", None),
    _field("banned_sites", "names", "Sites where its jobs must not run.", ()),
    _field(
        "trust_input",
        "boolean",
        "True: jobs also run at sites without the input, and read it from elsewhere, where its files have an address"
        " for that (a URL).",
        False,
    ),
    _field("trust_pileup", "boolean", "True: the same for the pile-up.", False),
    _field(
        "open_for",
        "seconds",
        "Blocks that come to the input this long after the submission are processed too.",
        0,
        unit="s",
    ),
    _field(
        "log_collect",
        "table",
        "How the logs of all its jobs are kept as a data set; `true`: with the defaults; absent: the server alone keeps"
        " standard output and error.",
        None,
    ),
    _field(
        "steps",
        "table",
        "The steps, `[[steps]]`. A request with one step may have the fields of the step itself.",
        (),
    ),
)

STEP: Final = (
    _field(
        "name", "text", "The name of the step, unique in the request; letters, digits and `_-`.", "process"
    ),
    _field(
        "type",
        "choice",
        "The type of its jobs. Sites have a threshold for each type.",
        PROCESSING,
        choices=STEP_TYPES,
    ),
    _field(
        "input",
        "paths",
        "Data sets to process, `CATALOGUE:NAME` of an outside catalogue. The first step needs `input` or `events`.",
        (),
    ),
    _field(
        "after",
        "text",
        "The earlier step whose output data set is the input; absent: the step before, unless there is `input`.",
        "",
    ),
    _field("events", "integer", "Events to generate; there is no input then.", 0, low=1, high=MAX_EVENTS),
    _field("pileup", "paths", "Data sets of pile-up: jobs run where they are.", ()),
    _field("blocks", "paths", "Only these blocks of the input; absent: all.", ()),
    _field("banned_blocks", "paths", "Blocks of the input that are left out.", ()),
    _field("runs", "integers", "Only blocks with one of these runs; absent: all.", (), high=2**31 - 1),
    _field(
        "start_policy",
        "choice",
        "How the input becomes elements: "
        + "; ".join(f"{name}: {START_POLICIES[name].meaning}" for name in GIVEN_BY_USERS)
        + f". Absent: {BLOCK} with an input, {MONTE_CARLO} with `events`.",
        "",
        choices=GIVEN_BY_USERS,
    ),
    _field(
        "program",
        "table",
        "The program: fields of [job descriptions](job-description.md), without places, priority, type, retries and"
        " parameters.",
    ),
    _field(
        "splitting",
        "table",
        "`algorithm`, and the [parameters of this algorithm](#splitting-algorithms). Sizes may be `2 GB`.",
    ),
    _field(
        "merge", "table", "How the outputs are merged; `true`: with the defaults; absent: not at all.", None
    ),
    _field("output", "table", "The files that its jobs write; absent: none are kept as a data set.", None),
    _field("retry", "table", "When failed jobs are made again; absent: the defaults for the type.", None),
)

MERGE: Final = (
    _field(
        "min_size",
        "bytes",
        "Bytes that a merged file must exceed while more outputs may come.",
        None,
        high=BYTES[1],
    ),
    _field("max_size", "bytes", "The most bytes of a merged file.", None, low=1, high=BYTES[1]),
    _field("max_events", "integer", "The most events of a merged file.", None, low=1, high=MAX_EVENTS),
    _field("max_files", "integer", "The most outputs in a merged file.", None, low=1, high=10_000),
    _field("across_runs", "boolean", "True: outputs of different runs may be merged.", None),
    _field(
        "program",
        "table",
        "The program that merges; absent: the files are written one after the other.",
        None,
    ),
    _field(
        "cleanup",
        "boolean",
        "True: the outputs that were merged are removed from the storage, once no merge job can fail any more.",
        False,
    ),
)

_PLACES: Final = _field(
    "places",
    "paths",
    "Storage places, the best first; the next one is used if one fails. Absent: the places of the site.",
    (),
)

OUTPUT: Final = (
    _field("files", "paths", "Names or patterns of files in the folder of the job."),
    _field(
        "dataset",
        "text",
        "The data set that they become; absent: NAME-NUMBER/STEP, from the request and its step.",
        "",
    ),
    _PLACES,
    _field(
        "max_size",
        "bytes",
        "The most bytes of all these files of one job; a job with more fails. Absent: `requests.max_output_size` of the"
        " policy, which no request exceeds.",
        0,
        low=1,
        high=BYTES[1],
    ),
)

LOG_COLLECT: Final = (
    _field(
        "dataset",
        "text",
        "The data set of the archives; absent: NAME-NUMBER/logs. The logs of single jobs are in DATASET/unmerged.",
        "",
    ),
    _PLACES,
    _field(
        "max_size",
        "bytes",
        "The most bytes of logs in an archive.",
        LOG_BYTES,
        low=1,
        high=BYTES[1],
    ),
    _field(
        "max_files",
        "integer",
        "The most logs in an archive.",
        LOG_FILES,
        low=1,
        high=10_000,
    ),
    _field(
        "cleanup",
        "boolean",
        "True: the logs of single jobs are removed from the storage, once all of them are archived.",
        False,
    ),
)

RETRY: Final = (
    _field("max_retries", "integer", "How often a failed job is made again.", None, high=100),
    _field("cooloff", "seconds", "Pause before the first of these tries.", None, unit="s"),
    _field("growth", "choice", "How the pause grows with the number of tries.", "", choices=tuple(PauseRule)),
    _field(
        "fatal_exit_codes",
        "integers",
        "Exit codes after which a job is not made again.",
        (),
        high=255,
    ),
    _field(
        "pass_exit_codes",
        "integers",
        "Exit codes after which it is made again without a pause.",
        (),
        high=255,
    ),
)

NOT_IN_PROGRAMS: Final = {
    "sites": "set `sites` of the request",
    "banned_sites": "set `banned_sites` of the request",
    "user_priority": "set `priority` of the request",
    "job_type": "set `type` of the step",
    "job_group": "set `campaign` of the request",
    "retries": "set `retry` of the step",
    "parameters": "the splitting makes the jobs",
}
"""Fields of job descriptions that a request has itself, with the hint of the refusal."""
