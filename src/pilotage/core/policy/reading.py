"""From text to policy, or to an error with its line and the nearest right name."""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import Any

import msgspec

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.checking import check
from pilotage.core.policy.facts import ADMINISTRATOR, NORMAL_USER, Policy
from pilotage.core.policy.places import line_of
from pilotage.core.policy.reference import KEYS


def parse(text: str) -> Policy:
    """The policy that `text` says, or `InvalidInput` with line and reason."""
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        line, column = (int(place[1]), int(place[2])) if place else (None, None)
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise InvalidInput(f"the policy is not TOML: {reason}", line=line, column=column) from None
    try:
        policy = msgspec.convert(plain, Policy)
    except msgspec.ValidationError as error:
        raise _explained(str(error), text, plain) from None
    check(policy, text)
    return policy


def warnings(policy: Policy) -> list[str]:
    """What is allowed, but should be known."""
    said = []
    for name, ce in policy.ces.items():
        if ce.owners == "any":
            said.append(
                f'ces.{name}: owners = "any" lets every user of the policy run programs on this machine under the'
                " account of the server: they can read and change all that this account can, this server's own"
                " files and keys included. Use it only among people who trust each other."
            )
    if all(group.share == 0 for group in policy.groups.values()):
        said.append("all shares are 0: every task queue is equally likely")
    return said


def initial(owner: str, site: str) -> str:
    """The policy of a fresh home: its owner, one group, one site with the local CE."""
    return f"""\
# The policy of this Pilotage instance: one document, applied whole with `pilotage policy apply FILE`.
# Every key, its unit and default: docs/reference/policy.md.

[groups.home]
share = 1000
properties = ["{NORMAL_USER}", "{ADMINISTRATOR}"]

[users.{_quoted(owner)}]
groups = ["home"]

[sites.{_quoted(site)}]

[ces.local]
site = {_quoted(site)}
type = "local"
owners = "home"
"""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _explained(message: str, text: str, plain: dict[str, Any]) -> InvalidInput:
    """The words of msgspec with the line, and the nearest right name for an unknown key."""
    reason, _, path = message.partition(" - at `")
    keys = re.findall(r"[^.\[\]`$]+|\.{3}", path)
    if "..." in keys[1:2]:
        keys[1] = _refused_entry(keys[0], plain[keys[0]])
    unknown = re.search(r"unknown field `(\w+)`", reason)
    if unknown:
        line = line_of(text, [*keys, unknown[1]])
        known = sorted({part for key in KEYS for part in key.split(".") if part != "*"})
        near = difflib.get_close_matches(unknown[1], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        return InvalidInput(f"unknown key {unknown[1]}", hint=hint, line=line, field=unknown[1])
    where = ".".join(keys)
    return InvalidInput(f"{where or 'the policy'}: {reason}", line=line_of(text, keys), field=where or None)


def _refused_entry(table: str, entries: dict[str, Any]) -> str:
    """Which entry msgspec means, that tells the key of a structure, but not that of a dictionary."""
    for name, entry in entries.items():
        try:
            msgspec.convert({"groups": {}, "users": {}, table: {name: entry}}, Policy)
        except msgspec.ValidationError:
            return name
    return "..."
