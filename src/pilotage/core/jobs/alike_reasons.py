"""Reasons of failures that differ in a measured amount only."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"\d[\d,.]*(?= ?(?:[kMGT]?i?B|m?s|min|h|%)\b)")
"""A number with a unit. Other numbers, such as an exit code, tell reasons apart."""


def kind_of_reason(reason: str) -> str:
    """The same text for reasons that differ in amounts only.

    >>> kind_of_reason("limit-memory: 1065 MB of 1000 MB") == kind_of_reason("limit-memory: 1,071 MB of 1000 MB")
    True
    >>> kind_of_reason("exit code 1") == kind_of_reason("exit code 2")
    False
    """
    return _AMOUNT.sub("#", reason)
