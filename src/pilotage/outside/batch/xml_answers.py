"""The XML that batch systems print or answer."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from pilotage.outside.batch.command_client import UnreadableOutput

_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML cannot have, halves of surrogate pairs among them."""


def read_xml(text: str) -> ElementTree.Element:
    """The root element. A text that is cut off, or that declares entities, is an error.

    Without declarations no entity can grow or name a file, so the parser of the standard library is safe.
    """
    if "<!" in text:
        raise UnreadableOutput("the XML has a declaration of its own")
    try:
        # Batch systems do not escape control characters in the names of jobs.
        return ElementTree.fromstring(_CONTROL.sub("\ufffd", text))  # noqa: S314 - no declarations are left
    except ElementTree.ParseError as error:
        raise UnreadableOutput(f"not XML ({error}): {text[:200]!r}") from None
