"""What must hold of a finished request after any fault, read from the database itself.

The check is its own: it uses no code of the program to read masks or to add them up.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class RequestAudit:
    """The sums of a request that passed."""

    elements: dict[str, int]
    """By state."""
    jobs: dict[str, int]
    events: int
    """Events of its input, or generated, that accepted results have."""
    outputs: int


def audit_request(connection: Any, request: int, *, complete: bool = True) -> RequestAudit:
    """Check the masks and outputs of one request.

    Each event of the input is in at most one accepted result, and in exactly one if `complete`. Each accepted result
    has its outputs registered once, and no output is of a job without an accepted result.
    """
    jobs = connection.execute(
        f"SELECT id, element_id, step, state, mask, job_id FROM element_jobs WHERE request_id = {int(request)}"
    ).fetchall()
    _one_row_for_each_pool_job(jobs)
    elements = connection.execute(
        f"SELECT id, step, state, blocks, mask FROM elements WHERE request_id = {int(request)}"
    ).fetchall()
    done: dict[int, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    made: dict[int, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for id_, element, _, state, mask, _ in jobs:
        made[element].append((id_, json.loads(mask)))
        if state == "done":
            done[element].append((id_, json.loads(mask)))
    events = 0
    seen_blocks: Counter[tuple[int, int]] = Counter()
    for element, step, state, blocks, mask in elements:
        restriction = json.loads(mask) if mask else {}
        for block in json.loads(blocks):
            if not restriction:
                seen_blocks[step, block] += 1
        files = _files_of(connection, json.loads(blocks))
        _at_most_once(element, made[element], files)
        covered = _at_most_once(element, done[element], files)
        if complete and state == "Done":
            wanted = _wanted(files, restriction)
            assert covered == wanted, f"element {element} has {covered} of {wanted}"
        if step == 0:
            events += covered
    doubled = {block: times for block, times in seen_blocks.items() if times > 1}
    assert not doubled, f"blocks in several elements of one step: {doubled}"
    outputs = _outputs_of_accepted_only(connection, request)
    return RequestAudit(
        dict(Counter(state for _, _, state, *_ in elements)),
        dict(Counter(state for _, _, _, state, *_ in jobs)),
        events,
        outputs,
    )


def _one_row_for_each_pool_job(jobs: list[Any]) -> None:
    doubled = [job for job, times in Counter(job for *_, job in jobs if job is not None).items() if times > 1]
    assert not doubled, f"pool jobs of several element jobs: {doubled}"


def _files_of(connection: Any, blocks: list[int]) -> dict[int, tuple[int, list[list[int]]]]:
    """Events and lumis of the files of some blocks."""
    if not blocks:
        return {}
    rows = connection.execute(
        f"SELECT id, events, lumis FROM files WHERE block_id IN ({', '.join(str(int(block)) for block in blocks)})"
    )
    return {id_: (events, json.loads(lumis) if lumis else []) for id_, events, lumis in rows}


def _at_most_once(
    element: int,
    masks: list[tuple[int, dict[str, Any]]],
    files: dict[int, tuple[int, list[list[int]]]],
) -> int:
    """The number of events, or files without events, that these masks cover. Raises if two cover the same."""
    parts: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    lumis: Counter[tuple[int, int, int]] = Counter()
    generated: list[tuple[int, int, int]] = []
    covered = 0
    for id_, mask in masks:
        if "files" not in mask:
            first = mask.get("first_event", 0)
            generated.append((first, first + mask["events"], id_))
            covered += mask["events"]
            continue
        for file, first, count, *named in mask["files"]:
            assert file in files, f"element job {id_} has file {file}, which is not of element {element}"
            if named:
                for run, low, high in named[0]:
                    lumis.update((file, run, lumi) for lumi in range(low, high + 1))
                continue
            events = max(files[file][0], 1)
            end = events if count < 0 else first + count
            parts[file].append((first, end, id_))
            covered += end - first
    doubled = [lumi for lumi, times in lumis.items() if times > 1]
    assert not doubled, f"element {element} has lumis twice: {doubled[:5]}"
    for file, ranges in [*parts.items(), (0, generated)]:
        ranges.sort()
        for (_, end, one), (begin, _, other) in pairwise(ranges):
            assert end <= begin, f"element jobs {one} and {other} have the same events of file {file}"
    return covered + len(lumis)


def _wanted(files: dict[int, tuple[int, list[list[int]]]], restriction: dict[str, Any]) -> int:
    """The number of events of an element, or of its files without events."""
    if "files" in restriction:
        total = 0
        for file, first, count, *named in restriction["files"]:
            if named:
                total += sum(high - low + 1 for _, low, high in named[0])
            else:
                total += max(files[file][0], 1) - first if count < 0 else count
        return total
    if not files:
        return int(restriction.get("events", 0))
    return sum(max(events, 1) for events, _ in files.values())


def _outputs_of_accepted_only(connection: Any, request: int) -> int:
    """Resubmissions of the request write to its data sets too."""
    rows = connection.execute(
        "SELECT files.name, element_jobs.state FROM files JOIN datasets ON datasets.id = files.dataset_id"
        " LEFT JOIN element_jobs ON element_jobs.id = files.element_job_id AND element_jobs.request_id IN"
        f" (SELECT id FROM requests WHERE id = {int(request)} OR root_id = {int(request)})"
        f" WHERE datasets.request_id = {int(request)}"
    ).fetchall()
    stray = [name for name, state in rows if state != "done"]
    assert not stray, f"outputs of jobs without an accepted result: {stray[:5]}"
    return len(rows)
