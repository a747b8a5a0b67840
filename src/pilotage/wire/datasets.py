"""Messages about data sets. Their names may contain slashes, so they are parameters, not parts of an address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from pilotage.wire.call import DATA, PERSON, ApiCall
from pilotage.wire.limits import Bounds, Cursor, FileEvents, FileName, FileSize, GivenName, Id, Lumi, Name
from pilotage.wire.queries import PageQuery, PageSize

MAX_FILES_AT_ONCE = 5000
"""Files in one request."""
MAX_LUMIS = 10_000
"""Records [run, first, last] of one file."""

EntryName = Annotated[str, Bounds(shortest=1, longest=1000)]
"""The name of a block or file, relative to the prefix of a replica."""
Checksum = Annotated[str, Bounds(longest=200)]


@dataclass
class DataSetChange:
    """A data set to close or remove."""

    name: GivenName


@dataclass
class DataSetCreate:
    """Make an open data set, unless the caller has one of this name."""

    name: GivenName
    group: Name = ""
    """Empty: the caller's group."""


@dataclass
class DataSetFile:
    """One file to register."""

    name: EntryName
    size: FileSize = 0
    """0: not known."""
    events: FileEvents = 0
    """0: not known."""
    checksum: Checksum = ""
    """ALGORITHM:HEX; empty: not known."""
    lumis: Annotated[List[Lumi], Bounds(longest=MAX_LUMIS)] = field(default_factory=list)
    """[run, first, last]; empty: none are known."""


@dataclass
class ReplicaLocation:
    """The files of a block at a site. The path of a file there is the prefix, a slash and its name."""

    site: Name = ""
    """Empty: the site of the server's machine. "*": every site can read it."""
    prefix: FileName = ""
    """A folder or URL. Empty, for a further replica: as at the other sites."""


@dataclass
class FilesAdd:
    """Add files to a block of a data set. Files that are registered already change nothing."""

    dataset: GivenName
    block: EntryName
    files: Annotated[List[DataSetFile], Bounds(longest=MAX_FILES_AT_ONCE)]
    replicas: Annotated[List[ReplicaLocation], Bounds(longest=1000)] = field(default_factory=list)
    """Where the files are. Empty: not known."""
    complete: bool = True
    """Close the block with these files, so that requests can process it."""


@dataclass
class FilesAdded:
    files: int
    """New files."""
    known: int
    """Files that were registered already."""
    closed: int
    """Blocks that were closed."""
    warnings: List[str] = field(default_factory=list)


@dataclass
class ReplicasChange:
    """Change the replicas of all blocks of a data set, or of one block."""

    dataset: GivenName
    block: Optional[EntryName] = None
    """None: all blocks."""
    add: Annotated[List[ReplicaLocation], Bounds(longest=100)] = field(default_factory=list)
    remove: Annotated[List[GivenName], Bounds(longest=100)] = field(default_factory=list)
    """Sites. A block that loses its last replica is known to be nowhere."""
    forget: bool = False
    """Delete all replicas, so that the location is not known."""


@dataclass
class ReplicasChanged:
    blocks: int
    moved: int
    """Blocks that are at other sites than before."""


@dataclass
class DataSetSummary:
    id: int
    name: str
    owner: str
    group: str
    created: float
    open: bool
    """More blocks may come."""
    request: Optional[int] = None
    """The request that writes it; None: a user has registered it."""
    step: Optional[int] = None
    catalogue: str = ""
    """The outside catalogue that it is copied from, or registered in if a request writes it; empty: none."""
    blocks: int = 0
    open_blocks: int = 0
    files: int = 0
    events: int = 0
    size: int = 0
    """Bytes."""


@dataclass
class DataSetsPage:
    datasets: List[DataSetSummary]
    next: Optional[int] = None


@dataclass
class DataSetSite:
    """The part of a data set at a site."""

    site: str
    blocks: int
    files: int
    size: int
    known: Optional[float] = None
    """The oldest of the times at which its replicas there were last known to be true."""


@dataclass
class DataSetReport:
    """A data set and where it is."""

    dataset: DataSetSummary
    sites: List[DataSetSite] = field(default_factory=list)
    unknown: int = 0
    """Blocks whose location is not known."""
    nowhere: int = 0
    """Blocks that are known to be at no site."""


@dataclass
class ReplicaSummary:
    site: str
    prefix: str
    known: float
    """When this was last known to be true."""


@dataclass
class BlockSummary:
    id: int
    name: str
    created: float
    open: bool
    """More files may come; requests do not process it yet."""
    files: int
    events: int
    size: int
    located: Optional[float]
    """When its location was last known; None: it is not known."""
    replicas: List[ReplicaSummary] = field(default_factory=list)


@dataclass
class BlocksPage:
    blocks: List[BlockSummary]
    next: Optional[int] = None


@dataclass
class FileSummary:
    id: int
    name: str
    size: int
    events: int
    checksum: str = ""
    lumis: List[List[int]] = field(default_factory=list)
    element_job: Optional[Id] = None
    """The element job that wrote it; None: a user has registered it."""


@dataclass
class DataSetFilesPage:
    files: List[FileSummary]
    next: Optional[int] = None


@dataclass
class DataSetsQuery(PageQuery):
    """Some of the data sets."""

    contains: Name = ""
    """Only names with this text in them."""
    owner: Name = ""


@dataclass
class DataSetQuery:
    """One data set."""

    name: GivenName


@dataclass
class BlocksQuery:
    """Blocks of a data set."""

    name: GivenName
    after: Cursor = 0
    limit: PageSize = 100


@dataclass
class FilesQuery:
    """Files of a block."""

    name: GivenName
    block: FileName
    after: Cursor = 0
    limit: PageSize = 100


LIST_DATASETS = ApiCall("GET", "/v1/datasets", DataSetsQuery, DataSetsPage, PERSON)
CREATE_DATASET = ApiCall("POST", "/v1/datasets", DataSetCreate, DataSetSummary, DATA, repeatable=True)
REPORT_DATASET = ApiCall("GET", "/v1/datasets/report", DataSetQuery, DataSetReport, PERSON)
LIST_BLOCKS = ApiCall("GET", "/v1/datasets/blocks", BlocksQuery, BlocksPage, PERSON)
LIST_FILES = ApiCall("GET", "/v1/datasets/files", FilesQuery, DataSetFilesPage, PERSON)
ADD_FILES = ApiCall("POST", "/v1/datasets/files", FilesAdd, FilesAdded, DATA, repeatable=True)
CHANGE_REPLICAS = ApiCall(
    "POST", "/v1/datasets/replicas", ReplicasChange, ReplicasChanged, DATA, repeatable=True
)
CLOSE_DATASET = ApiCall("POST", "/v1/datasets/close", DataSetChange, DataSetSummary, DATA, repeatable=True)
REMOVE_DATASET = ApiCall("POST", "/v1/datasets/remove", DataSetChange, DataSetSummary, DATA)
