"""`pilotage submit` of a document with several named jobs that depend on each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage.cli.session import LONG_PATIENCE, PATIENCE, Session
from pilotage.client.description import MAX_FILE, read_graph_document
from pilotage.client.graphs import PreparedJob, prepare_graph
from pilotage.client.text_files import read_text
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.cli.submit_options import JobOptions, SubmitOptions
    from pilotage.client import Client
    from pilotage.wire.submissions import SubmitResponse

GRAPH_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class GraphFile:
    document: Mapping[str, Any]
    folder: Path


def read_graph_file(words: list[str]) -> GraphFile | None:
    """The document of a job file with named jobs; None: the words are something else."""
    path = Path(words[0])
    if len(words) > 1 or path.suffix.lower() not in GRAPH_SUFFIXES or not path.is_file():
        return None
    document = read_graph_document(read_text(path, "a job description", MAX_FILE), suffix=path.suffix.lower())
    return None if document is None else GraphFile(document, path.parent)


def submit_graph(
    session: Session,
    graph: GraphFile,
    options: JobOptions,
    how: SubmitOptions,
    finish: Callable[[Session, Client, list[SubmitResponse]], int],
) -> int | None:
    """Submit all jobs of a document. `finish` prints the report, and waits if that was asked for."""
    if options.given_options() or how.table or how.no_inputs:
        raise InvalidInput(
            "a document with several jobs takes no options that describe jobs", hint="change the document"
        )
    prepared = prepare_graph(graph.document, folder=graph.folder, group=how.group, key=how.key)
    if how.dry_run:
        _show(session, prepared)
        return None
    with session.client(patience=LONG_PATIENCE if how.wait else PATIENCE) as client:
        answers = client.send_graph(prepared)
        for name, answer in answers.items():
            for warning in answer.warnings:
                session.screen.note(f"warning: job {name}: {warning}")
            ids = str(answer.first) if answer.count == 1 else f"{answer.first}-{answer.last}"
            line = f"{name}: submission {answer.submission}: {plural(answer.count, 'job')}, {ids}"
            session.screen.line(ids if how.parsable else line)
        sys.stdout.flush()
        return finish(session, client, list(answers.values()))


def _show(session: Session, prepared: list[PreparedJob]) -> None:
    """Print the jobs in the order in which they are submitted; nothing is stored."""
    if session.as_json:
        session.screen.json([job.upload.request for job in prepared])
        return
    for job in prepared:
        parents = "; ".join(f"{field} {', '.join(given)}" for field, given in job.named.parents.items())
        session.screen.line(
            f"{job.named.name}: {plural(job.upload.count, 'job')}{f', {parents}' if parents else ''}"
        )
    with session.client() as client:
        for job in prepared:
            for warning in client.check(job.upload).warnings:
                session.screen.note(f"warning: job {job.named.name}: {warning}")
