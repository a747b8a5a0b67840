"""Requests from a file or a mapping: checked here with the lines of the text, and their input files hashed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage import wire
from pilotage.client.description import LocalDescription
from pilotage.client.inputs import LocalFile, gather_files
from pilotage.client.text_files import read_text
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import Submission
from pilotage.core.requests.parser import parse_mapping, parse_text
from pilotage.core.requests.specification import Specification

if TYPE_CHECKING:
    from pilotage.wire.requests import RequestSubmission

MAX_FILE = 16 * 1024 * 1024
SUFFIXES = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}


@dataclass(frozen=True)
class RequestUpload:
    """The body of a submission, and the files that must be uploaded before it is sent."""

    body: RequestSubmission
    specification: Specification
    files: tuple[LocalFile, ...]


def read_request_file(path: Path, overrides: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], Path]:
    """The mapping of a TOML, YAML or JSON file with `overrides` in it, and the folder of its input files.

    Raises InvalidInput with the lines of all mistakes.
    """
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise InvalidInput(f"{path} is no request file", hint=f"its name ends in {', '.join(SUFFIXES)}")
    text = read_text(path, "a request", MAX_FILE)
    try:
        mapping = parse_text(text, kind)[1]
    except InvalidInput as trouble:
        trouble.file = str(path)
        raise
    return {**mapping, **(overrides or {})}, path.parent


def prepare_request(
    mapping: Mapping[str, Any],
    folder: Path = Path(),
    *,
    key: str = "",
    confirmed: bool = False,
    strict: bool = False,
    origin: int | None = None,
) -> RequestUpload:
    """Check a request and hash its input files, which lie below `folder`; nothing is sent. Raises InvalidInput."""
    specification = parse_mapping(mapping)
    plain = plain_values(mapping)
    inputs, files = {}, []
    tables = _program_tables(plain, specification)
    for name, program in specification.programs.items():
        table = tables[name]
        described = LocalDescription(Submission(program.description), folder)
        table["input_sandbox"] = described.as_mapping().get("input_sandbox", [])
        if not table["input_sandbox"]:
            del table["input_sandbox"]
        sent = gather_files(described.copied())
        inputs[name] = [file.uploaded() for file in sent]
        files += sent
    body = wire.requests.RequestSubmission(plain, inputs, key or str(uuid.uuid4()), confirmed, strict, origin)
    return RequestUpload(body, specification, tuple(files))


def _program_tables(plain: dict[str, Any], specification: Specification) -> dict[str, dict[str, Any]]:
    """The table of each program of a request in its mapping."""
    tables = {}
    for step, table in zip(specification.steps, plain.get("steps", [plain]), strict=True):
        tables[step.name] = table["program"]
        if (name := f"{step.name}.merge") in specification.programs:
            tables[name] = table["merge"]["program"]
    return tables


def plain_values(value: Any) -> Any:
    """A copy of plain types only, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(name): plain_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    return float(value) if isinstance(value, float) else value
