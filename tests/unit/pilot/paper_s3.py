"""An S3 service on paper, behind real connections. One answer of it can be spoilt."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from pilotage.wire.storage import AddressRequest, SignedAddress

BUCKET = "data"
METHODS = {
    "get": "GET",
    "put": "PUT",
    "remove": "DELETE",
    "begin": "POST",
    "part": "PUT",
    "complete": "POST",
    "abort": "DELETE",
    "list": "GET",
}


class Told(NamedTuple):
    """An answer. `announced`: the length in its header; -1: that of its body."""

    status: int
    body: bytes = b""
    etag: str = ""
    announced: int = -1


class PaperS3(ThreadingHTTPServer):
    """One bucket."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[int, bytes] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.address = f"s3://127.0.0.1:{self.server_address[1]}/{BUCKET}"
        self.left = 0
        self.spoil: Callable[[Told], Told | None] = lambda answer: answer
        """Makes another answer of the one that is due; None: the connection ends."""
        self.spoilt = ""
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def arm(self, number: int, spoil: Callable[[Told], Told | None]) -> None:
        """Spoil this answer; the first one is 1."""
        self.left, self.spoil, self.spoilt = number, spoil, ""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def post(self, path: str, asked: AddressRequest, kind: type[SignedAddress]) -> SignedAddress:
        """The address for a request, as the server signs it."""
        query = f"op={asked.operation}&part={asked.part}&after={asked.after.partition(f'/{BUCKET}/')[2]}"
        return SignedAddress(METHODS[asked.operation], f"{self.url}/{asked.url.split('/', 4)[4]}?{query}")

    def told(self, key: str, query: dict[str, str], body: bytes, first: int) -> Told:
        """The right answer."""
        operation = query["op"]
        if operation == "put":
            self.objects[key] = body
        elif operation == "part":
            self.parts[int(query["part"])] = body
        elif operation == "begin":
            return Told(200, b"<UploadId>7</UploadId>")
        elif operation == "complete":
            self.objects[key] = b"".join(self.parts[number] for number in sorted(self.parts))
            return Told(200, b"<ETag>done</ETag>")
        elif operation == "remove":
            self.objects.pop(key, None)
            return Told(204)
        elif operation == "list":
            # Two objects are a page.
            below = sorted(
                name for name in self.objects if name.startswith(key) and name > query.get("after", "")
            )
            keys, truncated = below[:2], str(len(below) > 2).lower()
            rows = "".join(f"<Contents><Key>{name}</Key></Contents>\n" for name in keys)
            return Told(
                200,
                f"<ListBucketResult>\n<KeyCount>{len(keys)}</KeyCount>\n{rows}"
                f"<IsTruncated>{truncated}</IsTruncated></ListBucketResult>".encode(),
            )
        elif operation == "get":
            known = self.objects.get(key)
            if known is None:
                return Told(404, b"<Code>NoSuchKey</Code>")
            return Told(206 if first else 200, known[first:], "mark")
        return Told(200, b"", hashlib.new("md5", body, usedforsecurity=False).hexdigest())


class _Answering(BaseHTTPRequestHandler):
    server: PaperS3

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        first = int((self.headers.get("Range") or "bytes=0-").partition("=")[2].partition("-")[0])
        due = self.server.told(unquote(url.path)[1:], query, body, first)
        self.server.left -= 1
        answer: Told | None = due
        if not self.server.left:
            self.server.spoilt = query["op"]
            answer = self.server.spoil(due)
        self.close_connection = True
        if answer is None:
            return
        self.send_response(answer.status)
        self.send_header(
            "Content-Length", str(len(answer.body) if answer.announced < 0 else answer.announced)
        )
        if answer.etag:
            self.send_header("ETag", answer.etag)
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass
