"""Mail about submissions: the events that it tells, and addresses."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

MAX_ADDRESS: Final = 254
_ADDRESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]*@[A-Za-z0-9][A-Za-z0-9.-]*\Z")


class MailEvent(StrEnum):
    """An event of a submission that a mail tells once. The field `mail_type` has these values."""

    END = "end"
    """All of its jobs have ended."""
    FAIL = "fail"
    """One of its jobs has failed, the first one."""


def mail_addresses(text: str) -> list[str]:
    """The addresses of a text with commas between them.

    >>> mail_addresses("a@b.example, c@d.example")
    ['a@b.example', 'c@d.example']
    """
    return [address for part in text.split(",") if (address := part.strip())]


def is_mail_address(text: str) -> bool:
    """Whether a text is a plain address, in ASCII and without a name."""
    return len(text) <= MAX_ADDRESS and _ADDRESS.match(text) is not None
