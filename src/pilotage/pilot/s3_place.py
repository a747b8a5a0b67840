"""A storage place in an S3 service. No more of a file than one part is in memory.

A small file is sent at once, a larger one in parts. The service compares each request with the MD5 sum of its body.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import re
from contextlib import closing
from typing import Dict, Iterable, Iterator, List, Set, Tuple
from xml.sax.saxutils import escape, unescape

from pilotage.wire.data import StoragePlace
from pilotage.wire.storage import AddressRequest

from .checksums import Checksum
from .events import Key
from .place import PIECE, DataAttempt, PlaceFailed
from .s3_requests import MissingObject, S3Answer, S3Requests

PART = 16 << 20
"""Bytes of a part. A service takes at least 5 MiB, and 10,000 parts of a file."""
_MAX_PARTS = 10_000
_CUTS = 5
"""A download that is cut without progress as often fails."""
_ETAG = re.compile(rb"<ETag>([^<]{1,200})</ETag>")
_UPLOAD = re.compile(rb"<UploadId>([^<]{1,1000})</UploadId>")
_KEY = re.compile(rb"<Key>([^<]+)</Key>")
_COUNT = re.compile(rb"<KeyCount>([0-9]{1,9})</KeyCount>")
_END_OF_LIST = b"</ListBucketResult>"
_LAST = b"<IsTruncated>false</IsTruncated>"
_ERROR = re.compile(rb"<Error>.*?<Code>([A-Za-z]{1,80})</Code>", re.DOTALL)


class S3PilotPlace:
    """Implements `PlaceAdapter`."""

    def __init__(self, place: StoragePlace, attempt: DataAttempt) -> None:
        self._place = place
        self._attempt = attempt
        self._requests = S3Requests(place, attempt)

    def own_folder(self, prefix: str, element: int, key: Key) -> str:
        return f"{element}/{key[0]}-{key[1]}-{self._attempt.stamp}"

    def write(self, path: str, pieces: Iterable[bytes], checksum: Checksum) -> str:
        upload, etags = "", []
        try:
            for number, (part, is_last) in enumerate(_parts(pieces), start=1):
                checksum.update(part)
                if number == 1 and is_last:
                    return self._put(AddressRequest("put", path), part)
                if number > _MAX_PARTS:
                    raise PlaceFailed(f"it has more than {_MAX_PARTS * PART:,} bytes")
                upload = upload or self._begin(path)
                etags.append(self._put(AddressRequest("part", path, upload, number), part))
            return self._complete(path, upload, etags)
        except BaseException:
            if upload:
                self._requests.clear_away(AddressRequest("abort", path, upload))
            raise

    def _put(self, asked: AddressRequest, body: bytes) -> str:
        digest = hashlib.new("md5", body, usedforsecurity=False)
        headers = {"Content-MD5": base64.b64encode(digest.digest()).decode()}
        answer = self._requests.send(asked, body, headers, _has_mark)
        return (answer.headers.get("ETag") or "").strip('"')

    def _begin(self, path: str) -> str:
        answer = self._requests.send(AddressRequest("begin", path), is_whole=_has_upload)
        return unescape(_UPLOAD.findall(answer.body)[0].decode())

    def _complete(self, path: str, upload: str, etags: List[str]) -> str:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{escape(etag)}&quot;</ETag></Part>"
            for number, etag in enumerate(etags, start=1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer = self._requests.send(AddressRequest("complete", path, upload), body, is_whole=_has_outcome)
        failed = _ERROR.search(answer.body)  # AWS begins its answer before it knows the end
        if failed is not None:
            raise PlaceFailed(f"the service does not complete the upload: {failed[1].decode()}")
        return unescape(_ETAG.findall(answer.body)[0].decode(), {"&quot;": '"', "&#34;": '"'}).strip('"')

    def withdraw(self, prefix: str, names: Iterable[str], folder: str) -> None:
        for name in names:
            self._requests.clear_away(AddressRequest("remove", f"{prefix}/{name}"))

    def read(self, path: str) -> Iterator[bytes]:
        """Goes on where a download was cut, if the object is the same."""
        done, etag, cuts = 0, "", 0
        while True:
            headers = {"Range": f"bytes={done}-", "If-Match": etag} if done else {}
            answer = self._requests.send(AddressRequest("get", path), headers=headers)
            if done and answer.status != http.client.PARTIAL_CONTENT:
                answer.connection.close()
                raise PlaceFailed("its download was cut, and the service does not give the rest")
            etag, before = answer.headers.get("ETag") or "", done
            reason = "the service sent less than it announced"
            with closing(answer.connection):
                expected = done + int(answer.headers.get("Content-Length") or 0)
                try:
                    while done < expected:
                        piece = answer.response.read(PIECE)
                        if not piece:
                            break
                        done += len(piece)
                        yield piece
                        self._attempt.check()
                    if done >= expected:
                        return
                except (OSError, http.client.HTTPException) as error:
                    reason = str(error) or type(error).__name__
            cuts = 1 if done > before else cuts + 1
            if cuts > _CUTS:
                raise PlaceFailed(f"its download was cut: {reason}")
            self._attempt.pause(cuts)

    def remove(self, path: str) -> None:
        with contextlib.suppress(MissingObject):
            self._requests.send(AddressRequest("remove", path))

    def sweep(self, root: str, folder: str, kept: Set[str]) -> List[str]:
        failures, after = [], ""
        while True:
            page = self._list(f"{root}/{folder}/", after)
            for path in page:
                if path.removeprefix(f"{root}/") in kept:
                    continue
                try:
                    self.remove(path)
                except OSError as error:
                    failures.append(f"{path}: {error}")
            if not page:
                return failures
            if page[-1] == after:
                return [*failures, f"{root}/{folder}: the service tells the same files again"]
            after = page[-1]

    def _list(self, folder: str, after: str) -> List[str]:
        """The addresses of files below a folder, a page of them."""
        answer = self._requests.send(AddressRequest("list", folder, after=after), is_whole=_is_whole_list)
        scheme, host, bucket = _head_of(self._place.path)
        keys = (unescape(key.decode(), _ENTITIES) for key in _KEY.findall(answer.body))
        return [f"{scheme}//{host}/{bucket}/{key}" for key in keys]


def _has_mark(answer: S3Answer) -> bool:
    return bool((answer.headers.get("ETag") or "").strip('"'))


def _has_outcome(answer: S3Answer) -> bool:
    return _ETAG.search(answer.body) is not None or _ERROR.search(answer.body) is not None


def _has_upload(answer: S3Answer) -> bool:
    return _UPLOAD.search(answer.body) is not None


def _is_whole_list(answer: S3Answer) -> bool:
    """Whether a page of a list has its end, and as many objects as it tells. An empty one says that it is the last."""
    count, keys = _COUNT.search(answer.body), len(_KEY.findall(answer.body))
    has_all = count is None or int(count[1]) == keys
    return _END_OF_LIST in answer.body and has_all and (keys > 0 or _LAST in answer.body)


_ENTITIES: Dict[str, str] = {"&quot;": '"', "&apos;": "'", "&#34;": '"', "&#39;": "'"}


def _head_of(address: str) -> Tuple[str, str, str]:
    scheme, _, host, bucket = address.split("/")[:4]
    return scheme, host, bucket


def _parts(pieces: Iterable[bytes]) -> Iterator[Tuple[bytes, bool]]:
    """The bytes in parts, each with whether it is the last one. An empty file has one part."""
    chunks: List[bytes] = []
    size = 0
    for piece in pieces:
        while size + len(piece) > PART:
            chunks.append(piece[: PART - size])
            piece = piece[PART - size :]
            part, size = b"".join(chunks), 0
            chunks.clear()
            yield part, False
        chunks.append(piece)
        size += len(piece)
    yield b"".join(chunks), True
