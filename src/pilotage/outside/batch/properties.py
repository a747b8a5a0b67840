"""Properties of a pilot as one word of text, for the comment or the arguments of its batch job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

from pilotage.outside.batch.adapter import BatchSubmission

_SAFE = "@:+"
"""Characters that stay as they are, beside letters, digits and `_.-~`."""


def all_properties(submission: BatchSubmission) -> dict[str, str]:
    """The properties of each pilot of a submission: its stamp and shape, and the director's facts."""
    shape = submission.shape
    sizes = {"cores": shape.processors, "memory": shape.memory, "wall": round(shape.wall)}
    return {
        "stamp": submission.stamp,
        **{name: str(size) for name, size in sizes.items() if size},
        **submission.properties,
    }


def write_properties(properties: Mapping[str, str]) -> str:
    """`name=value,name=value` without spaces and control characters."""
    return ",".join(
        f"{quote(name, safe='')}={quote(value, safe=_SAFE)}" for name, value in properties.items()
    )


def read_properties(text: str) -> dict[str, str]:
    """Read the text of `write_properties`. Words of another form are left out."""
    pairs = (word.partition("=") for word in text.split(","))
    return {unquote(name): unquote(value) for name, equals, value in pairs if equals and name}


def decode_properties(values: Mapping[str, str]) -> dict[str, str]:
    """The properties of the names and values of `write_properties`, for a batch system that reads them apart."""
    return {unquote(name): unquote(value) for name, value in values.items()}
