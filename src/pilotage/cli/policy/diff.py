"""`pilotage policy diff`."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.policy.files import policy_text
from pilotage.cli.session import Session, connected
from pilotage.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.policy import PolicyDocument

DIFFERENT = 1

MAX_DIGITS = 15
"""Maximum number of digits of a version."""


@dataclass(frozen=True)
class Side:
    label: str
    text: str


@connected
def diff(
    session: Session,
    a: Annotated[str | None, CommandArgument("A version number or a file", "A")] = None,
    b: Annotated[str | None, CommandArgument("A version number or a file", "B")] = None,
    exit_code: Annotated[bool, CommandOption("Exit with code 1 if A and B differ")] = False,
) -> int | None:
    """Compare two policies. With A only, compare the policy in force with A.

    Without A and B, compare the last two versions. A number is a version; write ./3 for a file named 3.
    """
    before, after = _resolve_sides(session, a, b)
    same = before.text == after.text
    if session.as_json:
        from pilotage.core.policy import changes

        for side in (before, after):
            _require_toml(side)
        difference = changes(before.text, after.text)
        session.screen.json(
            {"before": before.label, "after": after.label, "same": same, "changes": difference},
        )
    else:
        for line in _unified(before, after):
            if session.screen.terminal:
                session.screen.line(line)
            else:
                sys.stdout.write(line + "\n")
    return DIFFERENT if exit_code and not same else None


def _resolve_sides(session: Session, a: str | None, b: str | None) -> tuple[Side, Side]:
    if a is not None and b is not None and not a.isdecimal() and not b.isdecimal():
        return _file(a), _file(b)
    given = [_file(name) if name is not None and not name.isdecimal() else name for name in (a, b)]
    with session.client() as client:
        if a is None:
            newest = [version.version for version in islice(client.policy_versions(), 2)]
            if len(newest) < 2:
                raise NotFound("the policy has only one version: nothing to compare")
            given = [str(newest[1]), str(newest[0])]
        elif b is None:
            current = client.policy()
            given = [_version(current, " (in force)"), given[0]]
        left, right = (
            side if isinstance(side, Side) else _fetch_version(client, str(side)) for side in given
        )
    return left, right


def _fetch_version(client: Client, number: str) -> Side:
    if len(number) > MAX_DIGITS:
        raise NotFound(f"there is no version {number[:MAX_DIGITS]}... of the policy")
    return _version(client.policy_version(int(number)))


def _version(document: PolicyDocument, more: str = "") -> Side:
    return Side(f"version {document.version}{more}", document.text)


def _file(name: str) -> Side:
    return Side("standard input" if name == "-" else name, policy_text(name))


def _require_toml(side: Side) -> None:
    from pilotage.core.policy.parser import parse_toml

    try:
        parse_toml(side.text)
    except InvalidInput as error:
        raise InvalidInput(f"{side.label}: {error.message}", line=error.line, column=error.column) from None


def _unified(before: Side, after: Side) -> list[str]:
    left, right = before.text.splitlines(), after.text.splitlines()
    return list(difflib.unified_diff(left, right, before.label, after.label, lineterm=""))
