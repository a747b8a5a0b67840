"""Reads a page of a list of objects. A page that is cut short, garbage or without its marks is no page."""

from __future__ import annotations

import re
from datetime import datetime
from xml.sax.saxutils import unescape

from pilotage.outside.storage.operations import ListedObject, ObjectPage

_PAGE = re.compile(r"\s*(<\?xml[^>]*\?>)?\s*<ListBucketResult\b.*</ListBucketResult>\s*", re.DOTALL)
_OBJECT = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_FIELD = re.compile(r"<(Key|Size|LastModified)>([^<]+)</\1>")
_TRUNCATED = re.compile(r"<IsTruncated>(true|false)</IsTruncated>")
_COUNT = re.compile(r"<KeyCount>([0-9]{1,9})</KeyCount>")
_ENTITIES = {"&quot;": '"', "&apos;": "'", "&#34;": '"', "&#39;": "'"}


def read_page(text: str, bucket: str) -> ObjectPage:
    """The objects of an answer to ListObjectsV2. `bucket`: the beginning of their addresses. Raises ValueError."""
    truncated, count = _TRUNCATED.findall(text), _COUNT.findall(text)
    if _PAGE.fullmatch(text) is None or len(truncated) != 1:
        raise ValueError("its begin, its end, or whether it goes on is missing")
    objects = [_read_object(part, bucket) for part in _OBJECT.findall(text)]
    if text.count("<Key>") != len(objects) or (count and int(count[0]) != len(objects)):
        raise ValueError("it has fewer objects than it tells")
    return ObjectPage(objects, truncated[0] == "false")


def _read_object(part: str, bucket: str) -> ListedObject:
    given = dict(_FIELD.findall(part))
    if given.keys() != {"Key", "Size", "LastModified"}:
        raise ValueError("an object without name, size or time")
    modified = datetime.fromisoformat(given["LastModified"])
    if modified.tzinfo is None:
        raise ValueError("a time without its zone")
    return ListedObject(bucket + unescape(given["Key"], _ENTITIES), int(given["Size"]), modified.timestamp())
