"""`pilotage twin`: policies are tried on the jobs of a trace, in virtual time. No server is changed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pilotage.cli.parser import CommandOption
from pilotage.cli.session import HomeOption, ServerOption, TokenFileOption
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.cli.console import CommandOutput
    from pilotage.cli.session import Session
    from pilotage.main.twin_inputs import TwinInputs
    from pilotage.main.twin_runs import FinishedRuns, SeededRun
    from pilotage.twin.ces import TwinCe
    from pilotage.twin.report.study import Study
    from pilotage.twin.workload import TraceJobs

STANDSTILL: Final = 1
INTERRUPTED: Final = 130
FAILED_RUNS: Final = 70

TraceOption = Annotated[
    Path, CommandOption("Trace in the Standard Workload Format (.swf), also compressed by gzip", "FILE")
]
RunTraceOption = Annotated[
    Path | None,
    CommandOption(
        "Trace in the Standard Workload Format (.swf), also compressed by gzip; or give --history", "FILE"
    ),
]
HistoryOption = Annotated[
    str,
    CommandOption(
        "Record of a server's own work (`twin record`), or a period such as 30d, which is asked of the server",
        "FILE|TIME",
    ),
]
MemoryUnitOption = Annotated[
    str,
    CommandOption(
        "Unit of requested memory in the trace: kb-per-processor (the format's), bytes, none (not read)",
        "UNIT",
    ),
]
CesOption = Annotated[Path | None, CommandOption("CEs with their nodes, waits and failures (TOML)", "FILE")]
CoresOption = Annotated[
    int,
    CommandOption(
        "Cores of one CE, instead of --ces; default: MaxProcs of the trace", "N", min=0, max=1_000_000
    ),
]
ShareOption = Annotated[
    list[str] | None,
    CommandOption("Share of a group in the default policy; all others have 1000", "GROUP=NUMBER"),
]


@dataclass(frozen=True)
class TraceOrHistory:
    """The options that say which jobs are run, and where."""

    trace: Path | None
    history: str
    memory_unit: str
    ces: Path | None
    cores: int


def run(
    out: Annotated[Path, CommandOption("New or empty folder for the report", "DIR")],
    trace: RunTraceOption = None,
    history: HistoryOption = "",
    policy: Annotated[
        list[str] | None,
        CommandOption(
            "Policy to try; several are compared with the first. Default: that of the record, or equal shares of"
            " all groups",
            "FILE",
        ),
    ] = None,
    ces: CesOption = None,
    cores: CoresOption = 0,
    share: ShareOption = None,
    memory_unit: MemoryUnitOption = "kb-per-processor",
    seeds: Annotated[int, CommandOption("Number of runs of each policy", "N", min=1, max=1000)] = 5,
    until: Annotated[
        str, CommandOption("Virtual time of a run, such as 7d; default: until all jobs have ended", "TIME")
    ] = "",
    processes: Annotated[int, CommandOption("Runs at the same time; 0: one a core", "N", min=0)] = 0,
    home: HomeOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
) -> int:
    """Try policies on the jobs of a trace or of a server's history, and write a report. Ctrl-C keeps finished runs."""
    from pilotage.cli.console import CommandOutput
    from pilotage.cli.session import Session
    from pilotage.cli.time_format import parse_duration
    from pilotage.main.twin_runs import RunInputs, SeededRun, run_seeds
    from pilotage.twin.report.files import open_folder

    screen, limit = CommandOutput(), parse_duration(until) if until else None
    if limit is not None and limit <= 0:
        raise InvalidInput("--until must be longer than 0 s")
    given = TraceOrHistory(trace, history, memory_unit, ces, cores)
    inputs = _inputs(given, Session(home, server, token_file, screen))
    texts = inputs.policy_texts(policy or [], share or [])
    prepared = inputs.prepare(texts, limit)
    open_folder(out)
    notes = (*inputs.notes, *prepared.notes)
    for note in notes:
        screen.note(f"note: {note}")
    runs = [SeededRun(name, text, seed) for seed in range(1, seeds + 1) for name, text in texts.items()]
    count = min(processes or len(os.sched_getaffinity(0)), len(runs))
    from pilotage.twin.run import run_twin

    with screen.progress("twin") as advance:
        shared = RunInputs(prepared.jobs, inputs.ces, limit, run_twin)
        finished = run_seeds(runs, shared, count, advance, tells_time=screen.moving)
    study = make_study(inputs.name, runs, finished, prepared.jobs, inputs.ces, notes)
    return _report(study, finished, out, screen)


def _inputs(given: TraceOrHistory, session: Session) -> TwinInputs:
    from pilotage.main.twin_inputs import read_inputs, recorded_inputs

    if (given.trace is None) == (not given.history):
        raise InvalidInput("give either --trace or --history")
    if given.trace is not None:
        return read_inputs(given.trace, given.memory_unit, given.ces, given.cores, session.screen)
    from pilotage.main.twin_record import record_of

    if given.cores:
        raise InvalidInput("--cores is for a trace", hint="a record has its CEs; --ces FILE replaces them")
    return recorded_inputs(given.history, record_of(given.history, session), given.ces)


def policy(
    trace: TraceOption,
    ces: CesOption = None,
    cores: CoresOption = 0,
    share: ShareOption = None,
    memory_unit: MemoryUnitOption = "kb-per-processor",
) -> int:
    """Print the default policy of a trace, with its groups and users: the one to change for `twin run --policy`."""
    from pilotage.cli.console import CommandOutput
    from pilotage.main.twin_inputs import read_inputs

    inputs = read_inputs(trace, memory_unit, ces, cores, CommandOutput())
    (text,) = inputs.policy_texts([], share or []).values()
    sys.stdout.write(text)
    return 0


def make_study(
    name: str,
    runs: Sequence[SeededRun],
    finished: FinishedRuns,
    jobs: TraceJobs,
    ces: tuple[TwinCe, ...],
    notes: tuple[str, ...],
) -> Study:
    """The figures of the finished runs, by policy."""
    from pilotage.twin.report.study import PolicyRuns, Study, describe_fits

    policies = {run.policy: PolicyRuns(run.policy) for run in runs}
    for run in runs:
        if (measures := finished.measures.get(run)) is not None:
            policies[run.policy].runs.append(measures)
    return Study(
        trace=name,
        jobs=len(jobs),
        seeds=tuple(dict.fromkeys(run.seed for run in runs)),
        policies=tuple(policies.values()),
        fits=describe_fits(jobs, ces),
        notes=notes,
        interrupted=finished.interrupted,
    )


def _report(study: Study, finished: FinishedRuns, out: Path, screen: CommandOutput) -> int:
    """Write and print the report of the finished runs, and give the exit code."""
    from pilotage.twin.report.files import write_report

    for run, reason in finished.failures.items():
        screen.note(f"pilotage: the run of {run.policy} with seed {run.seed} failed: {reason}")
    if study.finished:
        _print_report(study, screen)
        page, *others = write_report(study, out)
        screen.line(f"{page} has the report, with {len(others)} further files beside it")
    else:
        with contextlib.suppress(OSError):
            out.rmdir()
    if finished.interrupted:
        screen.note("pilotage: interrupted" + ("" if study.finished else ": no run had finished"))
        return INTERRUPTED
    if finished.failures:
        return FAILED_RUNS
    return STANDSTILL if study.standstills else 0


def _print_report(study: Study, screen: CommandOutput) -> None:
    from pilotage.cli.console import Column
    from pilotage.twin.report.tables import tables_of

    for runs in study.finished:
        for table in tables_of(runs):
            screen.line(f"{runs.name}: {table.title}")
            columns = [Column(name, right=place >= table.texts) for place, name in enumerate(table.columns)]
            screen.table(columns, table.rows)
    print_differences(study, screen)
    for sentence in study.fits:
        screen.line(f"fit: {sentence}")
    for sentence in study.not_simulated:
        screen.line(f"not simulated: {sentence}")
    for sentence in (*study.standstills, study.partial):
        if sentence:
            screen.line(sentence)


def print_differences(study: Study, screen: CommandOutput) -> None:
    """Print the differences of each further policy from the first one."""
    from pilotage.twin.report.differences import SHOWN, compare_policies

    for comparison in compare_policies(study.finished):
        screen.line(f"{comparison.name} instead of {comparison.base}:")
        for difference in comparison.differences[:SHOWN]:
            screen.line(f"  {difference.text}")
        for sentence in comparison.unchanged:
            screen.line(f"  unchanged: {sentence}")
