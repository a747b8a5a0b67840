"""Parametric jobs: sequences of values, and the placeholders that the values replace."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any, Final

from pilotage.core.errors import InvalidInput, TooLarge, check_mistakes
from pilotage.core.jobs.description import (
    COPY,
    MAX_JOBS,
    InputFile,
    JobDescription,
    Scalar,
    Submission,
    check_relative_path,
    path_mistakes,
)
from pilotage.core.jobs.lengths import (
    MAX_TOTAL_CHARS,
    MAX_VALUE_CHARS,
    Length,
    check_text_length,
    check_total_length,
    length_of,
    total_length,
)
from pilotage.core.jobs.per_job_inputs import (
    decode_file,
    has_parameters,
    is_internal_column,
    per_job_columns,
    rerun_jobs,
)
from pilotage.core.jobs.stream_names import STREAM_FIELDS, stream_mistakes

# `%j`, the job's id, is not matched: only the server knows it.
PLACEHOLDER: Final = re.compile(r"%(?:(s|n)|\(([^()]*)\)s?)")
_MAX_INTEGER: Final = 2**63
GLITE_PLACEHOLDER: Final = "_PARAM_"
"""gLite's form of `%s`. It is replaced when a JDL with JobType "Parametric" is read."""
_NOT_REPLACED: Final = frozenset({"setup_lines", "job_group"})


def glite_progression(stop: Any, start: Any = 0, step: Any = 1) -> tuple[Scalar, ...]:
    """The values in gLite's semantics: from `start` in steps of `step`, excluding `stop`.

    >>> glite_progression(10, 1, 4)
    (1, 5, 9)
    """
    for name, value in (("Parameters", stop), ("ParameterStart", start), ("ParameterStep", step)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidInput(f"{name} must be a number, not {value!r}", field="parameters")
    if not step or (stop - start) / step <= 0:
        raise InvalidInput(
            f"there is no value from ParameterStart {start} to Parameters {stop} in steps of {step}",
            hint="in gLite, Parameters is the end of the values, not their number",
            field="parameters",
        )
    return progression(math.ceil((stop - start) / step), start, step)


def progression(
    count: Any, start: Any = 0, step: Any = 0, factor: Any = 1, name: str = ""
) -> tuple[Scalar, ...]:
    """`count` values: the first is `start`, and each next value is the previous one times `factor` plus `step`."""
    title = f"parameters {name}".rstrip()
    for part, value in (("start", start), ("step", step), ("factor", factor)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(f"{title}: {part} must be a number, not {value!r}", field="parameters")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidInput(
            f"{title}: count must be a whole number greater than 0, not {count!r}", field="parameters"
        )
    check_count(count)
    values: list[Scalar] = []
    value = start
    for _ in range(count):
        if not (math.isfinite(value) if isinstance(value, float) else abs(value) < _MAX_INTEGER):
            raise InvalidInput(f"{title}: the values exceed 64 bits", field="parameters")
        values.append(value)
        value = value * factor + step
    return tuple(values)


def check_count(count: int) -> None:
    if count > MAX_JOBS:
        raise TooLarge(
            f"the submission has {count:,} jobs; the limit for parameters is {MAX_JOBS:,}",
            hint="submit more jobs from a table: `pilotage submit --table FILE`, or Client.submit_rows",
            field="parameters",
        )


def parameter_rows(sequences: dict[str, tuple[Scalar, ...]]) -> tuple[tuple[Scalar, ...], ...]:
    """One row of values per job, from one sequence per name. All sequences must have the same length."""
    lengths = {name: len(values) for name, values in sequences.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(
            f"{name or 'the unnamed parameter'} has {length:,}" for name, length in lengths.items()
        )
        raise InvalidInput(f"all parameters need the same number of values: {counts}", field="parameters")
    count = next(iter(lengths.values()))
    if count == 0:
        raise InvalidInput("the parameters have no values, so there would be no jobs", field="parameters")
    check_count(count)
    return tuple(zip(*sequences.values(), strict=True))


def bind(
    description: JobDescription, names: Sequence[str], values: Sequence[Scalar], index: int, count: int
) -> JobDescription:
    """The description of one job: its placeholders are replaced, and the resulting names are checked again.

    `%s` is the value of the unnamed parameter, and `%(Name)s` the value of a named one. `%n` is the index, padded with
    zeros to the width of the last index. Raises `InvalidInput` if a file name leads out of the payload's folder.
    """
    if not names:
        return description
    fill = _filler(names, values, index, count)
    bound = replace(
        description,
        executable=fill(description.executable),
        arguments=tuple(map(fill, description.arguments)),
        environment=tuple((name, fill(value)) for name, value in description.environment),
        std_output=fill(description.std_output),
        std_error=fill(description.std_error),
        output_sandbox=tuple(map(fill, description.output_sandbox)),
        job_name=fill(description.job_name),
        input_sandbox=tuple(
            InputFile(fill(file.name), file.mode, fill(file.source), file.executable)
            for file in description.input_sandbox
        ),
    )
    if not bound.executable:
        raise InvalidInput(f"the executable of job {index} (from 0) is empty", field="executable")
    check_mistakes(path_mistakes(bound))
    return bound


def differs_per_job(text: str, names: Sequence[str]) -> bool:
    """Whether `text` differs from job to job: it contains `%j`, or a placeholder that has a value."""
    return "%j" in text or any(_has_value(match, names) for match in PLACEHOLDER.finditer(text))


def fill_placeholders(
    text: str, names: Sequence[str], values: Sequence[Scalar], index: int, count: int
) -> str:
    """The text with its placeholders replaced for job number `index` of `count`."""
    return _filler(names, values, index, count)(text)


def _filler(names: Sequence[str], values: Sequence[Scalar], index: int, count: int) -> Callable[[str], str]:
    replacement = _replacer(names, values, index, count)
    return lambda text: PLACEHOLDER.sub(replacement, text) if "%" in text else text


def _replacer(
    names: Sequence[str], values: Sequence[Scalar], index: int, count: int
) -> Callable[[re.Match[str]], str]:
    """A function that maps the match of a placeholder to its replacement in one job."""
    texts = {name: value_text(value) for name, value in zip(names, values, strict=True)}
    number = str(index).zfill(len(str(count - 1))) if has_parameters(names) else "%n"

    def replacement(match: re.Match[str]) -> str:
        return number if match[1] == "n" else texts.get(match[2] or "", match[0])

    return replacement


def value_text(value: Scalar) -> str:
    """A value in the form that replaces a placeholder."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def validate_parameters(submission: Submission) -> Submission:
    """The submission; raises `InvalidInput` if a placeholder has no value or a job has an invalid file name."""
    if submission.names:
        per_job_columns(submission.description, submission.names)
        check_placeholders(submission.description, submission.names)
        check_rows(submission.description, submission.names, submission.parameters, 0, submission.count)
    return submission


def check_placeholders(description: JobDescription, names: Sequence[str]) -> None:
    """Raises `InvalidInput` for named placeholders without a parameter in `names`."""
    known = ", ".join(name for name in names if name) or "none"
    missing = [
        (match[0], field)
        for text, field in _placeholder_texts(description)
        for match in PLACEHOLDER.finditer(text)
        if match[2] is not None and match[2] not in names
    ]
    check_mistakes(
        InvalidInput(
            f"{field}: there is no parameter for {text}", hint=f"named parameters: {known}", field=field
        )
        for text, field in dict.fromkeys(missing)
    )


def placeholder_warnings(description: JobDescription, names: Sequence[str]) -> list[str]:
    """Warnings for placeholders without a value: they reach the program unchanged."""
    texts = [(text, field.partition(" ")[0]) for text, field in _placeholder_texts(description)]
    if names:
        # Without parameters, shell lines often contain such texts legitimately: `date +%s`.
        texts += [(text, "setup_lines") for text in description.setup_lines]
        texts += [(description.job_group, "job_group")]
    unchanged: dict[str, list[str]] = {}
    for text, field in texts:
        for match in PLACEHOLDER.finditer(text):
            if field in _NOT_REPLACED or not _has_value(match, names):
                unchanged.setdefault(match[0], []).append(field)
        if GLITE_PLACEHOLDER in text:
            unchanged.setdefault(GLITE_PLACEHOLDER, []).append(field)
    return [_warning(text, list(dict.fromkeys(fields)), names) for text, fields in unchanged.items()]


def _has_value(match: re.Match[str], names: Sequence[str]) -> bool:
    return has_parameters(names) if match[1] == "n" else (match[2] or "") in names


def _warning(text: str, fields: Sequence[str], names: Sequence[str]) -> str:
    where = " and ".join(fields)
    if set(fields) <= _NOT_REPLACED:
        return f"{text} in {where} is passed on unchanged: placeholders are not replaced in this field"
    known = " or ".join(f"%({name})s" for name in names if name and not is_internal_column(name))
    hint = f"known placeholders: {known}" if known else "add parameters with --count, --param or Parameters"
    return f"{text} in {where} is passed on unchanged, because no parameter has this name; {hint}"


def check_rows(
    description: JobDescription,
    names: Sequence[str],
    rows: Sequence[Sequence[Scalar]],
    first: int,
    count: int,
) -> None:
    """Raises `InvalidInput` for a row of values that gives an invalid file name or a text that is too long.

    `rows` begin with row number `first` of `count`. Arguments, environment and job names may have any content.
    """
    _check_lengths(description, names, rows, first, count)
    rerun_jobs(names, rows)
    columns = per_job_columns(description, names).values()
    for row in rows if columns else ():
        for place in columns:
            decode_file(row[place])
    texts = _placeholder_texts(description)
    varying = [(t, field) for t, field in texts if field in _FILES and PLACEHOLDER.search(t)]
    streams_vary = any(field in STREAM_FIELDS for _, field in varying)
    for index, values in enumerate(rows if varying else (), first):
        fill = _filler(names, values, index, count)
        for text, field in varying:
            if field != "executable":
                check_relative_path(fill(text), field)
            elif not fill(text):
                raise InvalidInput(f"the executable of job {index} (from 0) is empty", field="executable")
        if streams_vary:
            check_mistakes(
                stream_mistakes(
                    fill(description.std_output),
                    fill(description.std_error),
                    fill(description.executable),
                    [(fill(item.name), item.mode == COPY) for item in description.input_sandbox],
                )
            )


def _check_lengths(
    description: JobDescription,
    names: Sequence[str],
    rows: Sequence[Sequence[Scalar]],
    first: int,
    count: int,
) -> None:
    """Fast path: if the longest value fits in place of every placeholder, the rows need no single check."""
    longest = max((len(value) for row in rows for value in row if isinstance(value, str)), default=0)
    check_text_length("parameters", longest, Length(MAX_VALUE_CHARS))
    longest = max(longest, _LONGEST_NUMBER)
    places = [
        (text, field.partition(" ")[0], len(PLACEHOLDER.findall(text)))
        for text, field in _placeholder_texts(description)
    ]
    variable = [(text, field, number) for text, field, number in places if number]
    fixed = total_length(description)
    if fixed + longest * sum(number for *_, number in variable) <= MAX_TOTAL_CHARS and all(
        length_of(field).surely_takes(len(text) + longest * number) for text, field, number in variable
    ):
        return
    for index, values in enumerate(rows, first):
        # Lengths are computed without replacing: the result could have gigabytes.
        replacement, total = _replacer(names, values, index, count), fixed
        for text, field, _ in variable:
            limit = length_of(field)
            added = sum(limit.of(replacement(match)) - len(match[0]) for match in PLACEHOLDER.finditer(text))
            check_text_length(field, limit.of(text) + added, limit)
            total += added
        check_total_length(total)


_LONGEST_NUMBER: Final = 32
"""Upper bound of the characters of a number."""


def uses_job_number(description: JobDescription) -> bool:
    """Whether the description contains `%n`, for which the number of jobs must be known."""
    return any(
        match[1] == "n" for text, _ in _placeholder_texts(description) for match in PLACEHOLDER.finditer(text)
    )


def inputs_with_placeholders(description: JobDescription, except_: Container[int] = ()) -> list[str]:
    """The uploaded inputs with a placeholder in name or path, except the entries with an index in `except_`."""
    return [
        file.name
        for place, file in enumerate(description.input_sandbox)
        if file.mode == COPY and place not in except_ and PLACEHOLDER.search(file.name + file.source)
    ]


_FILES: Final = frozenset({"executable", "std_output", "std_error", "output_sandbox", "input_sandbox"})


def _placeholder_texts(description: JobDescription) -> list[tuple[str, str]]:
    """(text, field) of every text in which placeholders are replaced."""
    texts = [
        (description.executable, "executable"),
        (description.std_output, "std_output"),
        (description.std_error, "std_error"),
        (description.job_name, "job_name"),
    ]
    texts += [(text, "arguments") for text in description.arguments]
    texts += [(value, "environment") for _, value in description.environment]
    texts += [(text, "output_sandbox") for text in description.output_sandbox]
    texts += [(file.name, "input_sandbox") for file in description.input_sandbox]
    texts += [(file.source, "input_sandbox source") for file in description.input_sandbox]
    return texts
