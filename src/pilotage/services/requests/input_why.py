"""Why an open step of a request gets no further elements now."""

from __future__ import annotations

from pilotage.core.requests.specification import CLEANUP
from pilotage.core.requests.start_policies import START_POLICIES
from pilotage.core.requests.start_policy import Reads
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import catalogues, dataset_blocks, followed_datasets, queued_requests
from pilotage.store.tables.followed_datasets import FollowedRow
from pilotage.store.tables.queued_requests import QueuedRequest, QueuedStep

OWN_DATA = "`pilotage dataset close {name}` if no more files will come"
OUTPUT = (
    "its last block is closed when the step before it has ended, or after requests.output_block_age seconds"
)


def awaited_input(connection: Connection, request: QueuedRequest) -> tuple[str, str]:
    """The summary and the advice for the first step that waits for input; empty: no step does."""
    for step in queued_requests.steps_of(connection, [request.id]):
        said = ("", "") if step.closed else _awaited(connection, request, step)
        if said[0]:
            return said
    return "", ""


def catalogue_notes(connection: Connection, request: QueuedRequest) -> str:
    """The problems of inputs that are copied from outside catalogues, and the blocks that are left out."""
    notes = []
    for step in queued_requests.steps_of(connection, [request.id]):
        row = (
            None
            if step.input_dataset is None
            else followed_datasets.of_dataset(connection, step.input_dataset)
        )
        if row is not None and (text := _problem(connection, row) or row.note):
            notes.append(f"{row.name}: {text}")
    return "; ".join(dict.fromkeys(notes))


def _problem(connection: Connection, row: FollowedRow) -> str:
    """Why a copied data set cannot be read; empty: it can."""
    catalogue = catalogues.by_name(connection).get(row.catalogue)
    of_catalogue = (
        "" if catalogue is None or not catalogue.problem else f"{row.catalogue}: {catalogue.problem}"
    )
    return of_catalogue or row.problem


def _unread(connection: Connection, step: QueuedStep, dataset: int) -> tuple[str, str] | None:
    """For an input whose catalogue was not read since somebody asked for it."""
    row = followed_datasets.of_dataset(connection, dataset)
    if row is None or (row.read is not None and row.read >= row.asked):
        return None
    problem = _problem(connection, row)
    summary = f"step {step.name} waits until {row.name} is read" + (f"; {problem}" if problem else "")
    return summary, f"`pilotage catalogue show {row.catalogue}`"


def _awaited(connection: Connection, request: QueuedRequest, step: QueuedStep) -> tuple[str, str]:
    if step.type == CLEANUP:
        return f"step {step.name} begins when all is merged", ""
    if step.input_dataset is None:
        return "", ""
    dataset = dataset_blocks.datasets_by_id(connection, [step.input_dataset]).get(step.input_dataset)
    if dataset is None:
        return "", ""
    if unread := _unread(connection, step, dataset.id):
        return unread
    has_open = dataset_blocks.has_open_block(connection, dataset.id)
    advice = OUTPUT if step.after is not None else OWN_DATA.format(name=dataset.name)
    policy = START_POLICIES.get(step.start_policy)
    if policy is not None and policy.reads is Reads.DATASET and (dataset.open or has_open):
        return f"step {step.name} waits until its input {dataset.name} is closed", advice
    if has_open:
        return f"step {step.name} waits: a block of its input {dataset.name} is not closed", advice
    if dataset.open:
        return f"step {step.name} has taken all blocks of {dataset.name}, and more may come", advice
    return "", ""
