"""The reference of the policy, made from the annotations of its tables."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from pilotage.core.policy import KEYS
from pilotage.core.policy.bounds import RANGES, ZERO_ALLOWED, shown_bound
from pilotage.core.policy.model import Policy
from pilotage.core.setting import keys_of
from pilotage.core.shares.correctors import CORRECTORS


def reference_markdown() -> str:
    """The table of docs/reference/policy.md: every key with its type, default, range and meaning."""
    lines = ["| key | type | default | range | meaning |", "|---|---|---|---|---|"]
    for key in keys_of(Policy):
        if key.name.endswith(".*"):
            default = "`[]`"
        else:
            default = "(required)" if key.default is msgspec.NODEFAULT else f"`{_shown(key.default)}`"
        lines.append(_row(key.name, key.type, default))
    return "\n".join(lines)


def _row(key: str, kind: Any, default: str) -> str:
    return f"| `{key}` | {_type_name(kind)} | {default} | {_range(key)} | {KEYS[key]} |"


def _range(key: str) -> str:
    """The range of a number; "" for a key that is not a number."""
    if key not in RANGES:
        return ""
    low, high = map(shown_bound, RANGES[key])
    return f"{'0, ' if key in ZERO_ALLOWED else ''}{low} to {high}"


def correctors_markdown() -> str:
    """The correctors that a policy can name, with an example of each."""
    parts = []
    for name, instance in CORRECTORS.items():
        parts.append(f"`{name}`: {instance.meaning}.\n\n```toml\n{instance.example}```")
    return "\n\n".join(parts)


def _shown(value: Any) -> str:
    """A default value in TOML syntax."""
    if isinstance(value, tuple):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if value is None:
        return "absent"
    return str(value) if isinstance(value, int) else f"{value:g}"


def _type_name(kind: Any) -> str:
    names = {str: "text", int: "integer", float: "number", bool: "true or false"}
    if kind in names:
        return names[kind]
    if str(kind).startswith("typing.Literal"):
        return " or ".join(f"`{choice}`" for choice in get_args(kind))
    if str(kind).startswith("tuple[typing.Literal"):
        return f"list of {_type_name(get_args(kind)[0])}"
    inner = [argument for argument in get_args(kind) if argument not in (type(None), ...)]
    if get_origin(kind) in (Union, UnionType) and len(inner) > 1:
        *first, last = (_type_name(argument) for argument in inner)
        return f"{', '.join(first)} or {last}"
    if "tuple" in str(kind):
        first = inner[0] if inner[0] in names else get_args(inner[0])[0]
        return f"list of {names[first]}s"
    return _type_name(inner[0])
