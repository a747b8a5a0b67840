"""Reads the files of `pilotage twin`: the trace, the CEs, the policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pilotage.cli.policy.files import policy_for_server, policy_text
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural
from pilotage.core.policy import Policy, parse
from pilotage.twin.ces import TwinCe
from pilotage.twin.ces_file import one_ce, parse_ces
from pilotage.twin.preparation import PreparedJobs, prepare_jobs
from pilotage.twin.record import WorkRecord
from pilotage.twin.served_policy import prepare_recorded_jobs
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload import TraceJobs
from pilotage.twin.workload.swf import MemoryUnit, SwfTrace, read_swf

if TYPE_CHECKING:
    from pilotage.cli.console import CommandOutput

DEFAULT_POLICY: Final = "default policy"
RECORDED_POLICY: Final = "recorded policy"


@dataclass(frozen=True, slots=True)
class TwinInputs:
    """The jobs of a trace or of a record, and where they run."""

    name: str
    jobs: TraceJobs
    ces: tuple[TwinCe, ...]
    notes: tuple[str, ...]
    """Sentences about the jobs that are left out, and about jobs that are simplified."""
    recorded_policy: str = ""
    """The policy of a record; a trace has none."""

    def policy_texts(self, files: Sequence[str], shares: Sequence[str]) -> dict[str, str]:
        """The policies to try, by the names that the report has; without files the default policy."""
        if not files and not self.recorded_policy:
            return {DEFAULT_POLICY: policy_of_trace(self.jobs, self.ces, _shares(shares))}
        if shares:
            raise InvalidInput(
                "--share changes the default policy only", hint="write the shares into the policy"
            )
        if not files:
            return {RECORDED_POLICY: self.recorded_policy}
        if len(set(files)) < len(files):
            raise InvalidInput("--policy names one file twice")
        names = [Path(file).name for file in files]
        if len(set(names)) < len(names):
            names = list(files)
        return {name: policy_for_server(file) for name, file in zip(names, files, strict=True)}

    def prepare(self, texts: Mapping[str, str], until: float | None) -> PreparedJobs:
        """The jobs that can start with each of these policies."""
        prepare = prepare_recorded_jobs if self.recorded_policy else prepare_jobs
        return prepare(self.jobs, parse_policies(texts), self.ces, until)


def read_inputs(
    trace: Path, memory_unit: str, ces: Path | None, cores: int, screen: CommandOutput
) -> TwinInputs:
    """Read the trace, and the CEs or the cores of one CE."""
    units = [unit.value for unit in MemoryUnit]
    if memory_unit not in units:
        raise InvalidInput(f"there is no memory unit {memory_unit}", hint=f"units: {', '.join(units)}")
    if ces is not None and cores:
        raise InvalidInput(
            "--ces and --cores contradict each other", hint="name the cores in the file of --ces"
        )
    given = None if ces is None else _read_ces(ces)
    with screen.progress("trace") as advance:
        read = read_swf(
            trace, MemoryUnit(memory_unit), lambda lines: advance(0, 0, f"{lines:,} lines of {trace.name}")
        )
    return TwinInputs(trace.name, read.jobs, given or _ce_of_trace(trace, read, cores), tuple(_notes(read)))


def recorded_inputs(name: str, record: WorkRecord, ces: Path | None) -> TwinInputs:
    """The jobs of a record, with its own CEs or the CEs of a file. Raises `InvalidInput` if it has no jobs."""
    if not len(record.jobs):
        raise InvalidInput(f"{name} has no jobs; {'; '.join(record.notes) or 'none came in its period'}")
    given = record.ces if ces is None else _read_ces(ces)
    return TwinInputs(name, record.jobs, given, tuple(record.notes), record.header.policy)


def parse_policies(texts: Mapping[str, str]) -> dict[str, Policy]:
    """The policies; an error names its file."""
    parsed = {}
    for name, text in texts.items():
        try:
            parsed[name] = parse(text)
        except InvalidInput as error:
            error.file = name
            raise
    return parsed


def _read_ces(file: Path) -> tuple[TwinCe, ...]:
    try:
        return parse_ces(policy_text(str(file)))
    except InvalidInput as error:
        error.file = error.file or (str(file) if error.line is not None else "")
        raise


def _ce_of_trace(path: Path, trace: SwfTrace, cores: int) -> tuple[TwinCe, ...]:
    cores = cores or trace.max_procs
    if not cores:
        raise InvalidInput(
            f"the header of {path} does not tell the number of processors (MaxProcs)",
            hint="give --cores N, or the CEs with --ces FILE",
        )
    return one_ce(cores, int(trace.jobs.rows["processors"].max()))


def _shares(given: Sequence[str]) -> dict[str, float]:
    shares = {}
    for text in given:
        group, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not (group and equals and 0 <= value <= 1e12):
            raise InvalidInput(
                f"--share {text} is not GROUP=NUMBER", hint="write such as --share group3=2000"
            )
        shares[group] = value
    return shares


def _notes(trace: SwfTrace) -> Iterator[str]:
    yield from trace.left_out.sentences()
    overran = trace.jobs.rows
    longer = int(((overran["wall"] > 0) & (overran["run"] > overran["wall"])).sum())
    if longer:
        yield f"{plural(longer, 'job')} ran longer than asked for; here their time has no limit of its own"
    if trace.dependent:
        yield f"{plural(trace.dependent, 'job')} followed another job in the trace; here they do not wait for it"
