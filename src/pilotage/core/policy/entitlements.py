"""Entitlements: URNs that name a group, its subgroups, a role and the authority that says so.

Their form is that of the guidelines AARC-G002 and AARC-G069:
`urn:mace:egi.eu:group:vo.example.org:sub:role=member#aai.egi.eu`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

LONGEST_ENTITLEMENT = 1000
_COMPONENT = re.compile(r"(?:[^%?#:\s]|%[0-9A-Fa-f]{2})+")
_ROLE = "role="


@dataclass(frozen=True, slots=True)
class Entitlement:
    """One membership. All texts are decoded; the namespace has small letters, as its case has no meaning."""

    namespace: str
    """Text before `:group:`, such as `urn:mace:egi.eu`."""
    groups: tuple[str, ...]
    """The group, then its subgroups from the outside to the inside."""
    role: str
    """The role in the innermost group; empty: none is named."""
    authority: str
    """Text after `#`; empty: none is named."""

    @property
    def paths(self) -> Iterator[str]:
        """The names of the group as a path, the one with its role first. None if a component would look like two."""
        components = (*self.groups, self.role)
        if any(mark in component for component in components for mark in "/:"):
            return
        path = "/" + "/".join(self.groups)
        if self.role:
            yield f"{path}:{_ROLE}{self.role}"
        yield path

    @property
    def source(self) -> str:
        """The namespace with the authority: who says it."""
        return f"{self.namespace}#{self.authority}" if self.authority else self.namespace


@lru_cache(4096)
def read_entitlement(text: str) -> Entitlement | None:
    """The entitlement that a text is; None for every other text, and for one that is damaged."""
    urn, mark, authority = text.partition("#")
    words = urn.split(":")
    if len(text) > LONGEST_ENTITLEMENT or words[0].lower() != "urn" or "group" not in words[3:]:
        return None
    # A namespace has an identifier and at least one further part before `group`.
    place = words.index("group", 3)
    groups, role = words[place + 1 :], ""
    if groups and groups[-1].startswith(_ROLE):
        role = groups.pop().removeprefix(_ROLE)
        if not role:
            return None
    named = [*words[1:place], *groups, *([role] if role else []), *([authority] if mark else [])]
    decoded = [_decode(word) for word in named]
    if not groups or any(word.startswith(_ROLE) for word in groups) or None in decoded:
        return None
    return Entitlement(
        ":".join(words[:place]).lower(),
        tuple(_decode(word) or "" for word in groups),
        _decode(role) or "",
        _decode(authority) or "",
    )


def read_source(text: str) -> str | None:
    """A namespace with its authority, written as `Entitlement.source`; None if the text is none."""
    namespace, mark, authority = text.partition("#")
    probe = read_entitlement(f"{namespace}:group:any{mark}{authority}")
    return None if probe is None or probe.groups != ("any",) else probe.source


def _decode(component: str) -> str | None:
    """The text of a percent-encoded component; None if it is damaged or could not be shown."""
    if not _COMPONENT.fullmatch(component):
        return None
    try:
        text = unquote_to_bytes(component).decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
