"""Bounds of texts, lists and numbers, declared in the type of a field.

    owner: Name = ""        # Name is Annotated[str, Limit(longest=255)]

The server applies these limits where it decodes a body or a query: pydantic finds the method below, and
server/http/decoding.py makes constraints of msgspec from them. Encoding checks nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Callable, Dict, List, Optional

MAX_PAGE = 1000
"""Entries of a page."""
MAX_PAGE_BYTES = 1024 * 1024
"""A page ends early, with the cursor of the next one, at about this size."""

MAX_VALUES = 150_000
"""Values and names of a body, counted by commas and colons. Texts directly below its top, such as a policy, are
exempt."""

MAX_INT64 = 2**63 - 1
"""The largest number in a 64-bit column."""
MAX_INT32 = 2**31 - 1
"""The largest number in a 32-bit column."""
MAX_INSTANT = 253402300799.0
"""The last second of the year 9999, the end of Python's calendar."""


LONGEST_POLL = 600.0
"""Seconds in which a call may wait for an event."""

MAX_FILE_EVENTS = 10**12
"""The most events in one file."""
MAX_FILE_SIZE = 2**50
"""The most bytes of one file."""
MAX_LUMI = 2**32 - 1
"""The largest number of a run or lumi."""


class Bounds:
    """Bounds of a text or list (characters, entries) or of a number; both ends are allowed."""

    __slots__ = ("high", "longest", "low", "shortest")

    def __init__(
        self,
        *,
        longest: Optional[int] = None,
        shortest: Optional[int] = None,
        low: Optional[float] = None,
        high: Optional[float] = None,
    ) -> None:
        self.longest = longest
        self.shortest = shortest
        self.low = low
        self.high = high

    @property
    def rules(self) -> Dict[str, Any]:
        """The bounds that are set, by the names that pydantic and msgspec share."""
        named = {"max_length": self.longest, "min_length": self.shortest, "ge": self.low, "le": self.high}
        return {name: bound for name, bound in named.items() if bound is not None}

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], Dict[str, Any]]
    ) -> Dict[str, Any]:
        """Called by pydantic: the schema of the annotated type, with the bounds. Not a number is refused too."""
        schema = handler(source)
        finite = {"allow_inf_nan": False} if schema["type"] == "float" else {}
        return {**schema, **self.rules, **finite}


class NotNull:
    """The mark of an optional field that may be left out, and then is None; `null` in a body is refused."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], Dict[str, Any]]
    ) -> Dict[str, Any]:
        """Called by pydantic: the schema without the null that Optional adds."""
        schema = handler(source)
        inner: Dict[str, Any] = schema["schema"] if schema["type"] == "nullable" else schema
        return inner


NOT_NULL = NotNull()

Id = Annotated[int, Bounds(low=1, high=MAX_INT64)]
"""The number of a job, a submission, a pilot, a queue, a version of the policy."""
Cursor = Annotated[int, Bounds(low=0, high=MAX_INT64)]
"""The last id of a page; 0: from the beginning."""
Offset = Annotated[int, Bounds(low=0, high=MAX_INT64)]
"""Bytes from the beginning of a file."""
Count = Annotated[int, Bounds(low=0, high=MAX_INT64)]
FileEvents = Annotated[int, Bounds(low=0, high=MAX_FILE_EVENTS)]
FileSize = Annotated[int, Bounds(low=0, high=MAX_FILE_SIZE)]
Lumi = Annotated[List[Annotated[int, Bounds(low=0, high=MAX_LUMI)]], Bounds(shortest=3, longest=3)]
"""[run, first lumi, last lumi]"""
Int32 = Annotated[int, Bounds(low=0, high=MAX_INT32)]
"""A number in a 32-bit column: an epoch, the number of a chunk."""
Instant = Annotated[float, Bounds(low=-MAX_INSTANT, high=MAX_INSTANT)]
"""Seconds since 1970."""
Seconds = Annotated[float, Bounds(low=0, high=MAX_INSTANT)]

Name = Annotated[str, Bounds(longest=255)]
"""The name of a user, group, site or node, or an idempotency key. May be empty."""
GivenName = Annotated[str, Bounds(shortest=1, longest=255)]
"""A name in a condition. An empty name is refused, since it would match every name."""
JobName = Annotated[str, Bounds(shortest=1, longest=1024)]
"""The name of jobs in a condition."""
Digest = Annotated[str, Bounds(longest=64)]
"""SHA-256 in hexadecimal."""
FileName = Annotated[str, Bounds(longest=1000)]
"""Relative to the folder of a job."""
Message = Annotated[str, Bounds(longest=2000)]
"""A reason or message given with an action."""
