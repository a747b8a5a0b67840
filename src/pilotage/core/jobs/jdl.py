"""JDL, the job description language of DIRAC and gLite."""

from __future__ import annotations

from typing import Any, Final

from pilotage.core.classads import ClassAd, Definition, Expression, Limits, ListOf, Literal, parse_definitions
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.building import Entry, build, scalars, unknown
from pilotage.core.jobs.description import Scalar, Submission
from pilotage.core.jobs.fields import BY_JDL, FIELDS, Field
from pilotage.core.jobs.parametric import progression

# Room for the values of MAX_JOBS jobs; what a Requirements may be is checked apart.
_LIMITS: Final = Limits(text=16 * 1024 * 1024, nodes=1_000_000)
_PARAMETRIC: Final = ("parameters", "parameterstart", "parameterstep", "parameterfactor")
_NAMES: Final = (*(jdl for one in FIELDS for jdl in one.jdl), "Parameters", "ParameterStart", "ParameterStep")


def parse_jdl(text: str) -> Submission:
    """The submission a JDL text describes, with or without enclosing brackets.

    Whatever is wrong raises `InvalidInput` with its line: syntax, an unknown or repeated attribute, a value
    of the wrong type, an attribute that Pilotage would not act upon.
    """
    fields: list[tuple[Field, Entry]] = []
    parametric: dict[str, dict[str, Entry]] = {}
    for definition in parse_definitions(text, _LIMITS):
        head, _, name = definition.name.partition(".")
        folded = head.lower()
        if folded in _PARAMETRIC:
            entry = _entry(definition)
            if parametric.setdefault(name, {}).setdefault(folded, entry) is not entry:
                raise entry.refused(f"{entry.name} is given twice")
        elif folded == "type" and not name:
            _check_type(_entry(definition))
        else:
            field = BY_JDL.get(definition.name.lower())
            if field is None:
                raise unknown(Entry(definition.name, None, definition.line, definition.column), _NAMES)
            fields.append((field, _entry(definition, field)))
    return build(fields, {name: _sequence(name, found) for name, found in parametric.items()})


def _check_type(entry: Entry) -> None:
    # gLite wrote it into every description.
    if not isinstance(entry.value, str) or entry.value.lower() != "job":
        raise entry.refused(f"Type {entry.value!r} is not supported: only single jobs and parameters are")


def _entry(definition: Definition, field: Field | None = None) -> Entry:
    place = definition.line, definition.column
    value: Any = definition.expression
    if field is None or field.kind != "expression" or isinstance(value, Literal):
        value = _constant(definition, value)
    return Entry(definition.name, value, *place)


def _constant(definition: Definition, value: Expression) -> Any:
    if isinstance(value, Literal) and isinstance(value.value, str | int | float):
        return value.value
    if isinstance(value, ListOf):
        return [_constant(definition, item) for item in value.items]
    if isinstance(value, ClassAd):
        return {name: _constant(definition, item) for name, item in value.attributes}
    raise InvalidInput(
        f"{definition.name} must be a constant, not an expression",
        hint='quote text: "…"',
        line=definition.line,
        column=definition.column,
        field=definition.name,
    )


def _sequence(name: str, found: dict[str, Entry]) -> tuple[Scalar, ...]:
    entry = found.get("parameters")
    if entry is None:
        some = next(iter(found.values()))
        raise some.refused(f"{some.name} without Parameters{'.' + name if name else ''}: how many jobs?")
    if isinstance(entry.value, list):
        if len(found) > 1:
            raise entry.refused(f"{entry.name} is a list: start, step and factor do not apply")
        return scalars(entry, entry.value)
    numbers = {part: found[key].value for key, part in _PARTS.items() if key in found}
    try:
        return progression(entry.value, name=name, **numbers)
    except InvalidInput as error:
        raise type(error)(
            error.message, hint=error.hint, line=entry.line, column=entry.column, field=entry.name
        ) from error


_PARTS: Final = {"parameterstart": "start", "parameterstep": "step", "parameterfactor": "factor"}
