"""From the options of `submit` to a description, with the local files it names."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pilotage import wire
from pilotage.cli.export_option import parse_export
from pilotage.cli.named_files import NamedFiles, find_named_files
from pilotage.cli.submit_options import JobOptions
from pilotage.cli.time_format import format_size, parse_duration
from pilotage.client.description import LocalDescription, from_mapping
from pilotage.client.in_place import folder_fields, without_files_of_folder
from pilotage.client.text_files import read_text
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.arrays import Array, parse_array
from pilotage.core.jobs.overrides import override_fields

ARRAY_VARIABLE = "PILOTAGE_ARRAY_INDEX"
"""The environment variable of a job of an array that has its number."""


@dataclass
class DescribedCommand:
    """The job description of a command, and notes for the user, shown before it is sent."""

    described: LocalDescription
    notes: list[str] = field(default_factory=list)


def describe_command(
    command: Sequence[str], options: JobOptions, *, no_inputs: bool = False
) -> DescribedCommand:
    """The description of a command, its inputs relative to the working folder.

    Files of the working folder that the command names are inputs too, unless `no_inputs`.
    """
    if not command:
        raise InvalidInput("no command is given", hint="pilotage submit [OPTIONS] -- COMMAND [ARGUMENTS]")
    said = _parse_options(options)
    names = {entry["name"] for entry in said.entries}
    if no_inputs or "folder" in said.fields:
        named = NamedFiles(command[0])
    else:
        named = find_named_files(command, names, options.outputs or [])
    for name, path in named.files.items():
        executable = name in named.programs
        said.entries.append({"path": name, "mode": "copy", "name": name, "executable": executable})
        said.local[name] = path
    mapping: dict[str, Any] = {"job_name": Path(command[0]).name}
    mapping |= said.fields
    mapping |= {"executable": named.executable, "arguments": list(command[1:]), "input_sandbox": said.entries}
    columns = parameter_columns(options)
    if columns:
        mapping["parameters"] = columns
    notes = [*said.notes, *named.notes]
    if named.files:
        notes.insert(0, f"sending {_join_names(list(named.files))} ({format_size(named.size)})")
    return DescribedCommand(from_mapping(mapping, local=said.local), notes)


def override_description(described: LocalDescription, options: JobOptions) -> DescribedCommand:
    """The description of a job file with the options over it."""
    said = _parse_options(options)
    fields = dict(said.fields)
    if said.entries:
        fields["input_sandbox"] = said.entries
    if "folder" in fields:
        described = without_files_of_folder(described, fields["folder"])
    columns = parameter_columns(options)
    sequences = {name: tuple(values) for name, values in columns.items()} if columns else None
    submission = override_fields(described.submission, fields, sequences)
    return DescribedCommand(
        replace(described, submission=submission, local={**described.local, **said.local}), said.notes
    )


def _join_names(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@dataclass
class _ParsedOptions:
    """The parsed options: fields as in YAML, inputs with their local paths, notes."""

    fields: dict[str, Any]
    entries: list[dict[str, Any]]
    local: dict[str, Path]
    notes: list[str]


def _parse_options(options: JobOptions) -> _ParsedOptions:
    entries, local = _inputs(options.inputs or [])
    variables, unset = parse_export(options.export, os.environ)
    array = _read_array(options)
    if array:
        variables |= {ARRAY_VARIABLE: "%s"}
    fields: dict[str, Any] = {
        "environment": variables | name_value_pairs(options.environment or [], "--env", "K=V"),
        "output_sandbox": _outputs(options.outputs or []),
        "job_name": options.name,
        "job_group": options.job_group,
        "job_type": options.job_type,
        "sites": _split(options.sites),
        "banned_sites": _split(options.banned_sites),
        "platforms": _split(options.platforms),
        "tags": _split(options.tags),
        "cpu_time": whole_seconds(options.cpu_time),
        "wall_time": whole_seconds(options.wall_time),
        "warn": whole_seconds(options.warn),
        "memory": options.memory,
        "disk": options.disk,
        "processors": options.processors,
        "user_priority": options.priority,
        "setup_lines": options.setup,
        "container": options.container,
        "requirements": options.requirements,
        "retries": options.retries,
        "mail_type": _split([options.mail_type]) if options.mail_type else None,
        "mail_user": options.mail_user,
        "on_cutoff": options.on_cutoff,
        "after": _parents(options.after),
        "after_ok": _parents(options.after_ok),
        "after_fail": _parents(options.after_fail),
        "after_each": _parents(options.after_each),
        "hold": options.hold or None,
        "parallel": options.parallel or (array.parallel if array else 0) or None,
        **_in_place(options),
    }
    stated = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    notes = [f"--export {name}: {name} is not set here, and the job does not get it" for name in unset]
    return _ParsedOptions(stated, entries, local, notes)


def _in_place(options: JobOptions) -> dict[str, str]:
    if options.here and options.chdir:
        raise InvalidInput("--here and --chdir name two folders; give one of them")
    fields = folder_fields(options.chdir) if options.here or options.chdir else {}
    fields |= {"stdout_file": options.stdout_file, "stderr_file": options.stderr_file}
    return {**fields, "open_mode": options.open_mode}


def _read_array(options: JobOptions) -> Array | None:
    if not options.array:
        return None
    array = parse_array(options.array, wire.submissions.MAX_JOBS_PER_SUBMISSION)
    if array.parallel and options.parallel not in (None, array.parallel):
        raise InvalidInput("--array and --parallel give two numbers of jobs at once; give one of them")
    return array


def whole_seconds(text: str) -> int | None:
    return math.ceil(parse_duration(text)) if text else None


def _split(words: Iterable[str] | None) -> list[str]:
    return [part.strip() for word in words or [] for part in word.split(",") if part.strip()]


def _parents(words: Iterable[str] | None) -> list[str]:
    """Jobs and submissions. An empty name stays, to be refused: the variable of a script may be empty."""
    return [part for word in words or [] for part in word.split(",")]


def name_value_pairs(words: Iterable[str], option: str, form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InvalidInput(f"{option} {word}: it is written {form}")
        pairs[key] = value
    return pairs


def _inputs(words: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """The input_sandbox of --input: `path`, `path=name`, `shared:PATH`, `job:ID/PATH`, URL; and the local files."""
    entries: list[dict[str, Any]] = []
    local: dict[str, Path] = {}
    for word in words:
        text, name = _source_and_name(word)
        if text.startswith("shared:"):
            path = text.removeprefix("shared:")
            if not path.startswith("/"):
                raise InvalidInput(
                    f"--input {word}: a shared input has an absolute path, the same on all nodes"
                )
            entries.append({"path": path, "mode": "shared", "name": name or Path(path).name})
        elif text.startswith("job:"):
            path = text.removeprefix("job:")
            entries.append({"path": path, "mode": "job", "name": name or Path(path).name})
        elif "://" in text:
            tail = text.partition("://")[2].partition("?")[0].rstrip("/")
            if not name and "/" not in tail:
                raise InvalidInput(f"--input {word}: give the file a name: --input {word}=NAME")
            entries.append({"url": text, "name": name or tail.rpartition("/")[2]})
        else:
            path_here = Path(text).expanduser()
            inner = name or path_here.resolve().name
            entries.append({"path": text, "mode": "copy", "name": inner})
            if inner in local:
                raise InvalidInput(f"two inputs have the name {inner}", hint="rename one: --input PATH=NAME")
            local[inner] = path_here
    return entries, local


def _outputs(words: Sequence[str]) -> list[str]:
    """Patterns of --output; the syntax of inputs (PATH=NAME) would be a pattern that matches nothing."""
    for word in words:
        name, equals, other = word.partition("=")
        if equals:
            raise InvalidInput(
                f"--output {word}: outputs are not renamed; this would be a file whose name has a '=' in it",
                hint=f"--output {other or name}; for a file with such a name: --output '{word.replace('=', '?')}'",
            )
    return list(words)


def _source_and_name(word: str) -> tuple[str, str]:
    if "://" not in word and not word.startswith(("shared:", "job:")) and Path(word).expanduser().exists():
        return word, ""  # a local file whose name has a "=" in it
    text, equals, name = word.rpartition("=")
    if equals and name and ("://" not in word or ("/" not in name and "?" not in text)):
        return text, name
    return word, ""


def parameter_columns(options: JobOptions) -> dict[str, list[Any]] | None:
    """Columns of --param (all combinations), --params-from (one value a line) and --count (0 to N-1)."""
    columns: dict[str, list[Any]] = {}
    for word in options.params or []:
        name, equals, values = word.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInput(f"--param {word}: it is written --param name=a,b,c")
        if name in columns:
            raise InvalidInput(f"--param {name} is given twice")
        columns[name] = [value.strip() for value in values.split(",")]
    array = _read_array(options)
    given = {"--array": array, "--count": options.count, "--params-from": options.params_from}
    unnamed = [option for option, value in given.items() if value is not None]
    if len(unnamed) > 1:
        raise InvalidInput(f"{' and '.join(unnamed)} both set %s; give one of them")
    if array is not None:
        columns[""] = list(array.values)
    if options.params_from is not None:
        columns[""] = _lines(options.params_from)
    if options.count is not None:
        columns[""] = list(range(min(options.count, wire.submissions.MAX_JOBS_PER_SUBMISSION + 1)))
    if not columns:
        return None
    total = math.prod(len(column) for column in columns.values())
    if total > wire.submissions.MAX_JOBS_PER_SUBMISSION:
        raise InvalidInput(
            f"that makes more jobs than the {wire.submissions.MAX_JOBS_PER_SUBMISSION:,} of a submission"
        )
    rows = list(itertools.product(*columns.values()))
    return {name: [row[place] for row in rows] for place, name in enumerate(columns)}


def _lines(path: Path) -> list[Any]:
    text = read_text(path, "a list of values")
    values = [line.strip() for line in text.splitlines() if line.strip()]
    if not values:
        raise InvalidInput(f"{path} has no values", hint="one value a line")
    return list(values)
