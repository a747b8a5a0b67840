"""The site's own program for the requirements of a CE: its environment, and the native arguments that it prints.

It is a hook in the manner of BLAH's `*_local_submit_attributes.sh`: variables in, arguments out, one a line. The
server, not the site, checks both sides: values of jobs have a small alphabet, and so have the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite

from pilotage.core.classads import Expression, unparse
from pilotage.core.classads.partial import HostCondition, Kind, host_conditions
from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.native import as_factor
from pilotage.core.forwarding.rules import value_text
from pilotage.core.forwarding.table import FlagSyntax, ForwardTable

MAX_REQUIREMENTS = 20_000
"""Characters of PILOTAGE_REQUIREMENTS. A longer text is left out."""
MAX_ARGUMENTS = 50
MAX_ARGUMENT = 1000
"""Characters of one argument."""

VARIABLES = {
    "PILOTAGE_CE": "name of the CE in the policy",
    "PILOTAGE_QUEUE": "queue or partition of the CE's options; empty: the batch system's default",
    "PILOTAGE_VO": "virtual organisation of the submitting identity; empty: it has none",
    "PILOTAGE_SUBJECT": "certificate subject of the submitting identity, else its owner",
    "PILOTAGE_PROCESSORS": "cores of each pilot",
    "PILOTAGE_MEMORY": "MB of each pilot; 0: the batch system's default",
    "PILOTAGE_WALL": "wall time of each pilot in seconds",
    "PILOTAGE_FLAGS": "arguments that the forward table has made already, one a line",
    "PILOTAGE_REQUIREMENTS": "the whole residual as a ClassAd expression; empty if it is longer than"
    f" {MAX_REQUIREMENTS} characters. It holds texts of jobs: never pass it to a shell",
    "PILOTAGE_COMPLETE": "1 if the variables below say the whole residual; 0 if they say only a part of it",
    "NAME_Min": "hosts have at least this value of the attribute NAME",
    "NAME_MinExclusive": "1: hosts have more than NAME_Min",
    "NAME_Max": "hosts have at most this value",
    "NAME_MaxExclusive": "1: hosts have less than NAME_Max",
    "NAME_Equal": "hosts have this value",
    "NAME_Member_N": "the list NAME of hosts has this text; N counts from 0",
}
"""The environment of the hook, with meanings. Every host that satisfies the residual has the bounds of NAME_*."""


@dataclass(frozen=True, slots=True)
class _AttributeBounds:
    """Conditions over one attribute that hold together."""

    low: tuple[float, bool] | None = None
    """Bound, and whether it is exclusive."""
    high: tuple[float, bool] | None = None
    equal: str | None = None
    members: frozenset[str] = frozenset()


def condition_variables(
    residual: Expression, kinds: Mapping[str, Kind], names: Mapping[str, str]
) -> dict[str, str]:
    """The variables NAME_* and PILOTAGE_COMPLETE. Each condition follows from the residual.

    `names`: the attributes that may become variables, in lower case, with their spelling.
    """
    disjuncts = host_conditions(residual, kinds)
    if not disjuncts:
        return {"PILOTAGE_COMPLETE": "0"}
    read = [_bounds_of(conjunction, kinds, names) for conjunction in disjuncts]
    variables: dict[str, str] = {}
    for name in sorted(set.intersection(*(set(bounds) for bounds, _ in read))):
        variables |= _variables(names[name], [bounds[name] for bounds, _ in read])
    is_complete = len(disjuncts) == 1 and read[0][1]
    return {**variables, "PILOTAGE_COMPLETE": "1" if is_complete else "0"}


def _bounds_of(
    conjunction: Sequence[HostCondition], kinds: Mapping[str, Kind], names: Mapping[str, str]
) -> tuple[dict[str, _AttributeBounds], bool]:
    """The bounds of each attribute of a conjunction, and whether they say all of it."""
    bounds: dict[str, _AttributeBounds] = {}
    is_complete = True
    for condition in conjunction:
        name = condition.attribute.lower()
        known = bounds.get(name, _AttributeBounds())
        added = _with(known, condition, kinds.get(name)) if name in names else None
        if added is None:
            is_complete = False
        else:
            bounds[name] = added
    return bounds, is_complete


def _with(known: _AttributeBounds, condition: HostCondition, kind: Kind | None) -> _AttributeBounds | None:
    """`known` and a further condition; None: variables cannot say it."""
    value, operator = condition.value, condition.operator
    text = value_text(value)
    if text is None or (isinstance(value, float) and not isfinite(value)):
        return None
    if operator == "member" and isinstance(value, str):
        return _AttributeBounds(known.low, known.high, known.equal, known.members | {value})
    if operator in ("==", "=?="):
        if known.equal not in (None, text):
            return None
        return _AttributeBounds(known.low, known.high, text, known.members)
    if isinstance(value, bool | str) or operator not in ("<", "<=", ">", ">="):
        return None
    is_strict = operator in ("<", ">")
    if is_strict and kind in (Kind.INTEGER, Kind.QUANTITY):
        value = floor(value) + 1 if operator == ">" else -(floor(-value) + 1)
        is_strict = False
    if operator in (">", ">="):
        low = (value, is_strict) if known.low is None else max(known.low, (value, is_strict))
        return _AttributeBounds(low, known.high, known.equal, known.members)
    high = (value, is_strict)
    if known.high is not None:
        high = min(known.high, high, key=lambda bound: (bound[0], not bound[1]))
    return _AttributeBounds(known.low, high, known.equal, known.members)


def _variables(name: str, alternatives: Sequence[_AttributeBounds]) -> dict[str, str]:
    """The variables for conditions of which at least one holds: only bounds that all of them have."""
    variables: dict[str, str] = {}
    lows = [bounds.low for bounds in alternatives if bounds.low is not None]
    if len(lows) == len(alternatives):
        value, is_strict = min(lows)
        variables[f"{name}_Min"] = value_text(value) or ""
        if is_strict:
            variables[f"{name}_MinExclusive"] = "1"
    highs = [bounds.high for bounds in alternatives if bounds.high is not None]
    if len(highs) == len(alternatives):
        value, is_strict = max(highs, key=lambda bound: (bound[0], not bound[1]))
        variables[f"{name}_Max"] = value_text(value) or ""
        if is_strict:
            variables[f"{name}_MaxExclusive"] = "1"
    equals = {bounds.equal for bounds in alternatives}
    if len(equals) == 1 and (equal := equals.pop()) is not None:
        variables[f"{name}_Equal"] = equal
    members = frozenset.intersection(*(bounds.members for bounds in alternatives))
    variables |= {f"{name}_Member_{place}": member for place, member in enumerate(sorted(members))}
    return variables


def requirements_text(residual: Expression) -> str:
    """The value of PILOTAGE_REQUIREMENTS."""
    text = unparse(residual)
    return text if len(text) <= MAX_REQUIREMENTS and "\0" not in text else ""


def read_arguments(output: str, table: ForwardTable) -> dict[str, str]:
    """The options that the hook has printed, with their values: `OPTION=VALUE` or `OPTION VALUE`, one a line.

    Empty lines and lines that begin with `#` are left out. `InvalidInput`: a line is not allowed.
    """
    options: dict[str, str] = {}
    lines = [
        line.strip() for line in output.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    if len(lines) > MAX_ARGUMENTS:
        raise InvalidInput(f"it printed {len(lines)} lines; the limit is {MAX_ARGUMENTS}")
    for line in lines:
        match = re.fullmatch(r"(--[a-z-]{1,40}|-[A-Za-z]{1,20})(?:=|[ \t]+)([!-~]+)", line, re.ASCII)
        known = f"it may print: {', '.join(table.hook_options) or 'nothing'}"
        if match is None or match[1] not in table.hook_options:
            raise InvalidInput(
                f"it printed {line[:80]!r}, which is no argument that it may print", hint=known
            )
        option, value = match[1], match[2]
        if len(line) > MAX_ARGUMENT or not re.fullmatch(table.hook_options[option], value):
            raise InvalidInput(f"it printed {line[:80]!r}, whose value is not allowed")
        if option in options:
            raise InvalidInput(f"it printed {option} twice")
        options[option] = value
    return options


def with_arguments(
    flags: Sequence[str],
    options: Mapping[str, str],
    table: ForwardTable,
    own_features: str,
    own_requests: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """The flags of the forward table and the options of the hook. `InvalidInput`: they exclude each other.

    `own_features` and `own_requests`: of the policy, as in `CeTerms`.
    """
    combined = list(flags)
    for option, value in options.items():
        if table.syntax is FlagSyntax.SELECTION:
            # LSF joins the sections of several -R.
            combined += [option, value]
            continue
        if option == table.complex_option:
            colon = ":" if table.syntax is FlagSyntax.CHUNK else ","
            combined += _with_requests(combined, option, value, own_requests, colon)
            continue
        if table.syntax is FlagSyntax.PROPERTIES and option == table.feature_option:
            before = combined.pop(1) if combined[:1] == [option] else own_features
            combined = [word for word in combined if word != option]
            combined += [option, f"{before}:{value}" if before else value]
            continue
        place = next((i for i, flag in enumerate(combined) if flag.startswith(f"{option}=")), None)
        before = "" if place is None else combined.pop(place).partition("=")[2]
        if option == table.feature_option:
            value = _and_features(before or own_features, value)
        elif before and option == table.selection_option:
            value = f"{before},{value}"
        elif before:
            raise InvalidInput(f"it printed {option}, which the forward table has set already")
        combined += [f"{option}={value}"] if option.startswith("--") else [option, value]
    return tuple(combined)


def _with_requests(
    flags: Sequence[str], option: str, value: str, own_requests: frozenset[str], separator: str
) -> list[str]:
    """A further list of requests of complexes. Of two requests for one name the last would count."""
    named = own_requests | {
        request.partition("=")[0] for words in flags for request in words.split(separator)
    }
    for request in value.split(separator):
        if request.partition("=")[0] in named:
            raise InvalidInput(
                f"it requests {request[:80]!r}, which the forward table or the policy has requested already"
            )
    return [option, value]


def _and_features(before: str, value: str) -> str:
    """Both features, in one text."""
    if not before:
        return value
    factors = [as_factor(before), as_factor(value)]
    if None in factors:
        raise InvalidInput("it printed features, which cannot be combined with the other features")
    return "&".join(factor for factor in factors if factor)
