"""Options of a command as the fields of dataclasses, so that they travel by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

Command = TypeVar("Command", bound=Callable[..., Any])


class OptionGroup:
    """Base of frozen dataclasses whose fields are annotated with options. Every field has a default."""


def with_option_groups(function: Command) -> Command:
    """Replace each parameter that is an OptionGroup by its fields, for the parser. The function gets the group."""
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, type[OptionGroup]] = {}
    flat: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            flat += _parameters(kind)
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD))

    def command(*values: Any, **named: Any) -> Any:
        for name, kind in groups.items():
            named[name] = kind(**{field.name: named.pop(field.name) for field in fields(kind)})  # type: ignore[arg-type]
        return function(*values, **named)

    keyword = inspect.Parameter.KEYWORD_ONLY
    flat = [flat[0], *(parameter.replace(kind=keyword) for parameter in flat[1:])]
    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    command.__module__ = function.__module__
    return command  # type: ignore[return-value]


def _parameters(kind: type[OptionGroup]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])
        for field in fields(kind)  # type: ignore[arg-type]
    ]
