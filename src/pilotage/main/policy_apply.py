"""`pilotage policy apply`, which tries the policy on the server's own history first if that is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pilotage.cli.parser import CommandOption
from pilotage.cli.policy.files import FileArgument, policy_for_server
from pilotage.cli.policy.versions import ExpectOption, ReasonOption, report_change
from pilotage.cli.session import Session, connected
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.main.twin_inputs import TwinInputs
    from pilotage.twin.report.study import Study

SEEDS: Final = 2
MOST_SECONDS: Final = 600.0
"""Seconds after which the open runs are ended."""
IN_FORCE: Final = "the policy in force"
INTERRUPTED: Final = 130


@connected
def apply(
    session: Session,
    file: FileArgument,
    reason: ReasonOption = "",
    expect: ExpectOption = None,
    what_if: Annotated[
        str,
        CommandOption(
            "First run it and the policy in force on the jobs of this period, such as 7d, in virtual time (at most"
            " 10 min); print the differences, then ask",
            "TIME",
        ),
    ] = "",
    yes: Annotated[
        bool, CommandOption("Do not ask for confirmation after --what-if", names="-y --yes")
    ] = False,
) -> int | None:
    """Put a policy file into force. An invalid file changes nothing."""
    text, more = policy_for_server(file), dict[str, object]()
    if what_if:
        with session.client() as client:
            client.apply_policy(text, dry_run=True, expect=expect)
        inputs, version = _history(session, what_if)
        study = _compare(session, inputs, file, text)
        if study.interrupted:
            session.screen.note("pilotage: interrupted: nothing is applied")
            return INTERRUPTED
        more = _told(session, study)
        question = f"put {file} into force instead of version {version}?"
        if not yes and not session.screen.ask(question):
            session.screen.json(more)
            raise InvalidInput(f"nothing done: {question}", hint="use -y to skip the confirmation")
        # The differences hold for the version that they were computed with.
        expect = expect or version
    with session.client() as client:
        document = client.apply_policy(text, reason=reason, expect=expect)
    report_change(session, document, f"{file} is in force as version {document.version}", more=more)
    return None


def _history(session: Session, period: str) -> tuple[TwinInputs, int]:
    """The jobs of the period that ends now, and the version of the policy in force."""
    from pilotage.main.twin_inputs import recorded_inputs
    from pilotage.main.twin_record import ask_server, parse_period

    record = ask_server(session, parse_period(period), names=True)
    return recorded_inputs(f"the last {period}", record, None), record.header.policy_version


def _compare(session: Session, inputs: TwinInputs, file: str, text: str) -> Study:
    """Run both policies on the same jobs."""
    from pilotage.main.twin import make_study
    from pilotage.main.twin_runs import RunInputs, SeededRun, run_seeds
    from pilotage.twin.run import run_twin

    screen = session.screen
    policies: Mapping[str, str] = {IN_FORCE: inputs.recorded_policy, Path(file).name: text}
    prepared = inputs.prepare(policies, None)
    notes = (*inputs.notes, *prepared.notes)
    for note in notes:
        screen.note(f"note: {note}")
    runs = [SeededRun(name, text, seed) for seed in range(1, SEEDS + 1) for name, text in policies.items()]
    with screen.progress("what-if") as advance:
        shared = RunInputs(prepared.jobs, inputs.ces, None, run_twin)
        count = min(len(os.sched_getaffinity(0)), len(runs))
        finished = run_seeds(runs, shared, count, advance, tells_time=screen.moving, within=MOST_SECONDS)
    for run, why in finished.failures.items():
        screen.note(f"pilotage: the run of {run.policy} with seed {run.seed} failed: {why}")
    if finished.out_of_time:
        screen.note(f"note: runs that had not ended after {MOST_SECONDS:.0f} s do not count")
    return make_study(inputs.name, runs, finished, prepared.jobs, inputs.ces, notes)


def _told(session: Session, study: Study) -> dict[str, object]:
    """Print the differences; the same for JSON. Raises `InvalidInput` if no seed has run with both policies."""
    from pilotage.main.twin import print_differences
    from pilotage.twin.report.differences import compare_policies

    comparisons = compare_policies(study.finished)
    if not comparisons or not comparisons[0].seeds:
        raise InvalidInput(
            "nothing done: no seed has run with both policies", hint="give --what-if a shorter period"
        )
    [comparison] = comparisons
    session.screen.line(
        f"{plural(study.jobs, 'job')} of {study.trace}, with {plural(len(comparison.seeds), 'seed')}"
    )
    print_differences(study, session.screen)
    for sentence in study.standstills:
        session.screen.line(sentence)
    return {
        "what_if": {
            "jobs": study.jobs,
            "seeds": list(comparison.seeds),
            "differences": [difference.text for difference in comparison.differences],
            "unchanged": list(comparison.unchanged),
            "standstills": list(study.standstills),
            "notes": list(study.notes),
        }
    }
