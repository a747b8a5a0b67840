"""Columns of tables: titles, widths and values, and the format texts that choose them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pilotage.core.errors import InvalidInput
from pilotage.core.printable import printable

Row = TypeVar("Row")

_LETTER: Final = re.compile(r"%(\.?)(\d*)(#?)([A-Za-z%])")


class TableColumn(NamedTuple, Generic[Row]):
    name: str
    """Lower case, as in long formats."""
    title: str
    value: Callable[[Row], str]
    letter: str = ""
    width: int = 20
    """Width in the long format."""

    def text(self, row: Row) -> str:
        """The value for a terminal: it may be another person's text."""
        return printable(self.value(row))


def fixed_columns(rows: Iterable[tuple[str, str, str, str]]) -> list[TableColumn[Any]]:
    """Columns with the same value in each row, of (name, title, value, letter)."""

    def value_of(text: str) -> Callable[[Any], str]:
        return lambda row: text

    return [TableColumn(name, title, value_of(text), letter) for name, title, text, letter in rows]


@dataclass(frozen=True)
class FormatPiece(Generic[Row]):
    """A column at its place in a line, and the text that follows it."""

    column: TableColumn[Row] | None
    width: int = 0
    """0: as wide as its value."""
    right: bool = False
    after: str = ""
    cut: str = ""
    """The text at the end of a value that was cut."""

    def cell(self, text: str) -> str:
        if self.width:
            if len(text) > self.width:
                text = text[: self.width - len(self.cut)] + self.cut
            text = text.rjust(self.width) if self.right else text.ljust(self.width)
        return text + self.after


def parse_letters(text: str, columns: Sequence[TableColumn[Row]], option: str) -> list[FormatPiece[Row]]:
    """The pieces of `%.18i %j`. Raises InvalidInput for a letter that no column has."""
    by_letter = {column.letter: column for column in columns if column.letter}
    pieces: list[FormatPiece[Row]] = []
    end = 0
    for match in _LETTER.finditer(text):
        _append_text(pieces, text[end : match.start()])
        end = match.end()
        if match[4] == "%":
            _append_text(pieces, "%")
            continue
        if match[4] not in by_letter:
            raise InvalidInput(
                f"{option}: %{match[4]} is not understood", hint=f"one of {' '.join(by_letter)}"
            )
        pieces.append(FormatPiece(by_letter[match[4]], int(match[2] or 0), right=bool(match[1])))
    _append_text(pieces, text[end:])
    return pieces


def parse_names(text: str, columns: Sequence[TableColumn[Row]], option: str) -> list[FormatPiece[Row]]:
    """The pieces of `JobID:10,State`, as -O has them. Raises InvalidInput for a name that no column has."""
    pieces: list[FormatPiece[Row]] = []
    for part in filter(str.strip, text.split(",")):
        name, colon, size = part.strip().partition(":")
        match = re.fullmatch(r"(\.?)(\d*)(.*)", size)
        assert match is not None
        column = find_column(name, columns, option)
        width = int(match[2]) if match[2] else 0 if colon and match[3] else column.width
        pieces.append(FormatPiece(column, width, right=bool(match[1]), after=match[3]))
    return pieces


def find_column(name: str, columns: Sequence[TableColumn[Row]], option: str) -> TableColumn[Row]:
    for column in columns:
        if column.name == name.strip().lower():
            return column
    raise InvalidInput(
        f"{option}: the field {name or '(none)'} is not understood",
        hint=f"one of {', '.join(column.name for column in columns)}",
    )


def print_table(pieces: Sequence[FormatPiece[Row]], rows: Sequence[Row], *, header: bool) -> None:
    if header:
        print("".join(piece.cell(piece.column.title if piece.column else "") for piece in pieces))
    for row in rows:
        print("".join(piece.cell(piece.column.text(row) if piece.column else "") for piece in pieces))


def _append_text(pieces: list[FormatPiece[Row]], text: str) -> None:
    if text:
        pieces.append(FormatPiece(None, after=text))
