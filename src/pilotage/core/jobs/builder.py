"""Builds a submission from the attributes of a text: resolves names, reads values, checks everything."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pilotage.core.errors import InvalidInput, Mistakes, TooLarge
from pilotage.core.jobs.description import JobDescription, Scalar, Submission, validate_description
from pilotage.core.jobs.fields import UNSUPPORTED, Field
from pilotage.core.jobs.lengths import check_length, check_raw_length, check_total_length, total_length
from pilotage.core.jobs.parametric import PLACEHOLDER, parameter_rows, validate_parameters
from pilotage.core.jobs.per_job_inputs import is_internal_column
from pilotage.core.jobs.value_readers import READERS, WrittenReal, placeholder_error

_NO_LINE: Final = 2**63
"""Sorts after every line of a text."""

MAX_ATTRIBUTES: Final = 5000
_COMPARED_NAME_CHARS: Final = 100
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class WrittenAttribute:
    """One attribute: its name as written, its value, and its position if known."""

    name: str
    value: Any
    line: int | None = None
    column: int | None = None

    def error(self, message: str, hint: str = "") -> InvalidInput:
        return InvalidInput(message, hint=hint, line=self.line, column=self.column, field=self.name)


def check_attribute_count(count: int) -> None:
    """Raises `TooLarge` for too many attributes: each unknown name is compared with all known names."""
    if count > MAX_ATTRIBUTES:
        raise TooLarge(f"the job description has {count:,} attributes; the limit is {MAX_ATTRIBUTES:,}")


def unknown_attribute(entry: WrittenAttribute, known: Iterable[str]) -> InvalidInput:
    """The error for an unknown attribute, with the nearest known name as hint."""
    reason = UNSUPPORTED.get(entry.name.lower().replace("_", ""))
    if reason is not None:
        return entry.error(f"{entry.name} {reason}")
    by_fold = {name.lower().replace("_", ""): name for name in known}
    folded = entry.name[:_COMPARED_NAME_CHARS].lower().replace("_", "")
    near = difflib.get_close_matches(folded, by_fold, n=1, cutoff=0.6)
    hint = (
        f"did you mean {by_fold[near[0]]}?"
        if near
        else "docs/reference/job-description.md lists all attributes"
    )
    return entry.error(f"unknown attribute {entry.name!r}", hint)


def build_submission(
    entries: Iterable[tuple[Field, WrittenAttribute]],
    sequences: Mapping[str, tuple[Scalar, ...]],
    names: Sequence[str] = (),
    mistakes: Iterable[InvalidInput] = (),
) -> Submission:
    """The submission with these fields; `sequences` are the values of each parameter, by name.

    `names`, given instead of `sequences`, are parameters with values that follow later. All errors are raised
    together, including `mistakes`, the errors that the parser has found.
    """
    errors = list(mistakes)
    if sequences and names:
        errors.append(
            InvalidInput(
                "the description has parameters, and a table of values is given too: use one of them"
            )
        )
    values, first = _read_values(entries, bool(sequences or names), errors)
    if "executable" not in first:
        errors.append(
            InvalidInput(
                "the executable is missing",
                hint="set Executable in JDL, executable in YAML and JSON",
                field="executable",
            )
        )
    names = tuple(sequences) or tuple(names)
    errors += _parameter_name_errors(names)
    if not errors:
        return _submission(values, first, names, sequences)
    errors += _cross_field_errors(values, first, names, sequences)
    raise combined_error(by_position(errors))


def _read_values(
    entries: Iterable[tuple[Field, WrittenAttribute]], parametric: bool, mistakes: list[InvalidInput]
) -> tuple[dict[str, Any], dict[str, WrittenAttribute]]:
    """The values by field, and the first entry of each field. Errors are appended to `mistakes`."""
    values: dict[str, Any] = {}
    first: dict[str, WrittenAttribute] = {}
    for field, entry in entries:
        if field.name in first:
            earlier = first[field.name]
            where = "" if earlier.line is None else f" on line {earlier.line}"
            mistakes.append(entry.error(f"{entry.name} is given twice: {earlier.name} is already set{where}"))
            continue
        first[field.name] = entry
        try:
            values[field.name] = read_field(field, entry, parametric=parametric)
        except InvalidInput as error:
            mistakes.append(error)
    return values, first


def _submission(
    values: Mapping[str, Any],
    first: Mapping[str, WrittenAttribute],
    names: Sequence[str],
    sequences: Mapping[str, tuple[Scalar, ...]],
) -> Submission:
    try:
        submission = Submission(
            validate_description(JobDescription(**values)),
            tuple(names),
            parameter_rows(dict(sequences)) if sequences else (),
        )
        check_total_length(total_length(submission.description))
        return validate_parameters(submission)
    except Mistakes as errors:
        raise combined_error(
            by_position([_with_position(error, first.get(error.field or "")) for error in errors.all])
        ) from None
    except InvalidInput as error:
        raise _with_position(error, first.get(error.field or "")) from error


def _cross_field_errors(
    values: Mapping[str, Any],
    first: Mapping[str, WrittenAttribute],
    names: Sequence[str],
    sequences: Mapping[str, tuple[Scalar, ...]],
) -> tuple[InvalidInput, ...]:
    """Errors between the fields that were read. A field that could not be read counts with its default."""
    try:
        _submission({"executable": "unread", **values}, first, names, sequences)
    except Mistakes as errors:
        return errors.all
    except InvalidInput as error:
        return (error,)
    return ()


def combined_error(errors: Sequence[InvalidInput]) -> InvalidInput:
    """The error itself if there is only one, else one error that contains all."""
    return errors[0] if len(errors) == 1 else Mistakes(errors)


def by_position(errors: Iterable[InvalidInput]) -> list[InvalidInput]:
    """The errors in the order of the text; errors without a position come last."""
    return sorted(errors, key=lambda error: (error.line or _NO_LINE, error.column or 0))


def _parameter_name_errors(names: Iterable[str]) -> Iterator[InvalidInput]:
    for name in names:
        if name and not _PARAMETER_NAME.match(name) and not is_internal_column(name):
            yield InvalidInput(
                f"{name!r} is not a valid parameter name",
                hint="use letters, digits and _",
                field="parameters",
            )


def read_field(field: Field, entry: WrittenAttribute, *, parametric: bool) -> Any:
    """The value of the field; errors carry the position of the entry."""
    if parametric and field.selects_queue and field.kind != "expression":
        texts = entry.value if isinstance(entry.value, list | tuple) else (entry.value,)
        for text in texts:
            if isinstance(text, str) and PLACEHOLDER.search(text):
                raise _with_position(placeholder_error(field, text), entry)
    try:
        check_raw_length(field.name, entry.value)
        value = READERS[field.kind](field, entry.value)
        check_length(field.name, value)
        return value
    except InvalidInput as error:
        raise _with_position(error, entry) from error


def _with_position(error: InvalidInput, entry: WrittenAttribute | None) -> InvalidInput:
    """The error with the position of its attribute, unless it has its own, and with the name as written."""
    if entry is None or error.line is not None:
        return error
    message = error.message
    if error.field and message.startswith(error.field):
        message = entry.name + message.removeprefix(error.field)
    return type(error)(
        message, hint=error.hint, line=entry.line, column=entry.column, field=error.field or entry.name
    )


def parameter_values(entry: WrittenAttribute, values: Any) -> tuple[Scalar, ...]:
    """The values of a parameter that is given as a list."""
    for value in values:
        if not isinstance(value, str | int | float):
            raise entry.error(f"{entry.name}: each value must be a text, a number, true or false")
        if isinstance(value, str) and "\x00" in value:
            raise entry.error(f"{entry.name}: a value contains a NUL character")
    # A real keeps its spelling: 1.10 must not become 1.1.
    return tuple(value.text if isinstance(value, WrittenReal) else value for value in values)
