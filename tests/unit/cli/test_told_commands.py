"""Commands that messages tell people to run: each exists, with its options and the number of its arguments."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pilotage.cli.root import _global_options, _resolve, build, parser_of
from pilotage.core.errors import InvalidInput
from pilotage.main.command_line import SERVER_COMMANDS

SOURCE = Path(__file__).parents[3] / "src" / "pilotage"
TOLD = re.compile(r"`(pilotage [^`]+)`|(?:^|\W)(?:next|run|use|with|normal|again): (pilotage [a-z][^;`\n]*)")
ROOT = build(SERVER_COMMANDS)
FILLED = "1"
"""Stands for each value that a message fills in. It can be a number and a name."""


def texts_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of a module, with their lines; no docstrings. Values that are filled in are FILLED."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else FILLED for part in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"\{\w*\}", FILLED, node.value)


def told_commands() -> Iterator[tuple[str, str]]:
    """(place, command) of each command that a message names."""
    for file in sorted(SOURCE.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if "pilotage " not in source:
            continue
        for line, text in texts_of(ast.parse(source)):
            for found in TOLD.finditer(text):
                command = found[1] or found[2]
                # The verb itself is filled in, or it is the help of all.
                if command.split()[1] not in (FILLED, "--help"):
                    yield f"{file.relative_to(SOURCE)}:{line}", command


def mistake(command: str) -> str:
    """Why the parser refuses a command; empty: it takes it."""
    words = [word for word in shlex.split(command)[1:] if word != "..."]
    try:
        name, rest = _resolve(ROOT, _global_options(words)[1])
        if name in ROOT.groups:
            return ""
        node = parser_of(ROOT.commands[name])
        values, left, _ = node.make_parser(click.Context(node, info_name=name)).parse_args(args=list(rest))
    except InvalidInput as refused:
        return refused.message
    except click.ClickException as refused:
        return refused.format_message()
    if left:
        return f"nothing takes {' '.join(left)}"
    missing = [
        parameter.human_readable_name
        for parameter in node.params
        if isinstance(parameter, click.Argument)
        and parameter.required
        and parameter.nargs == 1
        and not isinstance(values.get(parameter.name or ""), str)
    ]
    # A name without arguments names the command only.
    return f"{missing[0]} is missing" if missing and rest else ""


@pytest.mark.parametrize(
    "place_and_command", sorted(set(told_commands())), ids=lambda told: f"{told[0]} {told[1]}"
)
def test_a_command_that_a_message_names_can_be_run(place_and_command: tuple[str, str]) -> None:
    assert mistake(place_and_command[1]) == "", place_and_command


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("pilotage request resubmit 1 --split files_per_job=1", "--split"),
        ("pilotage site open here", "open"),
        ("pilotage kill 1 --quickly", "--quickly"),
        ("pilotage ban --reason full", "missing"),
        ("pilotage trace 12", "nothing takes"),
        ("pilotage down now", "nothing takes"),
    ],
)
def test_commands_that_do_not_exist_are_found(command: str, told: str) -> None:
    assert told in mistake(command)
