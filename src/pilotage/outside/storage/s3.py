"""One place in an S3 service: presigned addresses for pilots, and the server's own questions."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx

from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound, PilotageError, Unreachable
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.call_deadlines import CallDeadlines, TookTooLong
from pilotage.outside.service_keys import with_keys
from pilotage.outside.storage.credentials import find_credentials
from pilotage.outside.storage.object_list import read_page
from pilotage.outside.storage.operations import (
    ObjectPage,
    ObjectPiece,
    S3Operation,
    SignedRequest,
    StoredObject,
)
from pilotage.outside.storage.sigv4 import S3Request, presigned, quoted_path

TIMEOUT = 10.0
"""Seconds without an answer after which a question fails."""
WHOLE = 60.0
"""Seconds for a whole answer."""
QUESTIONS_AT_ONCE = 16
_BUSY = (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS)
_FAILED = httpx.codes.INTERNAL_SERVER_ERROR
_OPERATIONS = {
    "get": "GET",
    "put": "PUT",
    "head": "HEAD",
    "remove": "DELETE",
    "begin": "POST",
    "part": "PUT",
    "complete": "POST",
    "abort": "DELETE",
    "list": "GET",
}
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})")
_CODE = re.compile(rb"<Code>([A-Za-z]{1,80})</Code>")


class S3Place:
    """Several threads may use it."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._deadlines = CallDeadlines(WHOLE)
        self._client = httpx.Client(
            timeout=TIMEOUT,
            verify=ssl.create_default_context(),
            event_hooks={"request": [self._deadlines.on_request]},
        )

    def sign(self, operation: S3Operation, now: float) -> SignedRequest:
        """Raises `NotAuthenticated` if the server has no key."""
        options = self._options
        method = _OPERATIONS.get(operation.name)
        if method is None:
            raise InvalidInput(f"there is no operation {operation.name!r}", field="operation")
        query: dict[str, str] = {}
        key = self._key_of(operation.url)
        if operation.name == "begin":
            query["uploads"] = ""
        elif operation.name in ("part", "complete", "abort"):
            query["uploadId"] = operation.upload
        if operation.name == "part":
            query["partNumber"] = str(operation.part)
        if operation.name == "list":
            query |= {"list-type": "2", "prefix": key, "max-keys": str(operation.most)}
            if operation.after:
                query["start-after"] = self._key_of(operation.after)
            key = ""
        request = S3Request(method, self._address_of(key), query, dict(operation.headers))
        credentials = find_credentials(options, with_keys())
        return SignedRequest(method, presigned(request, credentials, options.region, now, options.lifetime))

    def _key_of(self, url: str) -> str:
        """The name of an object: all after the bucket. In names of files, # and ? are characters as any other."""
        return "".join(url.split("/", 4)[4:])

    def _address_of(self, key: str) -> str:
        endpoint = urlsplit(self._options.endpoint)
        bucket, path = self._options.bucket, quoted_path(key)
        if self._options.style == "virtual":
            return f"{endpoint.scheme}://{bucket}.{endpoint.netloc}/{path}"
        return f"{endpoint.scheme}://{endpoint.netloc}/{bucket}/{path}".rstrip("/" if not key else "")

    def check(self, now: float) -> None:
        """Return if the bucket is there, and the key may list it. Raises the reason."""
        answer = self._ask(S3Operation("list", f"{self._options.address}/", most=1), now)
        begin = answer.content[:10_000]
        is_service = _CODE.search(begin) or b"ListBucketResult" in begin
        if not is_service and answer.status_code in (httpx.codes.OK, httpx.codes.NOT_FOUND):
            # A service lists the bucket, or tells a code. This is another program, such as a web server.
            raise NotFound(f"{self._options.endpoint} is no S3 service", hint="check endpoint")
        if answer.status_code != httpx.codes.OK:
            raise self._error(answer)

    def list_objects(self, after: str, now: float) -> ObjectPage:
        """A page of all objects of the place, with addresses above `after`. Raises `Unreachable` if it is not whole."""
        place = f"{self._options.address}/"
        answer = self._ask(S3Operation("list", place, after=after), now)
        if answer.status_code != httpx.codes.OK:
            raise self._error(answer)
        bucket = place.removesuffix(self._key_of(place))
        try:
            page = read_page(answer.content.decode("utf-8"), bucket)
        except ValueError as error:
            raise Unreachable(f"{self._options.endpoint} gives no whole list of objects: {error}") from None
        wrong = [row.url for row in page.objects if not row.url.startswith(place) or row.url == after]
        if wrong or (not page.objects and not page.is_last):
            raise Unreachable(f"{self._options.endpoint} gives another list of objects than it was asked for")
        return page

    def look_at(self, urls: Sequence[str], now: float) -> list[StoredObject]:
        """The objects with these addresses."""
        with ThreadPoolExecutor(min(QUESTIONS_AT_ONCE, max(1, len(urls)))) as threads:
            return list(threads.map(lambda url: self._object(url, now), urls))

    def remove(self, urls: Sequence[str], now: float) -> None:
        """Remove objects. An object that is missing is removed. Raises the first reason against it."""
        with ThreadPoolExecutor(min(QUESTIONS_AT_ONCE, max(1, len(urls)))) as threads:
            list(threads.map(lambda url: self._remove(url, now), urls))

    def _remove(self, url: str, now: float) -> None:
        answer = self._ask(S3Operation("remove", url), now)
        if not answer.is_success and answer.status_code != httpx.codes.NOT_FOUND:
            raise self._error(answer)

    def read(self, piece: ObjectPiece, now: float) -> bytes:
        """A piece of an object; less at its end. Raises `Conflict` if the object has other contents."""
        end = piece.offset + piece.most - 1
        headers = {"Range": f"bytes={piece.offset}-{end}", "If-Match": f'"{piece.etag}"'}
        answer = self._ask(S3Operation("get", piece.url), now, headers)
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return b""
        if answer.status_code == httpx.codes.PRECONDITION_FAILED:
            raise Conflict(f"{piece.url} has other contents than were written")
        if not answer.is_success:
            raise self._error(answer)
        if _mark_of(answer) != piece.etag:
            raise Unreachable(f"{self._options.endpoint} gives another answer than the object {piece.url}")
        if answer.status_code != httpx.codes.PARTIAL_CONTENT:
            return answer.content[piece.offset : end + 1]
        if not (span := _RANGE.fullmatch(answer.headers.get("Content-Range", ""))):
            raise Unreachable(f"{self._options.endpoint} does not tell which piece of {piece.url} it gives")
        first, size = int(span[1]), int(span[2])
        if first != piece.offset or len(answer.content) != min(piece.most, size - first):
            raise Unreachable(
                f"{self._options.endpoint} gives {len(answer.content):,} bytes of {piece.url} only"
            )
        return answer.content

    def _object(self, url: str, now: float) -> StoredObject:
        try:
            answer = self._ask(S3Operation("head", url), now)
        except PilotageError as error:
            return StoredObject(problem=str(error), is_unknown=True)
        if answer.status_code != httpx.codes.OK:
            code = answer.status_code
            return StoredObject(problem=str(self._error(answer)), is_unknown=code in _BUSY or code >= _FAILED)
        size, mark = answer.headers.get("Content-Length", ""), _mark_of(answer)
        if not size.isdecimal() or not mark:
            problem = f"{self._options.endpoint} gives an answer without the size and the mark of an object"
            return StoredObject(problem=problem, is_unknown=True)
        return StoredObject(int(size), mark)

    def _ask(
        self, operation: S3Operation, now: float, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        request = self.sign(operation, now)
        try:
            with self._deadlines.call():
                try:
                    return self._client.request(request.method, request.address, headers=headers)
                except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                    # The service has closed a connection that was kept.
                    return self._client.request(request.method, request.address, headers=headers)
        except TookTooLong as error:
            raise Unreachable(f"{self._options.endpoint}: {error}") from None
        except httpx.TimeoutException:
            raise Unreachable(f"{self._options.endpoint} has not answered for {TIMEOUT:g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            # The text of the error never has the address, which is signed.
            reason = type(error).__name__ if "X-Amz" in str(error) else str(error) or type(error).__name__
            raise Unreachable(f"{self._options.endpoint} does not answer: {reason}") from None
        except RuntimeError:
            raise Unreachable(f"{self._options.endpoint}: the connection was closed") from None

    def _error(self, answer: httpx.Response) -> PilotageError:
        options, match = self._options, _CODE.search(answer.content[:10_000])
        code = match[1].decode() if match else f"HTTP {answer.status_code}"
        if answer.status_code == httpx.codes.NOT_FOUND:
            missing = "has no bucket" if code == "NoSuchBucket" else "has no such object in bucket"
            return NotFound(f"{options.endpoint} {missing} {options.bucket}")
        if answer.status_code == httpx.codes.FORBIDDEN:
            hint = "check the key, its rights to the bucket, and the clocks of both machines"
            return Forbidden(
                f"{options.endpoint} forbids the use of bucket {options.bucket}: {code}", hint=hint
            )
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            return Unreachable(f"{options.endpoint} does not serve: {code}")
        return InvalidInput(
            f"{options.endpoint} refuses bucket {options.bucket}: {code}", hint="check region and style"
        )

    def close(self) -> None:
        self._client.close()


def _mark_of(answer: httpx.Response) -> str:
    return str(answer.headers.get("ETag", "")).strip('"')
