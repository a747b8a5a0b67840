"""`ces.NAME.reach`: how the commands of a batch system are reached from the server's machine."""

from __future__ import annotations

import re
from typing import NamedTuple

from pilotage.core.errors import InvalidInput

_HOST = re.compile(r"(ssh://)?[A-Za-z0-9_][A-Za-z0-9_.@%:\[\]-]{0,250}")
RELAY = re.compile(r"(auto|[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
"""The address of a relay as the nodes of a cluster know it."""

_OPTIONS = {
    "-F": re.compile(r"/[A-Za-z0-9_./+:@~-]{1,500}"),
    "-J": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@%:\[\],/-]{0,500}"),
    "-l": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,100}"),
    "-p": re.compile(r"[0-9]{1,5}"),
}
"""Options of ssh that name a place, and never a program. Everything else belongs into its own configuration."""


class SshReach(NamedTuple):
    """A host as the command `ssh` takes it."""

    host: str
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(("ssh", *self.options, self.host))

    @property
    def machine(self) -> str:
        """The host without the account and the scheme, for messages."""
        return self.host.removeprefix("ssh://").rpartition("@")[2]


def parse_reach(text: str) -> SshReach:
    """The value of `reach`. `InvalidInput` with the reason if it is none."""
    hint = 'write "ssh HOST", "ssh USER@HOST" or "ssh -p PORT HOST"; the rest belongs into ~/.ssh/config'
    program, *words = text.split() or [""]
    if program != "ssh":
        raise InvalidInput(f"{program[:80]!r} is no way to a batch system: only ssh is", hint=hint)
    options: list[str] = []
    while len(words) > 1:
        option, value, *words = words
        if option not in _OPTIONS:
            raise InvalidInput(
                f"{option[:80]!r} cannot stand there", hint=f"{hint}; options: {', '.join(_OPTIONS)}"
            )
        if not _OPTIONS[option].fullmatch(value):
            raise InvalidInput(f"{value[:80]!r} is no value of {option}", hint=hint)
        options += [option, value]
    if not words or not _HOST.fullmatch(words[0]):
        raise InvalidInput("it names no host" if not words else f"{words[0][:80]!r} is no host", hint=hint)
    return SshReach(words[0], tuple(options))
