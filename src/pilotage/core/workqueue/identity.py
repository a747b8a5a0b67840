"""The identity of an element: equal pieces of work have equal digests, so that a piece is stored once.

It covers the request, the step, the names of the input and the mask. It leaves out all that may change or
does not say which work it is: locations, priority, team, counts, order of names, order of keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def element_digest(request: int, step: int, inputs: Iterable[str], mask: Mapping[str, Any]) -> str:
    """SHA-256 in hexadecimal. `inputs`: the names of blocks. `mask`: as JSON; empty for whole blocks."""
    return digest_of({"request": request, "step": step, "inputs": sorted(set(inputs)), "mask": mask})


def digest_of(value: Any) -> str:
    """The SHA-256 of the canonical JSON text of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """One text for equal JSON values: sorted keys, no spaces, integral numbers without a fraction."""
    return json.dumps(_normal(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    return value
