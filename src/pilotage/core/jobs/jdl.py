"""Parser of JDL, the job description language of DIRAC and gLite."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, Final

from pilotage.core.classads import (
    ClassAd,
    Definition,
    Expression,
    ListOf,
    Literal,
    ParserLimits,
    parse_definitions,
    unparse,
)
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.builder import (
    WrittenAttribute,
    build_submission,
    check_attribute_count,
    parameter_values,
    unknown_attribute,
)
from pilotage.core.jobs.description import Scalar, Submission
from pilotage.core.jobs.fields import BY_JDL, FIELDS, Field
from pilotage.core.jobs.parametric import GLITE_PLACEHOLDER, glite_progression, progression

# Enough for the values of MAX_JOBS jobs. The size of Requirements is checked separately.
_LIMITS: Final = ParserLimits(text=16 * 1024 * 1024, nodes=1_000_000)
_PARAMETRIC: Final = ("parameters", "parameterstart", "parameterstep", "parameterfactor")
_NAMES: Final = (
    *(jdl for field in FIELDS for jdl in field.jdl),
    "Parameters",
    "ParameterStart",
    "ParameterStep",
)


def parse_jdl(text: str) -> Submission:
    """The submission of a JDL text, with or without enclosing brackets.

    All errors are raised as one `InvalidInput`, each with its line: an unknown or repeated attribute, a value of the
    wrong type, an unsupported attribute. A syntax error is raised alone.
    """
    reader = _JdlReader()
    definitions = parse_definitions(_without_comments(text), _LIMITS)
    check_attribute_count(len(definitions))
    for definition in definitions:
        try:
            reader.add(definition)
        except InvalidInput as error:
            reader.mistakes.append(error)
    return reader.submission()


def _without_comments(text: str) -> str:
    """The text without lines that begin with `#`, which are comments in gLite's JDL. Other lines keep their numbers."""
    return re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)


@dataclass(slots=True)
class _JdlReader:
    """Collects the attributes of one text."""

    fields: list[tuple[Field, WrittenAttribute]] = dataclass_field(default_factory=list)
    parametric: dict[str, dict[str, WrittenAttribute]] = dataclass_field(default_factory=dict)
    glite: WrittenAttribute | None = None
    """The attribute JobType, if its value is Parametric."""
    mistakes: list[InvalidInput] = dataclass_field(default_factory=list)

    def add(self, definition: Definition) -> None:
        head, _, name = definition.name.partition(".")
        folded = head.lower()
        if folded in _PARAMETRIC:
            entry = _entry(definition)
            if self.parametric.setdefault(name, {}).setdefault(folded, entry) is not entry:
                raise entry.error(f"{entry.name} is given twice")
            return
        if folded == "type" and not name:
            _check_type(_entry(definition))
            return
        field = BY_JDL.get(definition.name.lower())
        if field is None:
            raise unknown_attribute(
                WrittenAttribute(definition.name, None, definition.line, definition.column), _NAMES
            )
        entry = _entry(definition, field)
        if field.name == "job_type" and _is_parametric(entry.value) and self.glite is None:
            self.glite = entry
        else:
            self.fields.append((field, entry))

    def submission(self) -> Submission:
        fields, sequences = self.fields, {}
        if self.glite is not None:
            fields = [(field, _with_placeholders(field, entry)) for field, entry in fields]
            if not self.parametric:
                message = f"{self.glite.name} is {self.glite.value}, but the attribute Parameters is missing"
                self.mistakes.append(self.glite.error(message))
        for name, attributes in self.parametric.items():
            try:
                sequences[name] = _sequence(name, attributes, glite=self.glite is not None)
            except InvalidInput as error:
                self.mistakes.append(error)
        return build_submission(fields, sequences, mistakes=self.mistakes)


def _is_parametric(value: Any) -> bool:
    """Whether a JobType, in gLite also a list of types, contains Parametric."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(item, str) and item.strip().lower() == "parametric" for item in values)


def _with_placeholders(field: Field, entry: WrittenAttribute) -> WrittenAttribute:
    """The entry with `%s` in place of gLite's placeholder. An expression with one becomes text, which is refused."""
    if isinstance(entry.value, Expression):
        text = unparse(entry.value)
        return replace(entry, value=_replace_placeholder(text)) if GLITE_PLACEHOLDER in text else entry
    return replace(entry, value=_replace_placeholder(entry.value))


def _replace_placeholder(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(GLITE_PLACEHOLDER, "%s")
    if isinstance(value, list):
        return [_replace_placeholder(item) for item in value]
    if isinstance(value, dict):
        return {_replace_placeholder(name): _replace_placeholder(item) for name, item in value.items()}
    return value


def _check_type(entry: WrittenAttribute) -> None:
    # gLite writes this attribute into every description.
    if not isinstance(entry.value, str) or entry.value.lower() != "job":
        raise entry.error(f"Type {entry.value!r} is not supported: only single and parametric jobs are")


def _entry(definition: Definition, field: Field | None = None) -> WrittenAttribute:
    place = definition.line, definition.column
    value: Any = definition.expression
    if field is None or field.kind != "expression" or isinstance(value, Literal):
        value = _constant(definition, value)
    return WrittenAttribute(definition.name, value, *place)


def _constant(definition: Definition, value: Expression) -> Any:
    if isinstance(value, Literal) and isinstance(value.value, str | int | float):
        return value.value
    if isinstance(value, ListOf):
        return [_constant(definition, item) for item in value.items]
    if isinstance(value, ClassAd):
        return {name: _constant(definition, item) for name, item in value.attributes}
    raise InvalidInput(
        f"{definition.name} must be a constant, not an expression",
        hint='put text in quotes: "…"',
        line=definition.line,
        column=definition.column,
        field=definition.name,
    )


def _sequence(name: str, attributes: dict[str, WrittenAttribute], *, glite: bool) -> tuple[Scalar, ...]:
    entry = attributes.get("parameters")
    if entry is None:
        first = next(iter(attributes.values()))
        raise first.error(f"{first.name} needs the attribute Parameters{'.' + name if name else ''} too")
    if isinstance(entry.value, list):
        if len(attributes) > 1:
            raise entry.error(f"{entry.name} is a list: start, step and factor cannot be used with a list")
        return parameter_values(entry, entry.value)
    numbers = {part: attributes[key].value for key, part in _PARTS.items() if key in attributes}
    try:
        if glite and not name and "factor" not in numbers:
            return glite_progression(entry.value, **numbers)
        return progression(entry.value, name=name, **numbers)
    except InvalidInput as error:
        raise type(error)(
            error.message, hint=error.hint, line=entry.line, column=entry.column, field=entry.name
        ) from error


_PARTS: Final = {"parameterstart": "start", "parameterstep": "step", "parameterfactor": "factor"}
