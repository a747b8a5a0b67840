"""Messages of job outputs. Rules of bodies, instants, pages and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, List

from pilotage.wire.call import PERSON, ApiCall
from pilotage.wire.jobs import OutputFile, Selection
from pilotage.wire.limits import Cursor

ARCHIVE_OUTPUTS = "PILOTAGE.outputs"
"""The extended header of a job's folder in the tar stream; its value is the JSON of an ArchivedJob.

The stream has the jobs by rising id, each as its files `<id>/<name>` and then the folder `<id>/`. It ends with two
blocks of zeros; without them it is not complete.
"""


@dataclass
class ArchiveRequest:
    __pydantic_config__: ClassVar[Dict[str, Any]] = {"extra": "forbid"}

    selection: Selection
    after: Cursor = 0
    """Only jobs with ids above it: where a broken stream goes on."""
    names_only: bool = False
    """Without the files."""


@dataclass
class ArchivedJob:
    id: int
    state: str
    outputs: List[OutputFile]
    lost: List[str] = field(default_factory=list)
    """Outputs that the server could not read to the end: if they are in the stream, their bytes are worthless."""


READ_OUTPUTS = ApiCall("POST", "/v1/outputs", ArchiveRequest, bytes, PERSON, repeatable=True)
