"""The data of one job of a request: the files it reads, the events it makes, and the places of its outputs.

A `DataOrder` travels in the payload that a pilot receives, and `StoredFile` in the pilot's finish. Both follow the
rules of `wire/pilot.py`: Python 3.9, a default for every new field, unknown fields are ignored. A pilot that is too
old to know orders sends no list of files with its finish. The server does not take such a finish for a success.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List

from .limits import Bounds, FileEvents, FileName, FileSize, Lumi, Name

MAX_STORED_FILES = 10_000
"""Output files of one job."""
MAX_LUMI_RANGES = 10_000
"""Ranges of lumis in one output file."""
MAX_LUMI_RANGES_OF_JOB = 30_000
"""Ranges of lumis in all output files of one job, so that its finish fits in a message."""

CONCATENATE = "concatenate"
"""The pilot writes the contents of all input files, one after the other, to one output."""
REMOVE = "remove"
"""The pilot removes the input files from the storage places."""
ARCHIVE = "archive"
"""The pilot writes all input files to one tar file."""
ACTIONS = (CONCATENATE, REMOVE, ARCHIVE)
"""Programs of the pilot itself. Storage places are reachable by pilots, not by isolated payloads."""

FOLDER, S3, COMMAND = "folder", "s3", "command"
"""The types of storage places."""

LumiRanges = Annotated[List[Lumi], Bounds(longest=MAX_LUMI_RANGES)]
Path = Annotated[str, Bounds(longest=4000)]


@dataclass
class DataFile:
    """One input file, and the part of it that the job reads."""

    name: str
    """Its name in the data set."""
    path: str
    """An absolute path at the site of the pilot, or a URL."""
    size: int = 0
    """Bytes; 0: not known."""
    checksum: str = ""
    """ALGORITHM:HEX; empty: not known."""
    events: int = 0
    """Events in the whole file."""
    first_event: int = 0
    """The first event to read; the first one of a file is 0."""
    event_count: int = 0
    """Events to read."""
    lumis: List[List[int]] = field(default_factory=list)
    """Only these lumis are read, each range as [run, first, last]; empty: all."""


@dataclass
class StoragePlace:
    """Storage that pilots of a site can write to, or read."""

    name: str
    path: str
    """An absolute path at the site; of other types: the beginning of the addresses of its files."""
    type: str = FOLDER
    """folder, s3 or command."""
    patience: float = 0.0
    """Seconds for which a pilot tries again while the place does not answer."""
    put: List[str] = field(default_factory=list)
    """The words of the command that stores {file} at {url}, at a place of commands."""
    get: List[str] = field(default_factory=list)
    """The words of the command that copies {url} to {file}; empty: programs open the addresses themselves."""
    check: List[str] = field(default_factory=list)
    """The words of the command that prints the checksum of {url}; empty: stored files are copied back by `get`."""
    remove: List[str] = field(default_factory=list)
    """The words of the command that removes {url}; empty: nothing is removed."""
    timeout: float = 0.0
    """Seconds after which a command is ended."""


@dataclass
class DataOrder:
    """The input and output of one job of a request."""

    request: int = 0
    request_name: str = ""
    step: str = ""
    """The name of the step."""
    type: str = ""
    """Processing, Merge, Cleanup, LogCollect, Harvest or Skim."""
    element: int = 0
    files: List[DataFile] = field(default_factory=list)
    first_event: int = 0
    """The number of the first event of a generator."""
    events: int = 0
    """Events to process or to generate."""
    first_lumi: int = 0
    """The first lumi of a generator."""
    lumis: int = 0
    """The number of lumis of a generator."""
    seed: int = 0
    """Differs between the jobs of a request; a further attempt of a job has the same."""
    outputs: List[str] = field(default_factory=list)
    """Names or patterns of the files in the job's folder that belong to the output data set."""
    max_output: int = 0
    """Bytes of all these files; a job that writes more fails. 0: no limit."""
    dataset: str = ""
    """The output data set; empty: there is none."""
    folder: str = ""
    """Where the output data set stands below each place: a relative path."""
    places: List[StoragePlace] = field(default_factory=list)
    """The places to store outputs, the best first."""
    checksum: str = "adler32"
    """The algorithm for the outputs: adler32 or sha256."""
    action: str = ""
    """A program of the pilot (see ACTIONS) instead of the payload's; empty: the payload's."""
    keep: List[str] = field(default_factory=list)
    """For REMOVE: names below `folder` that stay."""
    sweep: List[str] = field(default_factory=list)
    """For REMOVE: folders below `folder`. Of their files, only the names in `keep` stay."""
    log_name: str = ""
    """The file with the logs of this job, failed or not; empty: logs are not stored."""
    log_folder: str = ""
    """Where the log data set stands below each place: a relative path."""
    log_places: List[StoragePlace] = field(default_factory=list)
    """The places to store logs, the best first."""
    sources: List[StoragePlace] = field(default_factory=list)
    """The places of input files that are no folders of the node."""


@dataclass
class StoredFile:
    """A file that a pilot has written to a storage place. The file is complete and flushed to disk."""

    name: FileName
    """Its name in the data set: its path is PREFIX/NAME."""
    pattern: FileName
    """The pattern of `DataOrder.outputs` that it matched."""
    place: Name
    """The name of the storage place."""
    prefix: Path
    """The folder of the data set at this place."""
    size: FileSize
    checksum: Name
    """ALGORITHM:HEX"""
    events: FileEvents = 0
    lumis: LumiRanges = field(default_factory=list)
    etag: Name = ""
    """The mark of its contents that an S3 service has given; empty: it lies elsewhere."""
