"""`pilotage policy show|check|history|rollback`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.policy.files import FileArgument, policy_for_server
from pilotage.cli.session import LimitOption, Session, connected
from pilotage.core.errors import Unreachable

if TYPE_CHECKING:
    from pilotage.wire.policy import PolicyDocument, PolicyVersion

MAX_VERSION = 10**15
"""Upper bound of version numbers."""

ReasonOption = Annotated[
    str, CommandOption("Reason to record in the policy history", "TEXT", may_be_empty=True)
]
ExpectOption = Annotated[
    int | None,
    CommandOption("Fail with exit code 5 unless this version is in force", "VERSION", min=1, max=MAX_VERSION),
]


@connected
def show(
    session: Session,
    version: Annotated[
        int | None,
        CommandOption("Version to show; default: the one in force", "VERSION", min=1, max=MAX_VERSION),
    ] = None,
) -> None:
    """Print the policy in force. Version, time and author are printed to standard error."""
    with session.client() as client:
        document = client.policy() if version is None else client.policy_version(version)
    if session.as_json:
        session.screen.json(document)
        return
    applied = session.screen.instant(document.applied_at)
    reason = f": {document.reason}" if document.reason else ""
    session.screen.note(f"# version {document.version}, applied {applied} by {document.applied_by}{reason}")
    sys.stdout.write(document.text if document.text.endswith("\n") else document.text + "\n")


@connected
def check(
    session: Session,
    file: FileArgument,
    offline: Annotated[
        bool, CommandOption("Check without a server; the effect on waiting jobs is not checked")
    ] = False,
) -> None:
    """Check a policy file: errors, warnings, and waiting jobs that could not start. Nothing is changed."""
    text = policy_for_server(file)
    if offline:
        document = _check_offline(text)
    else:
        try:
            with session.client() as client:
                document = client.apply_policy(text, dry_run=True)
        except Unreachable as error:
            hint = f"{error.hint}; or use --offline to check without a server".removeprefix("; or ")
            raise Unreachable(error.message, hint=hint) from None
    if not session.as_json:
        for note in document.properties:
            session.screen.note(f"note: {note}")
    report_change(session, document, f"{file} is a valid policy", offline=offline, would="would not start")


def _check_offline(text: str) -> PolicyDocument:
    """The part of the check that needs no server. Checks that only the server's machine can make are named."""
    from pilotage.core.brokering.policy_suspicions import policy_suspicions
    from pilotage.core.policy import known_properties, parse, warnings

    policy = parse(text)
    suspicious = [*warnings(policy), *policy_suspicions(policy)]
    if asked := [name for name, ce in policy.ces.items() if ce.type != "local"]:
        named = ", ".join(asked[:3]) + (f" and {len(asked) - 3} more" if len(asked) > 3 else "")
        suspicious.append(f"--offline: hooks, and names in the batch systems, of {named} were not checked")
    return wire.policy.PolicyDocument(0, text, 0.0, "", suspicious, properties=known_properties(policy))


DEFAULT_ROWS = 50


@connected
def history(
    session: Session,
    limit: LimitOption = None,
) -> None:
    """List the versions of the policy, newest first, with time, author and reason."""
    with session.client() as client:
        versions = session.screen.first_rows(client.policy_versions(), limit, DEFAULT_ROWS)
    session.screen.json({"versions": versions})
    columns: Columns[PolicyVersion] = (
        (Column("version", right=True), lambda version: version.version),
        (Column("applied"), lambda version: session.screen.instant(version.applied_at)),
        (Column("by"), lambda version: version.applied_by),
        (Column("reason", text=True), lambda version: version.reason),
    )
    session.screen.listing(columns, versions)


@connected
def rollback(
    session: Session,
    version: Annotated[
        int, CommandArgument("Version to put into force again", "VERSION", min=1, max=MAX_VERSION)
    ],
    reason: ReasonOption = "",
    expect: ExpectOption = None,
) -> None:
    """Put the text of an earlier version into force again, as a new version. Fails if it is no longer valid."""
    with session.client() as client:
        document = client.roll_back_policy(version, reason=reason, expect=expect)
    report_change(session, document, f"version {version} is in force again, as version {document.version}")


def report_change(
    session: Session,
    document: PolicyDocument,
    text: str,
    *,
    offline: bool = False,
    would: str = "do not start",
    more: Mapping[str, object] | None = None,
) -> None:
    """Print the effects of a policy on waiting jobs and live pilots. `more`: further entries of the JSON document."""
    if session.as_json:
        shown = {
            "version": None if offline else document.version,
            "warnings": document.warnings,
            "properties": document.properties,
        }
        left = {
            "stranded_jobs": document.stranded_jobs,
            "stranded": document.stranded,
            "pilots_left": document.pilots_left,
        }
        session.screen.json((shown if offline else shown | left) | dict(more or {}))
        return
    for line in _warning_lines(document, would):
        session.screen.note(line)
    session.screen.line(text)


def _warning_lines(document: PolicyDocument, would: str) -> Iterator[str]:
    yield from (f"warning: {warning}" for warning in document.warnings)
    for entity in document.stranded:
        whose = f"{entity.owner} in group {entity.group}" if entity.owner else f"group {entity.group}"
        why = "the user is not in it" if entity.owner else "there is no such group"
        one_job = entity.waiting == 1
        jobs = "job" if one_job else "jobs"
        what = would.replace("do not", "does not") if one_job else would
        stay = "stays" if one_job else "stay"
        yield f"warning: {entity.waiting:,} waiting {jobs} of {whose} {what} ({why}), but {stay}"
    listed = sum(entity.waiting for entity in document.stranded)
    if document.stranded_jobs > listed:
        yield f"warning: and {document.stranded_jobs - listed:,} more of others"
    for left in document.pilots_left:
        where = f"{left.site}, CE {left.ce}, which is not in the policy"
        yield f"warning: live pilots at {where}: {left.pilots:,}; they get no more jobs"
