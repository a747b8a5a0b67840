"""Lists: whole for programs, within the width of the terminal for people."""

from __future__ import annotations

import inspect

import pytest

from pilotage.cli.console import Column, CommandOutput, fitting_columns
from pilotage.cli.root import build, parser_of

COLUMNS = (
    Column("id", right=True),
    Column("site", rank=1),
    Column("node", rank=2),
    Column("note", rank=1),
    Column("reason", text=True),
)
LINE = ["17", "a-site-name", "node-of-a-cluster", "", "word " * 30]


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> CommandOutput:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = CommandOutput()
    screen.terminal = True
    return screen


def test_columns_leave_by_emptiness_and_rank() -> None:
    widths = {width: fitting_columns(COLUMNS, [LINE], width) for width in (80, 68, 62, 40, 10)}
    assert widths == {80: [0, 1, 2, 3, 4], 68: [0, 1, 2, 3, 4], 62: [0, 1, 2, 4], 40: [0, 1, 4], 10: [0, 4]}


def test_a_narrow_table_names_the_columns_that_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 40).table(COLUMNS, [LINE])
    told = capsys.readouterr()
    assert all(len(line.rstrip()) <= 40 for line in told.out.splitlines())
    assert "a-site-name" in told.out
    assert "node" not in told.out
    assert told.err == "no room for node, note: a wider terminal or --json shows them\n"
    terminal(monkeypatch, 80).table(COLUMNS, [LINE])
    assert capsys.readouterr().err == ""


def test_elsewhere_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    screen = CommandOutput()
    assert screen.first_rows(range(1000), None, 5) == list(range(1000))
    assert screen.first_rows(range(1000), 3, 5) == [0, 1, 2]
    screen.terminal = True
    assert screen.first_rows(range(5), None, 5) == list(range(5))
    assert capsys.readouterr().err == ""
    assert screen.first_rows(range(6), None, 5) == list(range(5))
    assert capsys.readouterr().err == "only the first 5 are shown: --limit 0 shows all\n"
    assert screen.first_rows(range(6), 0, 5) == list(range(6))


BOUNDED = {"director", "match-ce"}
"""Commands whose server bounds the list: the answer tells the number of all rows."""


def test_no_list_is_cut_by_its_default() -> None:
    """A default of --limit would cut the list of a script, which tells nobody."""
    cut = set()
    for name, lazy in build().commands.items():
        parsed = parser_of(lazy)
        cut |= {name for option in parsed.params if "--limit" in option.opts and option.default is not None}
    assert cut == BOUNDED


def test_lists_take_the_option_of_all_lists() -> None:
    from pilotage.cli import lists, status
    from pilotage.cli.policy import versions
    from pilotage.cli.requests import lists as requests

    for command in (lists.queues, lists.pilots, status.status, versions.history, requests.list_requests):
        assert inspect.signature(command).parameters["limit"].default is None
