"""Rows that are sent in chunks, against a server that fails in the ways servers fail."""

from __future__ import annotations

import io
import itertools
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from pilotage.client import Client
from pilotage.client.submission import parameters_by_name
from pilotage.client.tables import read_table
from pilotage.core.errors import Conflict, InvalidInput, Overloaded, PilotageError
from pilotage.wire.submissions import MAX_CHUNK_ROWS, Parameters
from tests.deadlines import PATIENCE
from tests.unit.client.fake_server import State

ECHO = {"executable": "echo", "arguments": ["%s"]}
BUSY = {"code": "overloaded", "message": "full", "retry_after": 0.1}


def rows_of(state: State, key: str) -> list[Any]:
    return [row for chunk in state.streams[key]["chunks"] for row in chunk]


def test_rows_go_in_chunks_and_progress_comes(client: Client, state: State) -> None:
    seen: list[tuple[int, int | None]] = []
    count = 2 * MAX_CHUNK_ROWS + 3
    rows = ((n, f"f{n}") for n in range(count))
    description = {"executable": "echo", "arguments": ["%(a)s", "%(b)s"]}
    answer = client.submit_rows(
        description, rows, names=("a", "b"), key="k", expected=count, progress=lambda *two: seen.append(two)
    )
    assert answer.count == count
    assert [len(chunk) for chunk in state.streams["k"]["chunks"]] == [MAX_CHUNK_ROWS, MAX_CHUNK_ROWS, 3]
    assert rows_of(state, "k") == [[n, f"f{n}"] for n in range(count)]
    assert seen == [(done, count) for done in (0, MAX_CHUNK_ROWS, 2 * MAX_CHUNK_ROWS, count)]
    assert not state.streams["k"]["open"]


def test_a_lost_answer_and_come_later_are_gone_through(client: Client, state: State) -> None:
    state.failures = [None, "hang up after", (429, BUSY), "hang up", None, (503, BUSY), "hang up after"]
    answer = client.submit_rows(ECHO, range(MAX_CHUNK_ROWS + 5), key="k")
    assert answer.count == MAX_CHUNK_ROWS + 5
    assert rows_of(state, "k") == [[n] for n in range(MAX_CHUNK_ROWS + 5)]


def test_a_client_resumes_while_another_sends_the_same_rows(client: Client, state: State) -> None:
    count = 3 * MAX_CHUNK_ROWS

    def dies() -> Iterator[int]:
        yield from range(2 * MAX_CHUNK_ROWS - 1)
        deadline = time.monotonic() + PATIENCE
        while not state.streams["k"]["chunks"] and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    def other_client_sends(_stored: int, _expected: int | None) -> None:
        if state.streams["k"]["open"]:
            client.submit_rows(ECHO, range(count), key="k")

    with pytest.raises(KeyboardInterrupt):
        client.submit_rows(ECHO, dies(), key="k")
    assert len(rows_of(state, "k")) == MAX_CHUNK_ROWS
    answer = client.submit_rows(ECHO, range(count), key="k", progress=other_client_sends)
    assert answer.count == count
    assert rows_of(state, "k") == [[n] for n in range(count)]


def test_a_client_that_died_goes_on_with_its_key(client: Client, state: State) -> None:
    state.page = 1

    def dies() -> Iterator[int]:
        yield from range(3 * MAX_CHUNK_ROWS - 1)
        deadline = time.monotonic() + PATIENCE
        while len(state.streams["k"]["chunks"]) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)  # for the one under way
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.submit_rows(ECHO, dies(), key="k")
    there = len(rows_of(state, "k"))
    assert there == 2 * MAX_CHUNK_ROWS
    before = len(state.paths("PUT"))
    answer = client.submit_rows(ECHO, range(4 * MAX_CHUNK_ROWS), key="k")
    assert answer.count == 4 * MAX_CHUNK_ROWS
    assert rows_of(state, "k") == [[n] for n in range(4 * MAX_CHUNK_ROWS)]
    assert len(state.paths("PUT")) - before == 2
    # All of it once more sends nothing.
    before = len(state.paths("PUT"))
    assert client.submit_rows(ECHO, range(4 * MAX_CHUNK_ROWS), key="k") == answer
    assert len(state.paths("PUT")) == before


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 1, 9, 3], "of rows 1 to 3 at least one differs from the stored row"),
        ([0, 1], "the server has 3 rows, and only 2 are given"),
    ],
)
def test_other_rows_with_the_same_key_are_a_conflict(
    client: Client, state: State, rows: list[int], words: str
) -> None:
    client.submit_rows(ECHO, range(3), key="k")
    state.streams["k"]["open"] = True
    with pytest.raises(Conflict, match=words):
        client.submit_rows(ECHO, rows, key="k")
    assert rows_of(state, "k") == [[0], [1], [2]]


def test_more_rows_than_a_closed_submission_has_are_a_conflict(client: Client, state: State) -> None:
    client.submit_rows(ECHO, range(3), key="k")
    with pytest.raises(Conflict, match="is closed, and there are more rows"):
        client.submit_rows(ECHO, range(4), key="k")


def test_a_wrong_row_tells_what_the_server_has_and_how_to_go_on(client: Client, state: State) -> None:
    rows = itertools.chain(range(MAX_CHUNK_ROWS + 7), [float("nan")])
    with pytest.raises(InvalidInput, match="row 5,008: nan") as caught:
        client.submit_rows(ECHO, rows, key="k")
    assert "the server has 5,000 rows, as submission 1" in caught.value.hint
    assert "the key k" in caught.value.hint
    assert len(rows_of(state, "k")) == MAX_CHUNK_ROWS


def test_a_server_that_says_no_is_told_with_the_key_that_was_made(client: Client, state: State) -> None:
    state.failures = [None, (409, {"code": "conflict", "message": "closed", "hint": "another"})]
    with pytest.raises(Conflict) as caught:
        client.submit_rows(ECHO, range(3))
    [key] = state.streams
    assert caught.value.hint.startswith("another; the server has 0 rows")
    assert key in caught.value.hint


def test_patience_with_a_full_server_ends(
    client: Client, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotage.client.row_upload.PATIENCE", 0.1)
    state.failures = [None, (429, BUSY | {"retry_after": 60.0})]
    with pytest.raises(Overloaded) as caught:
        client.submit_rows(ECHO, range(3), key="k")
    assert "to resume" in caught.value.hint


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((1, 2), "row 1 has 2 values, not 1"),
        (None, "not NoneType"),
        ("a\0b", "NUL"),
        (float("inf"), "inf is not a number"),
        (2**70, "more than 64 bits"),
        ([[1]], "not list"),
        ("\ud800", "row 1"),
        ("x" * 600_000, "a value has 600,000 characters; the limit is 65,536"),
    ],
)
def test_rows_that_cannot_be_sent(client: Client, state: State, row: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        client.submit_rows(ECHO, [row], key="k")
    assert rows_of(state, "k") == []


def test_a_bad_description_is_refused_before_rows_are_sent(client: Client, state: State) -> None:
    for description, names, words in (
        ({"executable": "x", "arguments": ["%n"]}, ("",), "%n needs the number of rows"),
        ({"executable": "x", "arguments": ["%(b)s"]}, ("a",), r"no parameter for %\(b\)s"),
        ({"executable": "x", "parameters": [1]}, ("a",), "parameters of its own"),
        ({"executable": "x", "memory": "%(a)s"}, ("a",), "memory"),
    ):
        with pytest.raises(InvalidInput, match=words):
            client.submit_rows(description, [1], names=names)
    with pytest.raises(InvalidInput, match="there are no rows"):
        client.submit_rows(ECHO, [])
    assert [path for _, path in state.requests] == ["/v1/submissions/open"]


def test_a_list_that_is_too_long_for_one_request_goes_in_chunks(client: Client, state: State) -> None:
    answer = client.submit(ECHO, values=range(MAX_CHUNK_ROWS + 1), key="k")
    assert answer.count == MAX_CHUNK_ROWS + 1
    assert state.streams["k"]["request"]["expected"] == MAX_CHUNK_ROWS + 1
    assert "/v1/submissions" not in state.paths("POST")
    client.submit(ECHO, values=range(MAX_CHUNK_ROWS), key="small")
    assert "small" not in state.streams


def test_memory_does_not_grow_with_the_rows(client: Client, state: State) -> None:
    """The fake server keeps all rows in this process: only what lies between is measured."""
    peaks = []
    for count in (4, 40):
        text = "x" * 1000
        state.streams.clear()
        tracemalloc.start()
        rows = ([text] for _ in range(count * 500))
        from pilotage.client.row_upload import check_rows, split_into_chunks

        for _ in split_into_chunks(check_rows(rows, ("",))):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# --- tables


def table(text: str | bytes) -> tuple[tuple[str, ...], list[Any]]:
    data = text if isinstance(text, bytes) else text.encode()
    found = read_table(io.BytesIO(data), "t")
    return found.names, [list(row) for row in found.rows]


def test_a_table_of_csv() -> None:
    assert table('a,b\n1,x\n\n1.10,"y, ""z""\nw"\n') == (("a", "b"), [["1", "x"], ["1.10", 'y, "z"\nw']])
    assert table(b"\xef\xbb\xbfa\r\n\xc3\xa9\r\n") == (("a",), [["\u00e9"]])
    assert table("\n\na\n1") == (("a",), [["1"]])


def test_a_table_of_json_lines() -> None:
    text = '{"a": 1, "b": "x"}\n\n{"b": true, "a": 1.5}\n{"a":"{\\"q\\": \\" }","b":"\\" "}\n'
    assert table(text) == (("a", "b"), [[1, "x"], [1.5, True], ['{"q": " }', '" ']])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "t is empty"),
        ("\n \n", "t is empty"),
        ("a,b\n1,2\n1\n", "line 3 has 1 value for 2 names"),
        ("a,b\n1,2,3\n", "line 2 has 3 values for 2 names"),
        ("a,a\n1,2\n", "line 1 has the name a twice"),
        ("a,b c\n1,2\n", "line 1 has the name 'b c'"),
        ("1,2\n3,4\n", "line 1 has the name '1'"),
        ("a,\n1,2\n", "line 1 has the name ''"),
        ('a\nx\n"open\n', "is not CSV"),
        ('a\n"x"y\n', "line 2 is not CSV"),
        ("a\n1\n\0\n", "line 3 has a NUL"),
        (b"a\n\xff\n", "line 2 is not a text in UTF-8"),
        (b"\x7fELF\x02\x01\x01\0", "line 1 has a NUL"),
        ("a\n" + "x" * 1_100_000, "line 2 is longer than"),
        ('{"a": 1}\n{"a": NaN}\n', "line 2 is not JSON.*"),
        ('{"a": 1}\n{"a": 1\n', "line 2 is not JSON"),
        ('{"a": 1}\n{"b": 1}\n', "line 2 lacks 'a'"),
        ('{"a": 1}\n\n{"a": 1, "b": 1}\n', "line 3 has 'b', which line 1 has not"),
        ('{"a": null}\n', "line 1 cannot be taken: .*null"),
        ('{"a": [1]}\n', "line 1 cannot be taken"),
        ('{"a": 1, "a": 2}\n', "line 1 has 'a' twice"),
        ('{"a": 1e999}\n', "line 1 cannot be taken"),
        ('{"a": 99999999999999999999}\n', "line 1 a: .*64 bits"),
        ('{"a": "\\u0000"}\n', "line 1 a: .*NUL"),
        ("{}\n", "line 1 has no names"),
    ],
)
def test_mistakes_in_tables_are_told_with_their_line(text: str | bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        table(text)


def test_the_line_of_a_mistake_far_down() -> None:
    good = "".join(f'{{"a": {n}}}\n' for n in range(70_000))
    with pytest.raises(InvalidInput, match="line 70,001 is not JSON"):
        table(good + '{"a": \n')


def test_a_row_is_read_only_when_it_is_wanted() -> None:
    found = read_table(io.BytesIO(b"a\n1\n2,3\n"), "t")
    assert next(found.rows) == ["1"]
    with pytest.raises(PilotageError):
        next(found.rows)


def test_columns_are_what_a_description_has() -> None:
    assert parameters_by_name(Parameters(["a"], [[1], [2]])) == {"a": [1, 2]}
