"""Attributes as they were written into a submission: names known, values read, all of it checked."""

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
from pilotage.core.jobs.per_job_inputs import is_file_column
from pilotage.core.jobs.value_readers import READERS, WrittenReal, placeholder_error

_NOWHERE: Final = 2**63
"""Behind every line of a text."""

MAX_ATTRIBUTES: Final = 5000
_LONGEST_NAME: Final = 100
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class WrittenAttribute:
    """One attribute: its name as written, its value, and where it stands if that is known."""

    name: str
    value: Any
    line: int | None = None
    column: int | None = None

    def error(self, message: str, hint: str = "") -> InvalidInput:
        return InvalidInput(message, hint=hint, line=self.line, column=self.column, field=self.name)


def check_attribute_count(count: int) -> None:
    """Raises `TooLarge` for more than any description has: each that is not known is compared with all that are."""
    if count > MAX_ATTRIBUTES:
        raise TooLarge(f"{count:,} attributes: a job description has at most {MAX_ATTRIBUTES}")


def unknown_attribute(entry: WrittenAttribute, known: Iterable[str]) -> InvalidInput:
    """The error for a name that is no field, with the nearest that is."""
    reason = UNSUPPORTED.get(entry.name.lower().replace("_", ""))
    if reason is not None:
        return entry.error(f"{entry.name} {reason}")
    by_fold = {name.lower().replace("_", ""): name for name in known}
    folded = entry.name[:_LONGEST_NAME].lower().replace("_", "")
    near = difflib.get_close_matches(folded, by_fold, n=1, cutoff=0.6)
    hint = f"did you mean {by_fold[near[0]]}?" if near else "docs/reference/job-description.md lists all"
    return entry.error(f"there is no attribute {entry.name!r}", hint)


def build_submission(
    entries: Iterable[tuple[Field, WrittenAttribute]],
    sequences: Mapping[str, tuple[Scalar, ...]],
    names: Sequence[str] = (),
    mistakes: Iterable[InvalidInput] = (),
) -> Submission:
    """The submission of known fields, each at most once; `sequences` are the parameters by name.

    Instead of them `names` may be given: their values come later, the submission has none yet. All that is wrong is
    raised at once, together with the `mistakes` that the parser has found.
    """
    found = list(mistakes)
    if sequences and names:
        found.append(InvalidInput("it has parameters of its own, and rows of values are given besides"))
    values, first = _values(entries, bool(sequences or names), found)
    if "executable" not in first:
        found.append(InvalidInput("the executable is missing", field="executable"))
    names = tuple(sequences) or tuple(names)
    found += _wrong_names(names)
    if not found:
        return _submission(values, first, names, sequences)
    found += _further(values, first, names, sequences)
    raise combined_error(by_position(found))


def _values(
    entries: Iterable[tuple[Field, WrittenAttribute]], parametric: bool, mistakes: list[InvalidInput]
) -> tuple[dict[str, Any], dict[str, WrittenAttribute]]:
    """The values that could be read, and of each field its first entry; what is wrong goes to `mistakes`."""
    values: dict[str, Any] = {}
    first: dict[str, WrittenAttribute] = {}
    for field, entry in entries:
        if field.name in first:
            earlier = first[field.name]
            where = "" if earlier.line is None else f" on line {earlier.line}"
            mistakes.append(entry.error(f"{entry.name} is given twice: {earlier.name} stands{where} already"))
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
            by_position([_placed(error, first.get(error.field or "")) for error in errors.all])
        ) from None
    except InvalidInput as error:
        raise _placed(error, first.get(error.field or "")) from error


def _further(
    values: Mapping[str, Any],
    first: Mapping[str, WrittenAttribute],
    names: Sequence[str],
    sequences: Mapping[str, tuple[Scalar, ...]],
) -> tuple[InvalidInput, ...]:
    """What is wrong between the fields that could be read. A field that could not be read has its default."""
    try:
        _submission({"executable": "unread", **values}, first, names, sequences)
    except Mistakes as errors:
        return errors.all
    except InvalidInput as error:
        return (error,)
    return ()


def combined_error(errors: Sequence[InvalidInput]) -> InvalidInput:
    """The only error, or all of them as one."""
    return errors[0] if len(errors) == 1 else Mistakes(errors)


def by_position(errors: Iterable[InvalidInput]) -> list[InvalidInput]:
    """In the order of the text; those without a place come last."""
    return sorted(errors, key=lambda error: (error.line or _NOWHERE, error.column or 0))


def _wrong_names(names: Iterable[str]) -> Iterator[InvalidInput]:
    for name in names:
        if name and not _PARAMETER.match(name) and not is_file_column(name):
            yield InvalidInput(
                f"{name!r} can't name a parameter", hint="letters, digits and _", field="parameters"
            )


def read_field(field: Field, entry: WrittenAttribute, *, parametric: bool) -> Any:
    """The value of an entry as its field has it; errors tell the place of the entry."""
    if parametric and field.selects_queue and field.kind != "expression":
        texts = entry.value if isinstance(entry.value, list | tuple) else (entry.value,)
        for text in texts:
            if isinstance(text, str) and PLACEHOLDER.search(text):
                raise _placed(placeholder_error(field, text), entry)
    try:
        check_raw_length(field.name, entry.value)
        value = READERS[field.kind](field, entry.value)
        check_length(field.name, value)
        return value
    except InvalidInput as error:
        raise _placed(error, entry) from error


def _placed(error: InvalidInput, entry: WrittenAttribute | None) -> InvalidInput:
    """The error with the place of its attribute, if it has none of its own, and the name as it was written."""
    if entry is None or error.line is not None:
        return error
    message = error.message
    if error.field and message.startswith(error.field):
        message = entry.name + message.removeprefix(error.field)
    return type(error)(
        message, hint=error.hint, line=entry.line, column=entry.column, field=error.field or entry.name
    )


def parameter_values(entry: WrittenAttribute, values: Any) -> tuple[Scalar, ...]:
    """A sequence of parameters given as a list."""
    for value in values:
        if not isinstance(value, str | int | float):
            raise entry.error(f"{entry.name}: values are texts, numbers or truth values")
        if isinstance(value, str) and "\x00" in value:
            raise entry.error(f"{entry.name}: a value contains a NUL character")
    # As text where that is how it was written: 1.10 is not 1.1.
    return tuple(value.text if isinstance(value, WrittenReal) else value for value in values)
