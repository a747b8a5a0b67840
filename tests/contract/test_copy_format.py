"""The text for COPY says to PostgreSQL what the driver's own writing of the same rows does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotage.store.postgresql.copy_format import encode_rows
from tests.postgres import server

pytestmark = pytest.mark.slow

COLUMNS = "place bigint, number bigint, share double precision, words text, other text, raw bytea"
NASTY = [
    *("", "\\", "\\N", "\\.", "\t", "\n", "\r", "\r\n", "\\t", "a\\", "\\\\", "NULL", "\b\f\v", "\x7f", "\x85\u2028"),
    *("\ufeff", "\ufffd", "😀", '["a\\\\b"]', '"', "'", ",", " x ", "{}", "ü\t\n"),
]  # fmt: skip
TEXTS = st.one_of(
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), max_size=4).map("".join),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.tuples(
        INTEGERS,
        st.one_of(st.none(), INTEGERS),
        st.one_of(st.none(), st.floats()),
        TEXTS,
        st.one_of(st.none(), TEXTS),
        st.one_of(st.none(), st.binary(max_size=20)),
    ),
    min_size=1,
    max_size=30,
)
ALIKE = st.tuples(ROWS, st.integers(1, 5)).map(lambda drawn: [drawn[0][0]] * drawn[1])


@pytest.fixture
def session() -> Iterator[psycopg.Connection[Any]]:
    name = server().empty()
    with psycopg.connect(server().url(name)) as made:
        made.execute(f"CREATE TABLE copied (id serial, {COLUMNS})".encode())
        yield made
    server().drop(name)


def stored(session: psycopg.Connection[Any]) -> list[Any]:
    """What the table has, and has no more; every value as the database itself writes it."""
    shown = "SELECT place, number::text, share::text, words, other, raw FROM copied ORDER BY id"
    found = session.execute(shown).fetchall()
    session.execute("TRUNCATE copied")
    return found


@given(rows=st.one_of(ROWS, ALIKE))
@settings(
    max_examples=3 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_rows_come_as_the_driver_writes_them(
    session: psycopg.Connection[Any], rows: list[tuple[Any, ...]]
) -> None:
    to = "COPY copied (place, number, share, words, other, raw) FROM STDIN"
    with session.cursor().copy(to) as copy:
        for row in rows:
            copy.write_row(row)
    one_by_one = stored(session)
    with session.cursor().copy(to) as copy:
        copy.write(encode_rows(rows))
    assert stored(session) == one_by_one
    assert [row[3:] for row in one_by_one] == [row[3:] for row in rows]


@given(texts=st.lists(st.one_of(TEXTS, st.just("a\0b"), st.text("\0\\\tx")), min_size=1, max_size=8))
@settings(
    max_examples=2 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_nul_is_replaced_and_nothing_else(session: psycopg.Connection[Any], texts: list[str]) -> None:
    with session.cursor().copy("COPY copied (place, words) FROM STDIN") as copy:
        copy.write(encode_rows([(place, text) for place, text in enumerate(texts)]))
    assert [row[3] for row in stored(session)] == [text.replace("\0", "\ufffd") for text in texts]


def test_both_zeros_keep_their_sign() -> None:
    assert encode_rows([(0.0,), (-0.0,)]) == b"0.0\n-0.0\n"
    assert encode_rows([(1,), (1.0,), (None,)]) == b"1\n1.0\n\\N\n"
