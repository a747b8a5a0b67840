"""The limits of wire/limits.py as constraints of msgspec, which decodes the pilots' messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from pilotage.wire.limits import Limit

Kind = TypeVar("Kind")


def limited(kind: type[Kind]) -> type[Kind]:
    """A type to decode as: a subclass of the dataclass `kind` that differs in the limits that msgspec checks.

    msgspec checks while it decodes, which costs about half a microsecond for a message.
    """
    return cast("type[Kind]", _limited(kind))


def _subclass(kind: Any) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        (field.name, _with_limits(hints[field.name]), _again(field)) for field in dataclasses.fields(kind)
    ]
    namespace = {"__module__": kind.__module__}
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), namespace=namespace)


_limited: Callable[[Any], Any] = cache(_subclass)


def _again(field: dataclasses.Field[Any]) -> Any:
    """The same default for another class."""
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field(default=field.default)


def _with_limits(hint: Any) -> Any:
    """The same type with constraints where it has limits."""
    if dataclasses.is_dataclass(hint):
        return _limited(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        rules = {
            name: bound
            for limit in arguments[1:]
            if isinstance(limit, Limit)
            for name, bound in limit.rules.items()
        }
        return Annotated[_with_limits(arguments[0]), msgspec.Meta(**rules)]
    if origin is Union:
        return Union[tuple(map(_with_limits, arguments))]  # noqa: UP007
    if origin is not None:
        return origin[tuple(map(_with_limits, arguments))]
    return hint
