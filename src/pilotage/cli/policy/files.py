"""`pilotage policy init|preset|import`: commands that need no server."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.core.errors import Conflict, InvalidInput, TooLarge

if TYPE_CHECKING:
    from pilotage.core.policy.dirac_cfg import ImportedPolicy

FileArgument = Annotated[str, CommandArgument("Policy file (TOML); - for standard input", "FILE")]
ForceOption = Annotated[bool, CommandOption("Overwrite an existing file")]

SHOWN = 100
"""Maximum number of unconverted entries to print; --json has all."""


@connected
def init(
    session: Session,
    file: Annotated[
        str, CommandArgument("File to write, policy.toml if none is named; - for standard output", "FILE")
    ] = "policy.toml",
    force: ForceOption = False,
) -> None:
    """Write an annotated example policy. Needs no server."""
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


@connected
def preset(
    session: Session,
    name: Annotated[str, CommandArgument("Name of the preset; none: list them", "NAME")] = "",
    file: Annotated[
        str, CommandArgument("Policy file that takes the rules; - for standard input", "FILE")
    ] = "",
) -> None:
    """Print the tables of a preset, or a policy file with its rules. No file is changed. Needs no server."""
    from pilotage.core.policy.parser import parse_toml
    from pilotage.core.policy.presets import PRESETS

    if not name:
        rows = [[known.name, known.meaning] for known in PRESETS.values()]
        session.screen.json({"presets": [{"name": row[0], "meaning": row[1]} for row in rows]})
        session.screen.table([Column("name"), Column("meaning")], rows)
        return
    chosen = PRESETS.get(name)
    if chosen is None:
        raise InvalidInput(f"there is no preset {name}", hint=f"known: {', '.join(PRESETS)}", field="name")
    text = chosen.text
    if file:
        given = policy_text(file)
        parse_toml(given)
        text = chosen.applied_to(given)
    if session.as_json:
        session.screen.json({"name": name, "file": file or None, "text": text})
    else:
        sys.stdout.write(text)


@connected
def import_cfg(
    session: Session,
    file: Annotated[str, CommandArgument("DIRAC configuration (.cfg); - for standard input", "FILE")],
    out: Annotated[
        str | None,
        CommandOption("Write the policy to FILE instead of standard output", "FILE", names="--out -o"),
    ] = None,
    section: Annotated[
        str, CommandOption("Path of the ShareCorrections section, if there are several", "PATH")
    ] = "",
    force: ForceOption = False,
) -> None:
    """Convert a DIRAC configuration to a policy. Unconverted entries are listed with their line. Needs no server."""
    from pilotage.core.policy.dirac_cfg import import_policy

    made = import_policy(policy_text(file), section=section)
    if out and out != "-":
        _write(out, made.text, force)
    if session.as_json:
        shown = {"file": out, "section": made.section or None, "text": made.text}
        session.screen.json(shown | {"left": made.omissions, "notes": made.notes})
        return
    if out and out != "-":
        session.screen.line(f"{out}: {_summarise(made)}")
    else:
        sys.stdout.write(made.text)
    _report_unconverted(session, made)


def _report_unconverted(session: Session, made: ImportedPolicy) -> None:
    from pilotage.core.policy import warnings

    for omission in made.omissions[:SHOWN]:
        session.screen.note(
            f"not converted: line {omission.line}: {omission.path} ({omission.value}): {omission.reason}"
        )
    if len(made.omissions) > SHOWN:
        session.screen.note(f"not converted: {len(made.omissions) - SHOWN:,} more; --json lists all")
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
    """The content of a file, or of standard input for "-"."""
    from pilotage.client.text_files import read_text

    return sys.stdin.read() if file == "-" else read_text(Path(file), "a policy")


def policy_for_server(file: str) -> str:
    """The text of a policy file. Raises `TooLarge` for one that no server takes."""
    text = policy_text(file)
    if len(text) > wire.policy.MAX_POLICY:
        raise TooLarge(
            f"{file} has {len(text):,} characters; a policy has at most {wire.policy.MAX_POLICY:,}"
        )
    return text


def _write(file: str, text: str, force: bool) -> None:
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise Conflict(
            f"{file} exists already", hint="use --force to overwrite it, or name another file"
        ) from None
    except (OSError, ValueError) as trouble:
        reason = trouble.strerror if isinstance(trouble, OSError) else trouble
        raise InvalidInput(f"cannot write {file}: {reason}") from trouble


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "me"
