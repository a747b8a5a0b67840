"""Formats of `squeue -o`, `squeue -O` and `sacct -o`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.cli.slurm import sacct_columns, sinfo, squeue_columns
from pilotage.cli.slurm.columns import TableColumn, find_column, parse_letters, parse_names, print_table
from pilotage.core.errors import InvalidInput

COLUMNS: list[TableColumn[dict[str, str]]] = [
    TableColumn("jobid", "JOBID", lambda row: row["i"], "i", 10),
    TableColumn("state", "STATE", lambda row: row["t"], "t", 6),
]
VALUES = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=12)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.split("\n")[:-1]


@given(value=VALUES, width=st.integers(1, 15), right=st.booleans())
def test_a_width_cuts_and_fills_on_the_side_that_a_dot_names(value: str, width: int, right: bool) -> None:
    [piece] = parse_letters(f"%{'.' if right else ''}{width}i", COLUMNS, "--format")
    cell = piece.cell(value)
    assert len(cell) == width
    assert cell == (value[:width].rjust(width) if right else value[:width].ljust(width))
    [named] = parse_names(f"JobID:{'.' if right else ''}{width}", COLUMNS, "--Format")
    assert named.cell(value) == cell


def test_letters_keep_the_text_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    pieces = parse_letters("<%i> %.4t 100%%|", COLUMNS, "--format")
    print_table(pieces, [{"i": "12_3", "t": "PD"}], header=True)
    assert lines(capsys) == ["<JOBID> STAT 100%|", "<12_3>   PD 100%|"]


def test_names_have_widths_of_their_own_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        parse_names("jobid,STATE:,jobid:|", COLUMNS, "--Format"), [{"i": "7", "t": "R"}], header=False
    )
    assert lines(capsys) == ["7         R     7|"]


@pytest.mark.parametrize("text", ["%", "%%", "", "no letter"])
def test_text_without_a_column_stays_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(parse_letters(text, COLUMNS, "--format"), [{}], header=False)
    assert lines(capsys) == [text.replace("%%", "%")]


@pytest.mark.parametrize("names", ["nosuch", "jobid,nosuch"])
def test_unknown_columns(names: str) -> None:
    with pytest.raises(InvalidInput, match=r"--Format: the field .* is not understood") as raised:
        parse_names(names, COLUMNS, "--Format")
    assert raised.value.hint == "one of jobid, state"
    with pytest.raises(InvalidInput, match="--format: %z is not understood"):
        parse_letters("%i %z", COLUMNS, "--format")


def test_the_columns_of_each_command_have_one_name_and_one_letter_each() -> None:
    for columns in (squeue_columns.COLUMNS, sacct_columns.COLUMNS, sinfo.COLUMNS):
        names = [column.name for column in columns]
        letters = [column.letter for column in columns if column.letter]
        assert (len(set(names)), len(set(letters))) == (len(names), len(letters))
        for column in columns:
            assert (
                find_column(column.title if columns is sacct_columns.COLUMNS else column.name, columns, "")
                is column
            )


def test_default_formats_name_columns_that_exist() -> None:
    for text in (squeue_columns.DEFAULT_FORMAT, squeue_columns.LONG_FORMAT):
        assert len([piece for piece in parse_letters(text, squeue_columns.COLUMNS, "") if piece.column]) >= 8
    for text in (sinfo.DEFAULT_FORMAT, sinfo.LONG_FORMAT, sinfo.NODE_FORMAT, sinfo.SUMMARY_FORMAT):
        assert parse_letters(text, sinfo.COLUMNS, "")
    for text in (sacct_columns.DEFAULT_FIELDS, sacct_columns.BRIEF_FIELDS, sacct_columns.LONG_FIELDS):
        assert all(find_column(name, sacct_columns.COLUMNS, "") for name in text.split(","))
