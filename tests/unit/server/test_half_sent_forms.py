"""A browser that leaves in the middle of a form is no error of the server: nothing is logged, nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.server.web.page import page_routers
from tests.unit.server.test_grants import NOW, POLICY, Server
from tests.unit.services.bench import Bench

FORMS = [
    address.path for router in page_routers() for address in router.addresses if address.method == "POST"
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    bench = Bench(tmp_path, POLICY, NOW)
    yield Server(bench, tmp_path)
    bench.end()


def test_no_half_sent_form_is_a_traceback(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def send(path: str) -> None:
        messages = iter([{"type": "http.request", "body": b"token=", "more_body": True}])

        async def receive() -> Any:
            return next(messages, {"type": "http.disconnect"})

        async def answer(message: Any) -> None: ...

        scope = {
            "type": "http",
            "method": "POST",
            "path": path.replace("{", "").replace("}", ""),
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"content-length", b"60"), (b"host", b"127.0.0.1")],
            "scheme": "http",
            "http_version": "1.1",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 9),
        }
        await server.application(scope, receive, answer)

    async def send_all() -> None:
        for path in FORMS:
            await send(path)

    asyncio.run(send_all())
    assert FORMS
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
