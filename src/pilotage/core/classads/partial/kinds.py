"""Kinds of unknown attributes, and kinds that follow from how an expression uses an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pilotage.core.classads.partial.outcomes import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    LIST,
    NUMBER,
    STRING,
)

LARGEST_QUANTITY: Final = 2**42
"""It times 2^20 still fits into 64 bits, as for bytes of a size in megabytes."""


class Kind(StrEnum):
    """The declared type of an unknown attribute: every full ad gives it a value of this type.

    INTEGER and NUMBER (an integer or a real) are never infinite and never NaN. STRINGS is a list of strings.
    QUANTITY is an integer of at most `LARGEST_QUANTITY`, negative or not, so that sums with it do not overflow.
    ANY stands for every value, undefined and error included: the attribute may be absent.
    """

    INTEGER = "integer"
    QUANTITY = "quantity"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    STRINGS = "strings"
    ANY = "any"


OUTCOMES_OF: Final[Mapping[Kind, int]] = {
    Kind.INTEGER: INTEGER,
    Kind.QUANTITY: INTEGER,
    Kind.NUMBER: NUMBER,
    Kind.STRING: STRING,
    Kind.BOOLEAN: BOOLEAN,
    Kind.STRINGS: LIST,
    Kind.ANY: ANYTHING,
}
