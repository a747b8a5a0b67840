"""The facts of a request: data, program, splitting, merge, sites and outputs. `fields.py` explains each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from pilotage.core.jobs.description import JobDescription

Parameter: TypeAlias = int | float | str | bool

DEFAULT_PRIORITY: Final = 8000
MAX_PRIORITY: Final = 999_999
MAX_STEPS: Final = 100

PROCESSING, SKIM, HARVEST = "Processing", "Skim", "Harvest"
MERGE, CLEANUP, LOG_COLLECT = "Merge", "Cleanup", "LogCollect"
STEP_TYPES: Final = (PROCESSING, SKIM, HARVEST)
"""The types that a specification may give. Steps of the other types are added."""

BLOCK, MONTE_CARLO, RESUBMIT = "Block", "MonteCarlo", "Resubmit"
"""The start policies of steps that name none."""

MERGE_ALGORITHM: Final = "MergeBySize"
CLEANUP_ALGORITHM: Final = "FileBased"
LOG_COLLECT_ALGORITHM: Final = "SizeBased"
LOG_BYTES: Final = 1_000_000_000
LOG_FILES: Final = 500
"""Defaults of the largest archive of logs."""

CONCATENATE, REMOVE, ARCHIVE = "concatenate", "remove", "archive"
"""Programs of the pilot itself, as `wire/data.py` names them."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a program's input sandbox that was sent with the request."""

    name: str
    digest: str
    size: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a step. The places, the priority and the type of its jobs are the request's."""

    description: JobDescription
    inputs: tuple[UploadedFile, ...] = ()
    """Empty until the request is accepted."""


@dataclass(frozen=True, slots=True)
class StepSplitting:
    """An algorithm of `core/splitting` and its parameters, which it has checked."""

    algorithm: str
    parameters: tuple[tuple[str, Parameter], ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """How the outputs of a step are merged."""

    parameters: tuple[tuple[str, Parameter], ...] = ()
    """Parameters of the splitting algorithm MergeBySize."""
    program: Program | None = None
    """None: the pilot concatenates the files."""
    cleanup: bool = False
    """Remove the merged outputs of the step, once all of them are merged."""


@dataclass(frozen=True, slots=True)
class Output:
    """The files that a step writes, and the data set that they belong to."""

    files: tuple[str, ...] = ()
    """Names or patterns in the folder of the job. Empty: the step writes no data set."""
    dataset: str = ""
    """Empty: NAME-NUMBER/STEP, from the request and its step."""
    places: tuple[str, ...] = ()
    """Storage places, the best first. Empty: the places of the site."""
    max_size: int = 0
    """Bytes of all files of one job. 0: as the policy has it."""


@dataclass(frozen=True, slots=True)
class LogCollect:
    """How the logs of the jobs of a request become a data set, and then archives."""

    dataset: str = ""
    """The data set of the archives. Empty: NAME-NUMBER/logs."""
    places: tuple[str, ...] = ()
    """Storage places, the best first. Empty: the places of the site."""
    max_size: int = LOG_BYTES
    """Bytes of logs in one archive."""
    max_files: int = LOG_FILES
    """Logs in one archive."""
    cleanup: bool = False
    """Remove the logs of the jobs, once all of them are archived."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often failed jobs are made again, and when. None: the default for the type of the step."""

    max_retries: int | None = None
    cooloff: int | None = None
    """Seconds."""
    growth: str = ""
    """How the cool-off grows with the tries; empty: the default."""
    fatal_exit_codes: tuple[int, ...] = ()
    pass_exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One program on one input."""

    name: str
    program: Program
    splitting: StepSplitting
    type: str = PROCESSING
    start_policy: str = BLOCK
    input: tuple[str, ...] = ()
    """Data sets. Empty: the output of the step `after`, or events that are generated."""
    after: str = ""
    """The name of the step whose output is the input."""
    events: int = 0
    """Events to generate; 0: there is an input."""
    pileup: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    """Only these blocks of the input; empty: all."""
    banned_blocks: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()
    """Only blocks with one of these runs; empty: all."""
    merge: Merge | None = None
    output: Output = Output()
    retry: Retry = Retry()


@dataclass(frozen=True, slots=True)
class Specification:
    """A request as a user wrote it."""

    name: str
    steps: tuple[Step, ...]
    group: str = ""
    """Empty: that of the token."""
    priority: int = DEFAULT_PRIORITY
    team: str = ""
    campaign: str = ""
    sites: tuple[str, ...] | None = None
    """None: all sites."""
    banned_sites: tuple[str, ...] = ()
    trust_input: bool = False
    trust_pileup: bool = False
    open_for: int = 0
    """Seconds for which new blocks of the input become work."""
    log_collect: LogCollect | None = None
    """None: the server alone keeps standard output and error."""
    resubmits: tuple[int, ...] = ()
    """Requests whose failed jobs are made again, each by the next, the last one by this request. No field of a file."""

    @property
    def programs(self) -> dict[str, Program]:
        """The programs by step: NAME, and NAME.merge for the program of its merge."""
        programs = {}
        for step in self.steps:
            programs[step.name] = step.program
            if step.merge is not None and step.merge.program is not None:
                programs[f"{step.name}.merge"] = step.merge.program
        return programs

    @property
    def input_datasets(self) -> tuple[str, ...]:
        """Data sets that must exist before the request."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.input))

    @property
    def pileup_datasets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for step in self.steps for name in step.pileup))
