"""How the statements of a writer's transaction may rest on rows, beside transactions of other servers.

PostgreSQL runs them at READ COMMITTED: two statements of one transaction may see two worlds. So each statement of a
function in `store.tables` and `store.cluster` is one of these:

- It locks the rows that it reads (`FOR UPDATE` or `FOR SHARE`).
- It reads or changes rows whose *guard* the transaction holds, see `GUARDS`. No mark is needed.
- It is a *decision* by itself: one statement, whose answer no other transaction can make untrue.
- It is a *hint*: an outdated answer does no harm.
- It changes rows and carries the decided state in its `WHERE`: it is *guarded*.
- It *overwrites*: the last transaction wins, and both orders are right.

A test runs each kind of transaction and fails if a function does none of these (docs: several-servers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

Kind = Literal["decision", "hint", "guarded", "overwrites"]


ONE_SERVER: Final = "one server at a time has the duty that uses these rows"
SHOWN: Final = "it is only shown to people"


class Mark(NamedTuple):
    """How the statements of one function rest on rows that the transaction does not hold."""

    kind: Kind
    why: str
    """Why another transaction does no harm; of a guarded change empty."""
    columns: tuple[str, ...] = ()
    """The columns that the `WHERE` of a guarded change names beside the key."""


MARKS: Final[dict[Any, Mark]] = {}
"""The mark of each function, by its code."""


def _marked(function: Function, mark: Mark) -> Function:
    MARKS[function.__code__] = mark
    return function


def decision(why: str) -> Callable[[Function], Function]:
    """Mark a function whose one statement may be decided on without a lock."""
    return lambda function: _marked(function, Mark("decision", why))


def hint(why: str) -> Callable[[Function], Function]:
    """Mark a function whose answer may be outdated when it is used."""
    return lambda function: _marked(function, Mark("hint", why))


def overwrites(why: str) -> Callable[[Function], Function]:
    """Mark a function that changes rows by their key. Another transaction may have changed them before."""
    return lambda function: _marked(function, Mark("overwrites", why))


def guarded(*columns: str) -> Callable[[Function], Function]:
    """Mark a function that changes rows only in the decided state, and returns which or how many it has changed."""
    return lambda function: _marked(function, Mark("guarded", "", columns))


JOB = ("jobs", "history")
ELEMENT = ("elements", "requests")
DATASET = ("blocks", "datasets")
SUBMISSION = ("submissions",)
CHAIN = ("parent_changes", "parent_submissions", "gates")

GUARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "attempts": JOB,
    "blocks": DATASET,
    "chunk_files": SUBMISSION,
    "conditions": CHAIN,
    "costs": ("pilots",),
    "counters": ("instance",),
    "element_jobs": ELEMENT,
    "elements": ELEMENT,
    "files": DATASET,
    "gates": CHAIN,
    "handed_outputs": ("jobs", "history", "results", "submissions"),
    "history": JOB,
    "jobs": JOB,
    "mails": SUBMISSION,
    "parent_submissions": SUBMISSION,
    "pending_rows": ("submission_chunks", *SUBMISSION),
    "pilot_submissions": ("pilots",),
    "replicas": DATASET,
    "request_steps": ("requests",),
    "results": JOB,
    "servers": ("instance",),
    "submission_chunks": SUBMISSION,
    "use_buckets": ("instance",),
    "use_entities": ("instance",),
}
"""Fact to row: of each table the tables with the rows that all transactions lock before they change it.

A table that is not named here is its own guard.
"""

UNCHANGING: Final = frozenset(
    {"audit_log", "events", "location_sets", "policies", "request_events", "job_outcomes"}
)
"""Tables whose rows nobody changes after their transaction. A look at one of them may miss new rows only."""
