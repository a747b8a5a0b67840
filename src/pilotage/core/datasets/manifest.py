"""Parser of manifests: the blocks and files of a data set as TOML, YAML, JSON, JSON lines or a plain list of paths.

Every mistake is reported with its line and field, up to fifty of them at once. docs/reference/datasets.md describes
the format.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pilotage.core.datasets.arrangement import common_folder
from pilotage.core.datasets.document import Path, check_length, lines_of, read_document
from pilotage.core.datasets.facts import (
    MAX_EVENTS,
    MAX_SIZE,
    BlockEntry,
    FileEntry,
    Replica,
    check_checksum,
    check_data_set_name,
    check_entry_name,
    check_lumis,
    check_number,
    check_replica,
)
from pilotage.core.errors import MISTAKES_TOLD, InvalidInput, check_mistakes
from pilotage.core.jobs.parsers import read_json

KINDS: Final = {
    ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".txt": "list", ".list": "list",
}  # fmt: skip
"""The format of a manifest by the ending of its name."""

_TOP: Final = ("name", "prefix", "replicas", "events_per_file", "closed", "blocks", "files")
_BLOCK: Final = ("name", "replicas", "files")
_FILE: Final = ("name", "size", "events", "checksum", "lumis")
_LOOSE_FILE: Final = (*_FILE, "block")
_MANIFEST: Final = "the manifest"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a manifest."""

    name: str = ""
    """The name of the data set; empty: the manifest does not say."""
    prefix: str | None = None
    """The folder or URL that the names are relative to; None: the manifest does not say."""
    replicas: tuple[Replica, ...] = ()
    """The replicas of blocks that have none of their own."""
    closed: bool = False
    """No more blocks will come."""
    blocks: tuple[BlockEntry, ...] = ()
    loose: tuple[FileEntry, ...] = ()
    """Files that the manifest puts into no block."""

    @property
    def file_count(self) -> int:
        return len(self.loose) + sum(len(block.files) for block in self.blocks)


def parse_manifest(text: str, kind: str) -> Manifest:
    """The manifest of a text of kind `toml`, `yaml`, `json`, `jsonl` or `list`. Raises `InvalidInput`."""
    if kind == "list":
        return _from_list(text)
    if kind == "jsonl":
        return _from_json_lines(text)
    document = read_document(text, kind, _MANIFEST)
    reader, manifest = _ManifestReader(), Manifest()
    with suppress(_TooManyMistakes):
        manifest = reader.read(document)
    if reader.mistakes:
        lines = lines_of(text, kind, [path for path, _ in reader.mistakes])
        check_mistakes(_with_place(error, lines.get(path), path) for path, error in reader.mistakes)
    return manifest


class _TooManyMistakes(Exception):
    """No further mistake would be shown."""


class _BlockDraft(NamedTuple):
    files: list[FileEntry]
    replicas: tuple[Replica, ...] = ()


def _with_place(error: InvalidInput, line: int | None, path: Path) -> InvalidInput:
    # A key may contain half of a surrogate pair, which cannot be printed.
    where = ".".join(path).encode("utf-8", "backslashreplace").decode()
    return type(error)(
        f"{where}: {error.message}" if where else error.message,
        hint=error.hint,
        line=line if error.line is None else error.line,
        field=where or None,
    )


@dataclass(slots=True)
class _ManifestReader:
    """Reads the plain values of a manifest, and collects its mistakes by their path."""

    mistakes: list[tuple[Path, InvalidInput]] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    """The path of each file by its name."""
    _events: int = 0

    def read(self, document: Mapping[str, Any]) -> Manifest:
        self._check_keys((), document, _TOP)
        name = self._checked(("name",), check_data_set_name, document.get("name", "") or None, "")
        self._events = self._checked(("events_per_file",), _events, document.get("events_per_file"), 0)
        replicas = self._replicas(("replicas",), document.get("replicas"))
        prefix = self._checked(("prefix",), _prefix, document.get("prefix"), None)
        closed = document.get("closed", False)
        if not isinstance(closed, bool):
            self._mistake(("closed",), InvalidInput("must be true or false"))
        drafts: dict[str, _BlockDraft] = {}
        self._blocks(document.get("blocks", []), drafts)
        loose: list[FileEntry] = []
        for path, values in self._entries(("files",), document.get("files", [])):
            file, block = self._file(path, values, _LOOSE_FILE)
            if file is not None:
                (drafts.setdefault(block, _BlockDraft([])).files if block else loose).append(file)
        blocks = tuple(BlockEntry(name, tuple(files), places) for name, (files, places) in drafts.items())
        manifest = Manifest(name, prefix, replicas, closed is True, blocks, tuple(loose))
        if not manifest.file_count and not self.mistakes:
            self._mistake((), InvalidInput("the manifest lists no files", hint="give files or blocks"))
        return manifest

    def _blocks(self, blocks: object, drafts: dict[str, _BlockDraft]) -> None:
        for path, values in self._entries(("blocks",), blocks):
            if not isinstance(values, Mapping):
                self._mistake(path, InvalidInput("a block is a table with name and files"))
                continue
            self._check_keys(path, values, _BLOCK)
            name = self._checked((*path, "name"), _name, values.get("name"), "")
            if not name:
                if "name" not in values:
                    self._mistake(path, InvalidInput("the name of the block is missing"))
            elif name in drafts:
                self._mistake((*path, "name"), InvalidInput(f"the block {name!r} is given twice"))
            replicas = self._replicas((*path, "replicas"), values.get("replicas"))
            draft = drafts.setdefault(name, _BlockDraft([], replicas))
            for file_path, entry in self._entries((*path, "files"), values.get("files", [])):
                file, _ = self._file(file_path, entry, _FILE)
                if file is not None:
                    draft.files.append(file)

    def _file(self, path: Path, values: object, known: Sequence[str]) -> tuple[FileEntry | None, str]:
        """The file, and the block that it names; None after a mistake."""
        count = len(self.mistakes)
        if isinstance(values, str):
            values = {"name": values}
        if not isinstance(values, Mapping):
            self._mistake(path, InvalidInput("a file is a name, or a table with a name"))
            return None, ""
        self._check_keys(path, values, known)
        name = self._checked((*path, "name"), _name, values.get("name"), "")
        if "name" not in values:
            self._mistake(path, InvalidInput("the name of the file is missing"))
        elif name:
            where = self._names.setdefault(name, ".".join(path))
            if where != ".".join(path):
                self._mistake((*path, "name"), InvalidInput(f"{name!r} is listed twice; first as {where}"))
        file = FileEntry(
            name,
            self._checked((*path, "size"), _size, values.get("size"), 0),
            self._checked((*path, "events"), _events, values.get("events"), self._events),
            self._checked((*path, "checksum"), _checksum, values.get("checksum"), ""),
            self._checked((*path, "lumis"), _lumis, values.get("lumis"), ()),
        )
        block = self._checked((*path, "block"), _name, values.get("block"), "")
        return (file if len(self.mistakes) == count else None), block

    def _entries(self, path: Path, values: object) -> Iterator[tuple[Path, object]]:
        if not isinstance(values, list):
            self._mistake(path, InvalidInput("must be a list"))
            return
        for number, entry in enumerate(values):
            yield (*path, str(number)), entry

    def _replicas(self, path: Path, values: object) -> tuple[Replica, ...]:
        """A mapping of sites to prefixes."""
        if values is None:
            return ()
        if not isinstance(values, Mapping):
            self._mistake(path, InvalidInput("must be a mapping of sites to prefixes"))
            return ()
        replicas = []
        for site, prefix in values.items():
            try:
                replicas.append(check_replica(site, prefix, site))
            except InvalidInput as error:
                self._mistake((*path, str(site)), error)
        return tuple(sorted(replicas))

    def _check_keys(self, path: Path, values: Mapping[str, Any], known: Sequence[str]) -> None:
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(str(key)[:100], known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
                self._mistake((*path, str(key)), InvalidInput("unknown key", hint=hint))

    def _checked(self, path: Path, check: Any, value: Any, default: Any) -> Any:
        """The checked value; the default if it is not given, or after a mistake."""
        if value is None:
            return default
        try:
            return check(value)
        except InvalidInput as error:
            self._mistake(path, error)
            return default

    def _mistake(self, path: Path, error: InvalidInput) -> None:
        self.mistakes.append((path, error))
        if len(self.mistakes) > MISTAKES_TOLD:
            raise _TooManyMistakes


def _size(value: object) -> int:
    return check_number(value, "it", MAX_SIZE)


def _events(value: object) -> int:
    return check_number(value, "it", MAX_EVENTS)


def _name(value: object) -> str:
    return check_entry_name(value, "the name")


def _checksum(value: object) -> str:
    return check_checksum(value, "it")


def _lumis(value: object) -> Any:
    return check_lumis(value, "the records")


def _prefix(value: object) -> str:
    return check_replica("here", value).prefix


# --- one file a line


def _from_json_lines(text: str) -> Manifest:
    """A JSON object for each file, one a line."""
    check_length(text, _MANIFEST)
    reader = _ManifestReader()
    blocks: dict[str, list[FileEntry]] = {}
    mistakes: list[InvalidInput] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = read_json(line)
        except InvalidInput as error:
            mistakes.append(type(error)(error.message, hint=error.hint, line=number, column=error.column))
        else:
            file, block = None, ""
            with suppress(_TooManyMistakes):
                file, block = reader._file((f"line {number}",), values, _LOOSE_FILE)
            if file is not None:
                blocks.setdefault(block, []).append(file)
        mistakes += [_with_place(error, number, path[1:]) for path, error in reader.mistakes]
        reader.mistakes.clear()
        if len(mistakes) > MISTAKES_TOLD:
            break
    if not blocks and not mistakes:
        mistakes.append(InvalidInput("the manifest lists no files", line=1))
    check_mistakes(mistakes)
    loose = tuple(blocks.pop("", ()))
    return Manifest(
        blocks=tuple(BlockEntry(name, tuple(files)) for name, files in blocks.items()), loose=loose
    )


def _from_list(text: str) -> Manifest:
    """A path or URL a line. Empty lines, and lines that begin with #, do not count."""
    check_length(text, _MANIFEST)
    lines: dict[str, int] = {}
    mistakes: list[InvalidInput] = []
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if not name or name.startswith("#"):
            continue
        if name in lines:
            mistakes.append(
                InvalidInput(f"{name!r} is listed twice; first in line {lines[name]}", line=number)
            )
        lines.setdefault(name, number)
        if len(mistakes) > MISTAKES_TOLD:
            break
    if not lines:
        mistakes.append(InvalidInput("the manifest lists no files", line=1))
    absolute = [name for name in lines if name.startswith("/") or "://" in name]
    prefix: str | None = None
    if absolute:
        relative = next((name for name in lines if not (name.startswith("/") or "://" in name)), None)
        if relative is not None:
            mistakes.append(
                InvalidInput(
                    f"{relative!r} is relative, but other lines are absolute", line=lines[relative],
                    hint="write all of them the same way",
                )
            )  # fmt: skip
        prefix = common_folder(absolute)
    files = []
    for name, number in lines.items():
        try:
            short = name if prefix is None else name.removeprefix(prefix).removeprefix("/")
            files.append(FileEntry(check_entry_name(short, "the name")))
        except InvalidInput as error:
            mistakes.append(type(error)(error.message, hint=error.hint, line=number, field="name"))
            if len(mistakes) > MISTAKES_TOLD:
                break
    check_mistakes(mistakes)
    return Manifest(prefix=prefix, loose=tuple(files))
