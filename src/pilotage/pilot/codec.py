"""JSON to and from the dataclasses of `pilotage.wire`.

The protocol requires lenient decoding: unknown fields are dropped, and missing fields take their defaults. So pilots
and servers of neighbouring versions understand each other.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, Callable, Dict, Type, TypeVar

T = TypeVar("T")
Decoder = Callable[[Any], Any]

_decoders: Dict[type, Dict[str, Decoder]] = {}


def encode(body: Any) -> bytes:
    """Encode a wire dataclass and the dataclasses in it."""
    return json.dumps(body, default=vars, separators=(",", ":")).encode()


def decode(kind: Type[T], data: bytes) -> T:
    """Decode a wire dataclass. Raises ValueError or TypeError if `data` does not match it."""
    return typing.cast(T, _construct(kind, json.loads(data)))


def _construct(kind: type, fields: Any) -> Any:
    if not isinstance(fields, dict):
        raise ValueError(f"{kind.__name__}: an object was expected")
    known = _decoders.get(kind) or _field_decoders(kind)
    return kind(**{name: known[name](value) for name, value in fields.items() if name in known})


def _field_decoders(kind: type) -> Dict[str, Decoder]:
    hints = typing.get_type_hints(kind)
    known = {field.name: _decoder(hints[field.name]) for field in dataclasses.fields(kind)}
    _decoders[kind] = known
    return known


def _decoder(hint: Any) -> Decoder:
    if dataclasses.is_dataclass(hint):
        return lambda value: _construct(typing.cast(type, hint), value)
    if typing.get_origin(hint) is list and dataclasses.is_dataclass(typing.get_args(hint)[0]):
        kind = typing.get_args(hint)[0]
        return lambda values: [_construct(kind, value) for value in values or ()]
    if typing.get_origin(hint) is typing.Union:
        kinds = [kind for kind in typing.get_args(hint) if dataclasses.is_dataclass(kind)]
        if kinds:
            wire_type = typing.cast(type, kinds[0])
            return lambda value: None if value is None else _construct(wire_type, value)
    return lambda value: value
