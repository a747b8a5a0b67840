"""`pilotage policy show|check|apply`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pilotage.cli.moments import moment
from pilotage.cli.session import Session, connected
from pilotage.core.errors import InvalidInput
from pilotage.wire.people import PolicyDocument

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The policy, TOML; - for standard input")]


@connected
def show(session: Session) -> int | None:
    """Print the policy in force; by whom and when it was applied goes to standard error."""
    with session.client() as client:
        document = client.policy()
    if session.as_json:
        session.screen.json(document)
        return None
    applied = moment(document.applied_at, time.time(), exact=not session.screen.terminal)
    session.screen.note(f"# version {document.version}, applied {applied} by {document.applied_by}")
    sys.stdout.write(document.text if document.text.endswith("\n") else document.text + "\n")
    return None


@connected
def check(session: Session, file: FileArgument) -> int | None:
    """Let the server check a policy; nothing is changed."""
    with session.client() as client:
        document = client.apply_policy(policy_text(file), dry_run=True)
    _tell(session, document, f"{file} is a valid policy")
    return None


@connected
def apply(
    session: Session,
    file: FileArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Kept with the policy's history")
    ] = "",
) -> int | None:
    """Make a policy the policy in force, whole; an invalid one changes nothing."""
    with session.client() as client:
        document = client.apply_policy(policy_text(file), reason=reason)
    _tell(session, document, f"{file} is in force as version {document.version}")
    return None


def _tell(session: Session, document: PolicyDocument, text: str) -> None:
    if session.as_json:
        session.screen.json({"version": document.version, "warnings": document.warnings})
        return
    for warning in document.warnings:
        session.screen.note(f"warning: {warning}")
    session.screen.line(text)


def policy_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as trouble:
        raise InvalidInput(f"cannot read {file}: {trouble.strerror}") from trouble
    except UnicodeDecodeError as trouble:
        raise InvalidInput(f"{file} is not a text in UTF-8") from trouble
