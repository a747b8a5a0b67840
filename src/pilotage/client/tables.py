"""Tables of parameters: CSV with a header, or JSON Lines; read row by row, mistakes told with their line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

import msgspec

from pilotage.client.row_upload import Row, find_value_error
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import Scalar
from pilotage.core.plurals import plural

MAX_LINE_BYTES = 1024 * 1024

_object = msgspec.json.Decoder(dict[str, Scalar])


@dataclass(frozen=True)
class Table:
    """`rows` can be gone through once."""

    names: tuple[str, ...]
    rows: Iterator[Row]


def read_table(file: BinaryIO, title: str) -> Table:
    """The table in a file: JSON Lines if it begins with a brace, else CSV. `title` names it in messages.

    CSV values are texts. Raises InvalidInput, also while the rows are gone through.
    """
    lines = _lines(file, title)
    first = next(lines, None)
    while first is not None and not first[1].strip():
        first = next(lines, None)
    if first is None:
        raise InvalidInput(
            f"{title} is empty", hint="the first line has the names of the parameters, each other one a job"
        )
    again = chain([first], lines)
    return _json_table(again, title) if first[1].lstrip().startswith("{") else _csv_table(again, title)


def count_rows(path: Path) -> tuple[tuple[str, ...], int]:
    """(names, rows) of the table in a file, all of it read and checked."""
    with open_table(path) as file:
        table = read_table(file, str(path))
        count = sum(1 for _ in table.rows)
    if not count:
        raise InvalidInput(f"{path} has names and no rows: there would be no job")
    return table.names, count


def open_table(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as trouble:
        raise InvalidInput(
            f"cannot read the table {path}: {trouble.strerror}", hint="`-` reads a table from standard input"
        ) from trouble


def _lines(file: BinaryIO, title: str) -> Iterator[tuple[int, str]]:
    """(number from 1, line with its end), of bounded length."""
    for number in count(1):
        try:
            raw = file.readline(MAX_LINE_BYTES + 1)
        except OSError as trouble:
            raise InvalidInput(f"cannot read {title}: {trouble.strerror}") from trouble
        if not raw:
            return
        if len(raw) > MAX_LINE_BYTES:
            raise _line_error(
                title,
                number,
                f"is longer than {MAX_LINE_BYTES:,} bytes",
                "is it a table of CSV or JSON Lines?",
            )
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in raw:
            raise _line_error(
                title, number, "has a NUL character", "a table is a text: CSV or JSON Lines in UTF-8"
            )
        try:
            yield number, raw.decode()
        except UnicodeDecodeError:
            raise _line_error(
                title, number, "is not a text in UTF-8", "a table is CSV or JSON Lines in UTF-8"
            ) from None


def _line_error(title: str, line: int, what: str, hint: str = "") -> InvalidInput:
    return InvalidInput(f"{title}, line {line:,} {what}", hint=hint)


def _json_table(lines: Iterator[tuple[int, str]], title: str) -> Table:
    parsed = ((number, _parse_line(number, line, title)) for number, line in lines if line.strip())
    number, first = next(parsed)
    names = tuple(first)
    _check_names(names, title, number)

    def rows() -> Iterator[Row]:
        wanted = set(names)
        for number, values in chain([(number_of_first, first)], parsed):
            if values.keys() != wanted:
                odd = sorted(wanted ^ values.keys())[0]
                what = (
                    f"lacks {odd!r}"
                    if odd in wanted
                    else f"has {odd!r}, which line {number_of_first} has not"
                )
                raise _line_error(title, number, what, "all lines have the same names")
            yield [values[name] for name in names]

    number_of_first = number
    return Table(names, rows())


def _parse_line(number: int, line: str, title: str) -> dict[str, Scalar]:
    try:
        values = _object.decode(line)
    except msgspec.ValidationError as trouble:
        hint = 'a line is {"name": value, ...}; values are texts, numbers or truth values'
        raise _line_error(title, number, f"cannot be taken: {trouble}", hint) from None
    except msgspec.DecodeError as trouble:
        hint = "NaN and Infinity are not JSON" if "NaN" in line or "Infinity" in line else ""
        raise _line_error(title, number, f"is not JSON: {trouble}", hint or "a line is one object") from None
    if line.count('":') + line.count('" ') > len(values):
        _check_pairs(number, line, title)
    for name, value in values.items():
        trouble_here = find_value_error(value)
        if trouble_here:
            raise _line_error(title, number, f"{name}: {trouble_here}")
    return values


def _check_pairs(number: int, line: str, title: str) -> None:
    """Refuse an object that has a name twice, which a decoder takes as its last one."""
    import json

    def pairs(found: list[tuple[str, object]]) -> None:
        names = [name for name, _ in found]
        for name in names:
            if names.count(name) > 1:
                raise _line_error(title, number, f"has {name!r} twice", "leave one of them out")

    json.loads(line, object_pairs_hook=pairs)


def _csv_table(lines: Iterator[tuple[int, str]], title: str) -> Table:
    reader = csv.reader((line for _, line in lines), strict=True)
    names = tuple(name.strip() for name in _next_row(reader, title) or ())
    _check_names(names, title, reader.line_num)

    def rows() -> Iterator[Row]:
        width = len(names)
        while (row := _next_row(reader, title)) is not None:
            if len(row) != width:
                if not row:
                    continue  # an empty line
                raise _line_error(
                    title,
                    reader.line_num,
                    f"has {plural(len(row), 'value')} for {plural(width, 'name')}",
                    "a value with a comma in it is written in double quotes",
                )
            yield row

    return Table(names, rows())


def _next_row(reader: csv._reader, title: str) -> list[str] | None:  # type: ignore[name-defined]
    try:
        return next(reader, None)
    except csv.Error as trouble:
        raise _line_error(
            title, reader.line_num, f"is not CSV: {trouble}", "are its double quotes in pairs?"
        ) from None


def _check_names(names: Sequence[str], title: str, line: int) -> None:
    hint = "the first line of CSV has the names of the parameters: letters, digits and _"
    for name in names:
        if not (name.isascii() and name.isidentifier()):
            raise _line_error(
                title, line, f"has the name {name!r}, which cannot be that of a parameter", hint
            )
        if names.count(name) > 1:
            raise _line_error(
                title, line, f"has the name {name} twice", "give one of the columns another name"
            )
    if not names:
        raise _line_error(title, line, "has no names", hint)
