"""Job descriptions from a file or a mapping, before their inputs are hashed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilotage.client.text_files import read_text
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import COPY, URL, InputFile, Submission
from pilotage.core.jobs.graphs import is_graph
from pilotage.core.jobs.json_format import description_to_json
from pilotage.core.jobs.parametric import PLACEHOLDER, fill_placeholders
from pilotage.core.jobs.parsers import description_from_text, mapping_from_text, parse_yaml_mapping

MAX_FILE = 64 * 1024 * 1024


@dataclass(frozen=True)
class LocalDescription:
    """A checked submission. Its inputs of mode copy lie below `folder`."""

    submission: Submission
    folder: Path = Path()
    local: dict[str, Path] = field(default_factory=dict)
    """Local paths by name, for copy inputs that are not at folder/source."""

    def copied(self, own: Container[int] = ()) -> Iterator[tuple[str, Path]]:
        """(name in the payload's folder, local path) of the inputs that are sent for all jobs.

        Folders that differ from job to job are among them for all rows; entries at the places `own` are not.
        """
        submission = self.submission
        entries = [
            (place, file)
            for place, file in enumerate(submission.description.input_sandbox)
            if file.mode == COPY and place not in own
        ]
        varying = [(place, file) for place, file in entries if self._varies(file, submission.names)]
        for place, file in entries:
            if (place, file) not in varying:
                yield file.name, Path(self.local_path(file))
        for index, row in enumerate(submission.parameters if varying else ()):
            for _, file in varying:
                name, path = (
                    fill_placeholders(text, submission.names, row, index, submission.count)
                    for text in (file.name, self.local_path(file))
                )
                yield name, Path(path)

    def varying(self, names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """(place in the input sandbox, local path with placeholders) of the inputs that differ from job to job."""
        for place, file in enumerate(self.submission.description.input_sandbox):
            if file.mode == COPY and self._varies(file, names):
                yield place, self.local_path(file)

    def _varies(self, file: InputFile, names: Sequence[str]) -> bool:
        return bool(names) and PLACEHOLDER.search(file.name + self.local_path(file)) is not None

    def local_path(self, file: InputFile) -> str:
        """Where it lies here, placeholders not filled."""
        return str(self.local.get(file.name) or self.folder / Path(file.source).expanduser())

    def as_mapping(self) -> dict[str, Any]:
        """The description by the names of docs/reference/job-description.md, as a YAML file would have it."""
        plain = description_to_json(self.submission.description)
        if self.submission.description.input_sandbox:
            plain["input_sandbox"] = [self._item(item) for item in self.submission.description.input_sandbox]
        return plain

    def _item(self, one: InputFile) -> dict[str, Any]:
        if one.mode == URL:
            return {"url": one.source, "name": one.name, "executable": one.executable}
        if one.mode != COPY:
            return {"path": one.source, "mode": one.mode, "name": one.name, "executable": one.executable}
        path = self.local_path(one)
        executable = one.executable or _is_program(path)
        return {"path": _from_here(path), "mode": one.mode, "name": one.name, "executable": executable}


def _is_program(path: str) -> bool:
    """Whether a local file is executable, and is therefore sent as executable."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR)


def _from_here(path: str) -> str:
    """A path below the working folder as a relative path: `rerun` finds the file in a moved folder too."""
    absolute, here = Path(path).absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else path


def from_mapping(
    mapping: Mapping[str, Any], *, folder: Path = Path(), local: Mapping[str, Path] | None = None
) -> LocalDescription:
    """A mapping with the names of a YAML description, `parameters` included."""
    return LocalDescription(parse_yaml_mapping(mapping), folder, dict(local or {}))


def read_description_file(path: Path) -> LocalDescription:
    """A JDL, YAML or JSON file, told apart by its suffix; its inputs are relative to its folder."""
    text = read_text(path, "a job description", MAX_FILE)
    try:
        return read_description_text(text, suffix=path.suffix.lower(), folder=path.parent)
    except InvalidInput as trouble:
        trouble.file = str(path)
        raise


def read_description_text(text: str, *, suffix: str = "", folder: Path = Path()) -> LocalDescription:
    """Parse a description text; its input paths are relative to `folder`."""
    return LocalDescription(description_from_text(text, _kind(text, suffix)), folder)


_GRAPH = re.compile(r"""^\s*[{]?\s*["']?jobs["']?\s*:""", re.MULTILINE)


def read_graph_document(text: str, *, suffix: str = "") -> Mapping[str, Any] | None:
    """The document of a text with several named jobs; None: it describes one submission."""
    kind = _kind(text, suffix)
    if kind == "jdl" or _GRAPH.search(text) is None:
        return None
    document = mapping_from_text(text, kind)
    return document if is_graph(document) else None


def _kind(text: str, suffix: str) -> str:
    by_suffix = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".jdl": "jdl"}
    if suffix in by_suffix:
        return by_suffix[suffix]
    start = text.lstrip()
    if start.startswith("{"):
        return "json"
    first = next(
        (line for line in start.splitlines() if line.strip() and not line.lstrip().startswith("#")), ""
    )
    is_jdl = start.startswith(("[", "//", "/*")) or ("=" in first and ":" not in first.partition("=")[0])
    return "jdl" if is_jdl else "yaml"
