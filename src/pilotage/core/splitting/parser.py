"""Reads the table `splitting` of a step: an algorithm and its parameters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from pilotage.core.errors import MISTAKES_TOLD, InvalidInput, Mistakes
from pilotage.core.plug_ins import unusable_in
from pilotage.core.setting import keys_of
from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.algorithms import ALGORITHMS

_TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


def parse_splitting(name: str, parameters: Mapping[str, Any]) -> Algorithm:
    """The algorithm with these parameters.

    Raises InvalidInput, or Mistakes with all errors. `field` is `algorithm`, or the name of the wrong parameter.
    """
    kind = ALGORITHMS.get(name)
    if kind is None:
        folded = {known.lower(): known for known in ALGORITHMS}
        near = difflib.get_close_matches(name[:100].lower(), folded, 1)
        hint = f"did you mean {folded[near[0]]}?" if near else f"known: {', '.join(sorted(ALGORITHMS))}"
        hint = unusable_in(name) or hint
        raise InvalidInput(f"unknown splitting algorithm {name!r}", hint=hint, field="algorithm")
    checked = (_check(kind, key, value) for key, value in parameters.items())
    errors = list(islice((error for error in checked if error), MISTAKES_TOLD + 1))
    if not errors:
        errors = _missing(kind, parameters)
    if not errors:
        algorithm = msgspec.convert(dict(parameters), kind)
        errors = [
            InvalidInput(fault.message, hint=fault.hint, field=fault.parameter)
            for fault in algorithm.faults()
        ]
        if not errors:
            return algorithm
    raise errors[0] if len(errors) == 1 else Mistakes(errors)


def stored_splitting(name: str, parameters: Mapping[str, Any]) -> Algorithm:
    """The algorithm of a stored step, which `parse_splitting` checked when the step was submitted.

    A number beyond its bound becomes the bound, which may have been wider when the step was stored.
    """
    kind = ALGORITHMS.get(name)
    ranges = {key.name: key.setting.range for key in keys_of(kind)} if kind is not None else {}
    bounded = dict(parameters)
    for parameter, value in parameters.items():
        limits = ranges.get(parameter)
        if limits is not None and value and type(value) in (int, float):
            bounded[parameter] = type(value)(min(max(value, limits[0]), limits[1]))
    return parse_splitting(name, bounded)


def _check(kind: type[Algorithm], name: str, value: object) -> InvalidInput | None:
    keys = {key.name: key for key in keys_of(kind)}
    key = keys.get(name)
    if key is None:
        near = difflib.get_close_matches(name[:100], keys, 1)
        hint = f"did you mean {near[0]}?" if near else f"{kind.algorithm} has {', '.join(keys)}"
        return InvalidInput(f"{kind.algorithm} has no parameter {name!r}", hint=hint, field=name)
    try:
        # A boolean is no number here, although Python counts with it.
        msgspec.convert(value, key.type, strict=True)
    except msgspec.ValidationError as error:
        wanted = re.search(r"Expected `(\w+)`", str(error))
        word = _TYPES.get(wanted[1], wanted[1]) if wanted else "another value"
        return InvalidInput(f"{name} must be {word}", hint=key.setting.meaning, field=name)
    limits = key.setting.range
    if limits is None or not isinstance(value, int | float):
        return None
    if limits[0] <= value <= limits[1] or (key.setting.or_zero and value == 0):
        return None
    between = f"between {limits[0]:,} and {limits[1]:,}" + (", or 0" if key.setting.or_zero else "")
    return InvalidInput(f"{name} must be {between}", hint=key.setting.meaning, field=name)


def _missing(kind: type[Algorithm], parameters: Mapping[str, Any]) -> list[InvalidInput]:
    return [
        InvalidInput(f"{kind.algorithm} needs {key.name}", hint=key.setting.meaning, field=key.name)
        for key in keys_of(kind)
        if key.default is msgspec.NODEFAULT and key.name not in parameters
    ]
