"""`pilotage policy init|import`: they need no server."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotage.cli.session import Session, connected
from pilotage.core.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from pilotage.core.policy.dirac_cfg import ImportedPolicy

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The policy, TOML; - for standard input")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file if it is there already")]

SHOWN = 100
"""So many things that were not taken are listed; --json has all."""


@connected
def init(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to write it; - for standard output")
    ] = "policy.toml",
    force: ForceOption = False,
) -> int | None:
    """Write a policy to begin with, explained line by line. It needs no server."""
    from pilotage.core.policy import annotated

    text = annotated(_account(), socket.gethostname().partition(".")[0] or "home")
    if file != "-":
        _write(file, text, force)
    if session.as_json:
        session.screen.json({"file": None if file == "-" else file, "text": text})
    elif file == "-":
        sys.stdout.write(text)
    else:
        session.screen.line(
            f"{file} is written: edit it, then `pilotage policy check` and `pilotage policy apply`"
        )
    return None


@connected
def import_cfg(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A DIRAC configuration (.cfg); - for standard input")
    ],
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the policy there instead of printing it"),
    ] = None,
    section: Annotated[
        str, typer.Option("--section", metavar="PATH", help="Which ShareCorrections, if there are several")
    ] = "",
    force: ForceOption = False,
) -> int | None:
    """Make a policy of a DIRAC configuration; what is not taken is listed with its line. It needs no server."""
    from pilotage.core.policy.dirac_cfg import import_policy

    made = import_policy(policy_text(file), section=section)
    if out and out != "-":
        _write(out, made.text, force)
    if session.as_json:
        shown = {"file": out, "section": made.section or None, "text": made.text}
        session.screen.json(shown | {"left": made.omissions, "notes": made.notes})
        return None
    if out and out != "-":
        session.screen.line(f"{out}: {_summarise(made)}")
    else:
        sys.stdout.write(made.text)
    _report_unconverted(session, made)
    return None


def _report_unconverted(session: Session, made: ImportedPolicy) -> None:
    from pilotage.core.policy import warnings

    for one in made.omissions[:SHOWN]:
        session.screen.note(f"not taken: line {one.line}: {one.path} ({one.value}): {one.reason}")
    if len(made.omissions) > SHOWN:
        session.screen.note(f"not taken: {len(made.omissions) - SHOWN:,} more; --json lists all")
    for note in made.notes:
        session.screen.note(f"note: {note}")
    for warning in warnings(made.policy):
        session.screen.note(f"warning: {warning}")


def _summarise(made: ImportedPolicy) -> str:
    policy = made.policy
    instances = len(list(policy.correction.instances))
    where = f" of WMSHistory from {made.section}" if instances else ""
    parts = (
        (len(policy.groups), "group", ""),
        (len(policy.users), "user", ""),
        (len(policy.sites), "site", ""),
        (len(policy.ces), "CE", ""),
        (instances, "instance" if instances else "correction", where),
    )
    return ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}{more}" for count, what, more in parts)


def policy_text(file: str) -> str:
    """What stands in a file, or in standard input."""
    try:
        # Some editors put a mark before the first letter.
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except OSError as trouble:
        raise InvalidInput(f"cannot read {file}: {trouble.strerror}") from trouble
    except UnicodeDecodeError as trouble:
        raise InvalidInput(f"{file} is not a text in UTF-8") from trouble
    except ValueError as trouble:  # a NUL in the name
        raise InvalidInput(f"cannot read {file}: {trouble}") from trouble


def _write(file: str, text: str, force: bool) -> None:
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise Conflict(f"{file} is there already", hint="--force replaces it; or name another file") from None
    except (OSError, ValueError) as trouble:
        reason = trouble.strerror if isinstance(trouble, OSError) else trouble
        raise InvalidInput(f"cannot write {file}: {reason}") from trouble


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "me"
