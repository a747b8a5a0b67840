"""An endpoint at which another program listens, such as a web server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pilotage.core.errors import NotFound
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.s3 import S3Place


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """The address of a web server with one page, /page."""
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "page").write_text("<html>Welcome</html>")
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("bucket", ["page", "missing"])
def test_a_web_server_is_no_s3_service(
    endpoint: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "B")
    place = S3Place(S3Options(endpoint=endpoint, bucket=bucket))
    try:
        with pytest.raises(NotFound, match=f"{endpoint} is no S3 service"):
            place.check(0.0)
    finally:
        place.close()
