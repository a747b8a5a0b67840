"""Many jobs of one description: sequences of values, and the placeholders they replace."""

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
    check_text_length,
    check_total_length,
    length_of,
    total_length,
)
from pilotage.core.jobs.per_job_inputs import decode_file, is_file_column, per_job_columns
from pilotage.core.jobs.stream_names import STREAM_FIELDS, stream_mistakes

# `%j`, the job's id, is known to the server alone and left as it is.
PLACEHOLDER: Final = re.compile(r"%(?:(s|n)|\(([^()]*)\)s?)")
_LARGEST: Final = 2**63
GLITE_PLACEHOLDER: Final = "_PARAM_"
"""What gLite calls `%s`. A JDL with JobType "Parametric" is rewritten when it is read."""
_NEVER_FILLED: Final = frozenset({"setup_lines", "job_group"})


def glite_progression(most: Any, start: Any = 0, step: Any = 1) -> tuple[Scalar, ...]:
    """The values of gLite: from `start` in steps of `step`, `most` itself not among them.

    >>> glite_progression(10, 1, 4)
    (1, 5, 9)
    """
    for what, value in (("Parameters", most), ("ParameterStart", start), ("ParameterStep", step)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidInput(f"{what} must be a number, not {value!r}", field="parameters")
    if not step or (most - start) / step <= 0:
        raise InvalidInput(
            f"from ParameterStart {start} in steps of {step} there is no value before Parameters {most}",
            hint="in gLite Parameters is where the values end, not how many there are",
            field="parameters",
        )
    return progression(math.ceil((most - start) / step), start, step)


def progression(
    count: Any, start: Any = 0, step: Any = 0, factor: Any = 1, name: str = ""
) -> tuple[Scalar, ...]:
    """`count` values: the first is `start`, each next one the last times `factor` plus `step`."""
    title = f"parameters {name}".rstrip()
    for what, value in (("start", start), ("step", step), ("factor", factor)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(f"{title}: {what} must be a number, not {value!r}", field="parameters")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidInput(
            f"{title}: the count must be a whole number above 0, not {count!r}", field="parameters"
        )
    check_count(count)
    values: list[Scalar] = []
    value = start
    for _ in range(count):
        if not (math.isfinite(value) if isinstance(value, float) else abs(value) < _LARGEST):
            raise InvalidInput(f"{title}: the values grow beyond 64 bits", field="parameters")
        values.append(value)
        value = value * factor + step
    return tuple(values)


def check_count(count: int) -> None:
    if count > MAX_JOBS:
        raise TooLarge(
            f"{count:,} jobs in one submission: the limit is {MAX_JOBS:,}",
            hint="more go as a table: `pilotage submit --table FILE`, or Client.submit_rows",
            field="parameters",
        )


def parameter_rows(sequences: dict[str, tuple[Scalar, ...]]) -> tuple[tuple[Scalar, ...], ...]:
    """The values of each job, from a sequence per name; all sequences must be equally long."""
    lengths = {name: len(values) for name, values in sequences.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name or 'the nameless one'} has {length}" for name, length in lengths.items())
        raise InvalidInput(f"the parameters differ in length: {found}", field="parameters")
    count = next(iter(lengths.values()))
    if count == 0:
        raise InvalidInput("the parameters have no values: there would be no job", field="parameters")
    check_count(count)
    return tuple(zip(*sequences.values(), strict=True))


def bind(
    description: JobDescription, names: Sequence[str], values: Sequence[Scalar], index: int, count: int
) -> JobDescription:
    """The description of one job: placeholders replaced, the resulting names checked again.

    `%s` is the nameless value, `%(Name)s` that of a name, `%n` the index padded with zeros to the width of
    the last one. Raises `InvalidInput` if a value makes a file name lead out of the payload's folder.
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
            InputFile(fill(one.name), one.mode, fill(one.source), one.executable)
            for one in description.input_sandbox
        ),
    )
    if not bound.executable:
        raise InvalidInput(f"the executable of job {index} is empty", field="executable")
    check_mistakes(path_mistakes(bound))
    return bound


def differs_per_job(text: str, names: Sequence[str]) -> bool:
    """Whether `text` is another one for each job: a placeholder in it is filled, or `%j` is."""
    return "%j" in text or any(_fills(place, names) for place in PLACEHOLDER.finditer(text))


def fill_placeholders(
    text: str, names: Sequence[str], values: Sequence[Scalar], index: int, count: int
) -> str:
    """One text with the values of job `index`, of `count`, in place of its placeholders."""
    return _filler(names, values, index, count)(text)


def _filler(names: Sequence[str], values: Sequence[Scalar], index: int, count: int) -> Callable[[str], str]:
    put = _put(names, values, index, count)
    return lambda text: PLACEHOLDER.sub(put, text) if "%" in text else text


def _put(
    names: Sequence[str], values: Sequence[Scalar], index: int, count: int
) -> Callable[[re.Match[str]], str]:
    """What stands in place of a placeholder in one job."""
    known = {name: value_text(value) for name, value in zip(names, values, strict=True)}
    number = str(index).zfill(len(str(count - 1)))

    def put(found: re.Match[str]) -> str:
        return number if found[1] == "n" else known.get(found[2] or "", found[0])

    return put


def value_text(value: Scalar) -> str:
    """A value as it stands in place of a placeholder."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def validate_parameters(submission: Submission) -> Submission:
    """The submission, if its placeholders have values and all its jobs sensible file names."""
    if submission.names:
        per_job_columns(submission.description, submission.names)
        check_placeholders(submission.description, submission.names)
        check_rows(submission.description, submission.names, submission.parameters, 0, submission.count)
    return submission


def check_placeholders(description: JobDescription, names: Sequence[str]) -> None:
    """Raises `InvalidInput` for the named placeholders that none of `names` gives a value."""
    named = ", ".join(name for name in names if name) or "none with a name"
    missing = [
        (found[0], field)
        for text, field in _bound_texts(description)
        for found in PLACEHOLDER.finditer(text)
        if found[2] is not None and found[2] not in names
    ]
    check_mistakes(
        InvalidInput(f"{field}: there is no parameter for {text}", hint=f"there is {named}", field=field)
        for text, field in dict.fromkeys(missing)
    )


def placeholder_warnings(description: JobDescription, names: Sequence[str]) -> list[str]:
    """Warnings for placeholders that nothing fills: they reach the program as they are written."""
    texts = [(text, field.partition(" ")[0]) for text, field in _bound_texts(description)]
    if names:
        # Without parameters a shell line is full of such signs: `date +%s`.
        texts += [(text, "setup_lines") for text in description.setup_lines]
        texts += [(description.job_group, "job_group")]
    found: dict[str, list[str]] = {}
    for text, field in texts:
        for place in PLACEHOLDER.finditer(text):
            if field in _NEVER_FILLED or not _fills(place, names):
                found.setdefault(place[0], []).append(field)
        if GLITE_PLACEHOLDER in text:
            found.setdefault(GLITE_PLACEHOLDER, []).append(field)
    return [_unfilled(text, list(dict.fromkeys(fields)), names) for text, fields in found.items()]


def _fills(place: re.Match[str], names: Sequence[str]) -> bool:
    return bool(names) if place[1] == "n" else (place[2] or "") in names


def _unfilled(text: str, fields: Sequence[str], names: Sequence[str]) -> str:
    where = " and ".join(fields)
    if set(fields) <= _NEVER_FILLED:
        return f"{text} in {where} stays as it is: placeholders are not replaced there"
    named = " or ".join(f"%({name})s" for name in names if name and not is_file_column(name))
    help_ = f"{named} would be filled" if named else "there are no parameters (--count, --param, Parameters)"
    return f"{text} in {where} stays as it is: nothing fills it; {help_}"


def check_rows(
    description: JobDescription,
    names: Sequence[str],
    rows: Sequence[Sequence[Scalar]],
    first: int,
    count: int,
) -> None:
    """Raises `InvalidInput` for a row of values that makes a file name no job may have, or texts that are too long.

    `rows` are those from number `first` on, of `count` in all. Arguments, environment and names of jobs may be
    anything else.
    """
    _check_lengths(description, names, rows, first, count)
    own = per_job_columns(description, names).values()
    for row in rows if own else ():
        for place in own:
            decode_file(row[place])
    texts = _bound_texts(description)
    varying = [(t, field) for t, field in texts if field in _FILES and PLACEHOLDER.search(t)]
    streams_vary = any(field in STREAM_FIELDS for _, field in varying)
    for index, values in enumerate(rows if varying else (), first):
        fill = _filler(names, values, index, count)
        for text, field in varying:
            if field != "executable":
                check_relative_path(fill(text), field)
            elif not fill(text):
                raise InvalidInput(f"the executable of job {index} is empty", field="executable")
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
    """Short values need no look at each row: even the longest one everywhere stays below the limits."""
    longest = max((len(value) for row in rows for value in row if isinstance(value, str)), default=0)
    check_text_length("parameters", longest, MAX_VALUE_CHARS)
    longest = max(longest, _LONGEST_NUMBER)
    places = [
        (text, field.partition(" ")[0], len(PLACEHOLDER.findall(text)))
        for text, field in _bound_texts(description)
    ]
    filled = [(text, field, number) for text, field, number in places if number]
    fixed = total_length(description)
    if fixed + longest * sum(number for *_, number in filled) <= MAX_TOTAL_CHARS and all(
        len(text) + longest * number <= length_of(field).max_chars for text, field, number in filled
    ):
        return
    for index, values in enumerate(rows, first):
        # Only reckoned: a filled text could have gigabytes.
        put, whole = _put(names, values, index, count), fixed
        for text, field, _ in filled:
            more = sum(len(put(found)) - len(found[0]) for found in PLACEHOLDER.finditer(text))
            check_text_length(field, len(text) + more, length_of(field).max_chars)
            whole += more
        check_total_length(whole)


_LONGEST_NUMBER: Final = 32
"""No number is written with more characters."""


def uses_job_number(description: JobDescription) -> bool:
    """Whether `%n` stands in it, whose width is that of the last number."""
    return any(
        found[1] == "n" for text, _ in _bound_texts(description) for found in PLACEHOLDER.finditer(text)
    )


def inputs_with_placeholders(description: JobDescription, own: Container[int] = ()) -> list[str]:
    """The inputs to be sent whose name or path holds a placeholder, but for those at the places `own`."""
    return [
        file.name
        for place, file in enumerate(description.input_sandbox)
        if file.mode == COPY and place not in own and PLACEHOLDER.search(file.name + file.source)
    ]


_FILES: Final = frozenset({"executable", "std_output", "std_error", "output_sandbox", "input_sandbox"})


def _bound_texts(description: JobDescription) -> list[tuple[str, str]]:
    found = [
        (description.executable, "executable"),
        (description.std_output, "std_output"),
        (description.std_error, "std_error"),
        (description.job_name, "job_name"),
    ]
    found += [(text, "arguments") for text in description.arguments]
    found += [(value, "environment") for _, value in description.environment]
    found += [(text, "output_sandbox") for text in description.output_sandbox]
    found += [(one.name, "input_sandbox") for one in description.input_sandbox]
    found += [(one.source, "input_sandbox source") for one in description.input_sandbox]
    return found
