"""Words that complete a command line: commands, options, choices, and names that the server knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pilotage.cli.root import VALUE_OPTIONS, Root, parser_of

if TYPE_CHECKING:
    import click

    from pilotage.client import Client

MOST: Final = 200
"""The newest jobs, submissions and other objects that are offered."""
_SAFE: Final = re.compile(r"[\w.@:+/=-]+")
"""Words that need no quotes in any shell. Others are not offered."""

_OF_OPTIONS: Final = {
    "--ce": "ces",
    "--site": "sites",
    "--ban-site": "sites",
    "--sites": "sites",
    "--banned-sites": "sites",
    "--submission": "submissions",
    "--request": "requests",
    "--state": "states",
    "--owner": "owners",
    "--user": "owners",
    "--group": "groups",
    "--pilot": "pilots",
    "--after": "jobs",
    "--after-ok": "jobs",
    "--after-fail": "jobs",
}
"""The kind of object that an option names."""
_OF_ARGUMENTS: Final = {
    "IDS": "jobs",
    "TARGET": "jobs",
    "JOB|FILE": "jobs",
    "SUBMISSION": "submissions",
    "SUBJECT": "submissions",
    "REQUEST": "requests",
    "USER": "owners",
}
"""The kind of object that an argument names, by its name in the help."""
_OF_GROUPS: Final = {
    ("pilot", "ID"): "pilots",
    ("logs", "ID"): "jobs",
    ("site", "NAME"): "sites",
    ("ce", "NAME"): "ces",
    ("ce", "NAME|FILE"): "ces",
    ("ce", "NAMES"): "ces",
    ("agent", "NAME"): "agents",
    ("dataset", "NAME"): "datasets",
}
"""The same for arguments whose name stands for several kinds, by the first word of the command."""


def _states(_: Client, prefix: str) -> Iterable[object]:
    from pilotage.core.jobs.states import JobState

    return list(JobState)


KINDS: Final[dict[str, Callable[[Client, str], Iterable[object]]]] = {
    "jobs": lambda client, _: (job.id for job in client.jobs(newest=True, page=MOST)),
    "submissions": lambda client, _: (row.id for row in client.submissions(page=MOST)),
    "requests": lambda client, _: (row.id for row in client.requests()),
    "pilots": lambda client, _: (row.id for row in client.pilots()),
    "ces": lambda client, _: (row.name for row in client.ces()),
    "sites": lambda client, _: (row.name for row in client.sites()),
    "agents": lambda client, _: (row.name for row in client.agents()),
    "datasets": lambda client, prefix: (row.name for row in client.datasets(contains=prefix)),
    "owners": lambda client, _: (row.owner for row in client.shares().rows),
    "groups": lambda client, _: (row.group for row in client.shares().rows),
    "states": _states,
}
"""Reads the names of each kind from the server."""

Ask = Callable[[str, str], Iterable[object]]
"""(kind, begin of the word): the names that the server knows."""


def completions(root: Root, words: Sequence[str], ask: Ask) -> list[str]:
    """The words that may stand in the place of the last of `words`, which may be empty. `ask` reads names."""
    *before, begun = words or [""]
    if "--" in before:
        return []  # the command of a job
    before = _without_shared(before)
    name, rest = _command(root, before)
    offered: list[object] = list(_members(root, name)) if not rest else []
    if name in root.commands:
        offered += _of_command(name, parser_of(root.commands[name]), rest, begun, ask)
    shown = dict.fromkeys(str(word) for word in offered if str(word).startswith(begun))
    return [word for word in shown if _SAFE.fullmatch(word)]


def _without_shared(words: Sequence[str]) -> list[str]:
    """The words without the options of all commands that stand before the name of the command."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        takes_value = rest[0] in VALUE_OPTIONS
        rest = rest[2 if takes_value else 1 :]
    return rest


def _command(root: Root, words: Sequence[str]) -> tuple[str, list[str]]:
    """The longest name of a command or group that the words begin with, and the words after it."""
    for length in range(len(words), 0, -1):
        name = " ".join(words[:length])
        if name in root.commands or name in root.groups:
            return name, list(words[length:])
    return "", list(words)


def _members(root: Root, group: str) -> Iterable[str]:
    """The words that may follow the name of a group."""
    prefix = f"{group} " if group else ""
    names = [*root.commands, *root.groups]
    return sorted({name.removeprefix(prefix).split()[0] for name in names if name.startswith(prefix)})


def _of_command(
    name: str, parser: click.Command, words: Sequence[str], begun: str, ask: Ask
) -> Iterable[object]:
    import click

    options = {
        word: option for option in parser.params if isinstance(option, click.Option) for word in option.opts
    }
    waiting = options.get(words[-1]) if words else None
    if waiting is not None and not waiting.is_flag:
        return _values(waiting, _kind_of_option(waiting), begun, ask)
    if begun.startswith("-"):
        shown = [word for word, option in options.items() if not option.hidden]
        return [*shown, *(word for option in options.values() for word in option.secondary_opts), "--help"]
    arguments = [argument for argument in parser.params if isinstance(argument, click.Argument)]
    given = len(_plain_words(words, options))
    if not arguments:
        return []
    argument = arguments[min(given, len(arguments) - 1)]
    if given >= len(arguments) and argument.nargs == 1:
        return []
    label = re.sub(r"[\[\].]", "", str(argument.metavar)).split()[0]
    kind = _OF_ARGUMENTS.get(label) or _OF_GROUPS.get((name.split()[0], label), "")
    return _values(argument, kind, begun, ask)


def _kind_of_option(option: click.Option) -> str:
    return next((_OF_OPTIONS[word] for word in option.opts if word in _OF_OPTIONS), "")


def _plain_words(words: Sequence[str], options: dict[str, click.Option]) -> list[str]:
    """The words that are neither options nor their values."""
    plain, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        option = options.get(word)
        if option is not None:
            rest = rest[0 if option.is_flag else 1 :]
        elif not word.startswith("-"):
            plain.append(word)
    return plain


def _values(parameter: click.Parameter, kind: str, begun: str, ask: Ask) -> Iterable[object]:
    """The values of an option or argument: its choices, or names of the server. None: the shell offers files."""
    choices = getattr(parameter.type, "choices", None)
    if choices is not None:
        return list(choices)
    return ask(kind, begun) if kind else []
