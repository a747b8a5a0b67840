"""Forms of browsers: fields and files arrive as they were sent, and a form that is cut short is refused whole."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from pilotage.core.errors import InvalidInput
from pilotage.server.web.forms import MOST_FIELDS, SentFile, SentForm, read_form

SOURCE = "http://127.0.0.1/"


def read(kind: str, body: bytes) -> SentForm:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", kind.encode())]
    return asyncio.run(read_form(Request({"type": "http", "method": "POST", "headers": headers}, receive)))


def sent(fields: dict[str, str], files: list[tuple[str, tuple[str, bytes]]]) -> tuple[str, bytes]:
    """The type and the body that a client makes."""
    request = httpx.Request("POST", SOURCE, data=fields, files=files)
    return request.headers["content-type"], request.read()


def test_fields_and_files_arrive_as_they_were_sent() -> None:
    seed = Random().randrange(2**32)
    print("seed", seed)
    rng = Random(seed)
    for _ in range(200):
        fields = {f"f{n}": "".join(rng.choices('aé \r\n-"=&\u202e', k=9)) for n in range(rng.randint(0, 3))}
        pieces = (b"\r\n", b"--", b"\0", b"\xff", b"a", b"\r\n--", b"\r\n\r\n")
        files = [
            (f"file{n}", (name, b"".join(rng.choices(pieces, k=rng.randint(0, 30)))))
            for n, name in enumerate(rng.sample(["run.sh", "a b.py", "é.txt", "c;d=e"], rng.randint(1, 3)))
        ]
        kind, body = sent(fields, files)
        form = read(kind, body)
        assert form == SentForm(fields, [SentFile(field, *file) for field, file in files]), seed
        if rng.random() < 0.2:
            cut = body[: rng.randrange(len(body) - 4)]
            with pytest.raises(InvalidInput, match="cannot be read"):
                read(kind, cut)


def test_a_file_that_was_not_chosen_is_none_and_folders_are_left_out() -> None:
    kind, body = sent({}, [("file", ("x", b"")), ("file", ("../../y.sh", b"1"))])
    form = read(kind, body.replace(b'filename="x"', b'filename=""'))
    assert form.files == [SentFile("file", "y.sh", b"1")]


def test_a_plain_form_has_fields_only() -> None:
    kind = "application/x-www-form-urlencoded"
    assert read(kind, b"a=1&b=%C3%A9&c=") == SentForm({"a": "1", "b": "é", "c": ""})


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed"])
def test_a_form_without_boundary_is_refused(kind: str) -> None:
    with pytest.raises(InvalidInput):
        read(kind, b"--a--")


def test_a_form_of_very_many_parts_is_refused() -> None:
    kind, body = sent({}, [(f"f{n}", ("x", b"")) for n in range(MOST_FIELDS + 2)])
    with pytest.raises(InvalidInput):
        read(kind, body)
