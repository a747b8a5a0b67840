"""Conversion of job ids and conditions to a Selection, and of a Selection to requests of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pilotage import wire
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.written_ids import is_id, parse_written_ids

if TYPE_CHECKING:
    from pilotage.wire.jobs import Selection
    from pilotage.wire.submissions import SubmitResponse

Which: TypeAlias = "Selection | SubmitResponse | int | Iterable[int]"
"""A selection, the answer of `submit`, one job id or several."""

IDS_PER_QUERY = 200
"""Ids in the address of one GET, which so stays under 4 kB."""
IDS_PER_ACTION = 10_000


def selection_of(which: Which) -> Selection:
    if isinstance(which, wire.jobs.Selection):
        return which
    if isinstance(which, wire.submissions.SubmitResponse):
        return wire.jobs.Selection(submission=which.submission)
    ids = [which] if isinstance(which, int) else list(which)
    if not ids:
        raise InvalidInput("no job is named")
    return wire.jobs.Selection(ids=ids)


def parse_ids(words: Iterable[str]) -> list[int]:
    """Job ids as people write them: "12", "12-40", "12,15"; in their order, each once."""
    return parse_written_ids(words, wire.submissions.MAX_JOBS_PER_SUBMISSION)


def single_ids(words: Iterable[str]) -> list[int]:
    """The ids that are written one by one. The others are in ranges, which may have gaps."""
    parts = (part for word in words for part in word.replace(" ", "").split(","))
    return list(dict.fromkeys(int(part) for part in parts if is_id(part)))


def split_by_ids(selection: Selection, size: int) -> Iterator[Selection]:
    """The same selection in pieces of at most `size` ids; itself if it names none."""
    ids = selection.ids
    if ids is not None and not ids:
        raise InvalidInput("no job is named", hint="leave `ids` out to select by other conditions only")
    if ids is None or len(ids) <= size:
        yield selection
        return
    for start in range(0, len(ids), size):
        yield replace(selection, ids=ids[start : start + size])


def given_conditions(selection: Selection) -> dict[str, Any]:
    """The conditions that were given. Raises InvalidInput for an empty one: it must not select everything."""
    conditions = {name: value for name, value in vars(selection).items() if value is not None}
    for name, value in conditions.items():
        if value in ("", []) or (name == "submission" and value <= 0):
            raise InvalidInput(
                f"the condition {name} is empty: {value!r}",
                hint=f"leave `{name}` out to select without it",
                field=name,
            )
    return conditions
