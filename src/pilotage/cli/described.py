"""From the options of `submit -- command` to a description, with the local files it names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilotage.cli.moments import parse_span
from pilotage.client.describing import Described, from_mapping
from pilotage.core.errors import InvalidInput
from pilotage.wire.people import MAX_JOBS_PER_SUBMISSION


@dataclass
class Options:
    """What was written on the command line about one job; empty means not said."""

    command: list[str]
    name: str = ""
    job_group: str = ""
    job_type: str = ""
    sites: list[str] = field(default_factory=list)
    banned_sites: list[str] = field(default_factory=list)
    platforms: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    cpu_time: str = ""
    wall_time: str = ""
    memory: str = ""
    processors: int | None = None
    priority: int | None = None
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    container: str = ""
    requirements: str = ""
    retries: int | None = None
    on_cutoff: str = ""
    count: int | None = None
    params: list[str] = field(default_factory=list)
    params_from: Path | None = None


def described(options: Options) -> Described:
    """The description of the options, their inputs relative to the working folder."""
    if not options.command:
        raise InvalidInput("no command is given", hint="pilotage submit [OPTIONS] -- COMMAND [ARGUMENTS]")
    entries, local = _inputs(options)
    executable, sent = _executable(options.command[0], {entry["name"] for entry in entries})
    if sent is not None:
        entries.append({"path": sent.name, "mode": "copy", "name": sent.name, "executable": True})
        local[sent.name] = sent
    fields: dict[str, Any] = {
        "executable": executable,
        "arguments": options.command[1:],
        "environment": _pairs(options.environment, "--env", "K=V"),
        "input_sandbox": entries,
        "output_sandbox": options.outputs,
        "job_name": options.name or Path(options.command[0]).name,
        "job_group": options.job_group,
        "job_type": options.job_type,
        "sites": _split(options.sites),
        "banned_sites": _split(options.banned_sites),
        "platforms": _split(options.platforms),
        "tags": _split(options.tags),
        "cpu_time": _seconds(options.cpu_time),
        "wall_time": _seconds(options.wall_time),
        "memory": options.memory,
        "processors": options.processors,
        "user_priority": options.priority,
        "setup_lines": options.setup,
        "container": options.container,
        "requirements": options.requirements,
        "retries": options.retries,
        "on_cutoff": options.on_cutoff,
        "parameters": parameters(options),
    }
    mapping = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    return from_mapping(mapping, local=local)


def _seconds(text: str) -> int | None:
    return math.ceil(parse_span(text)) if text else None


def _split(words: Iterable[str]) -> list[str]:
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


def _pairs(words: Iterable[str], option: str, form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InvalidInput(f"{option} {word}: it is written {form}")
        found[key] = value
    return found


def _inputs(options: Options) -> tuple[list[dict[str, Any]], dict[str, Path]]:
    """The input_sandbox of --input: `path`, `path=name`, `shared:PATH`, URL; and where the local ones lie."""
    entries: list[dict[str, Any]] = []
    local: dict[str, Path] = {}
    for word in options.inputs:
        text, name = _source_and_name(word)
        if text.startswith("shared:"):
            path = text.removeprefix("shared:")
            if not path.startswith("/"):
                raise InvalidInput(
                    f"--input {word}: a shared input has an absolute path, the same on all nodes"
                )
            entries.append({"path": path, "mode": "shared", "name": name or Path(path).name})
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


def _source_and_name(word: str) -> tuple[str, str]:
    if "://" not in word and not word.startswith("shared:") and Path(word).expanduser().exists():
        return word, ""  # a local file whose name has a "=" in it
    text, equals, name = word.rpartition("=")
    if equals and name and ("://" not in word or ("/" not in name and "?" not in text)):
        return text, name
    return word, ""


def _executable(word: str, inputs: set[str]) -> tuple[str, Path | None]:
    """A relative path to a file here (./run.sh, tools/run.sh) is sent along and started from the job's folder."""
    path = Path(word)
    if "/" not in word or path.is_absolute():
        return word, None
    if str(path) in inputs or path.parts[0] in inputs:
        return word if word.startswith("./") else f"./{word}", None
    if not path.is_file():
        raise InvalidInput(
            f"there is no file {word} here", hint="name a program of the nodes by its name or absolute path"
        )
    return f"./{path.name}", None if path.name in inputs else path


def parameters(options: Options) -> dict[str, list[Any]] | None:
    """Columns of --param (all combinations), --params-from (one value a line) and --count (0 to N-1)."""
    columns: dict[str, list[Any]] = {}
    for word in options.params:
        name, equals, values = word.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInput(f"--param {word}: it is written --param name=a,b,c")
        if name in columns:
            raise InvalidInput(f"--param {name} is given twice")
        columns[name] = [value.strip() for value in values.split(",")]
    if options.count is not None and options.params_from is not None:
        raise InvalidInput("--count and --params-from both set %s; give one of them")
    if options.params_from is not None:
        columns[""] = _lines(options.params_from)
    if options.count is not None:
        columns[""] = list(range(min(options.count, MAX_JOBS_PER_SUBMISSION + 1)))
    if not columns:
        return None
    total = math.prod(len(column) for column in columns.values())
    if total > MAX_JOBS_PER_SUBMISSION:
        raise InvalidInput(f"that makes more jobs than the {MAX_JOBS_PER_SUBMISSION:,} of a submission")
    rows = list(itertools.product(*columns.values()))
    return {name: [row[place] for row in rows] for place, name in enumerate(columns)}


def _lines(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as trouble:
        raise InvalidInput(f"cannot read {path}: {trouble.strerror}") from trouble
    except UnicodeDecodeError as trouble:
        raise InvalidInput(f"{path} is not a text in UTF-8") from trouble
    values = [line.strip() for line in text.splitlines() if line.strip()]
    if not values:
        raise InvalidInput(f"{path} has no values", hint="one value a line")
    return list(values)
