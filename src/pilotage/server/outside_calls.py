"""Calls that leave the process, other than to the store: a record of a server has their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pilotage.outside.batch.adapter import BatchAdapter

Value = TypeVar("Value")


class OutsideCalls(Protocol):
    """Makes calls, or answers in their place from a record."""

    def ask(self, call: str, kind: Any, make: Callable[[], Value]) -> Value:
        """The result of `make`. `call`: its name. `kind`: the type of the result, as msgspec reads it."""
        ...

    def adapter(self, name: str, make: Callable[[], BatchAdapter]) -> BatchAdapter:
        """An adapter whose calls are made, or answered, in this way."""
        ...


class DirectCalls:
    """Makes the calls at once: no record is written."""

    def ask(self, call: str, kind: Any, make: Callable[[], Value]) -> Value:
        return make()

    def adapter(self, name: str, make: Callable[[], BatchAdapter]) -> BatchAdapter:
        return make()
