"""Options about resources as fields of a job's description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pilotage.cli.slurm.amounts import parse_count, parse_megabytes, parse_minutes
from pilotage.cli.slurm.host_lists import host_names
from pilotage.core.errors import InvalidInput

_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:+-]+\Z")
_SIGNAL: Final = re.compile(
    r"(?:(B|R|BR|RB):)?(?:SIG)?([A-Z]+[0-9]*|\d{1,2})(?:@(\d{0,5}))?\Z", re.IGNORECASE
)
MOST_BEFORE: Final = 65_535
"""Seconds of --signal."""
_SIGNAL_NAMES: Final = {
    1: "HUP", 2: "INT", 3: "QUIT", 6: "ABRT", 9: "KILL", 10: "USR1", 12: "USR2", 14: "ALRM", 15: "TERM", 18: "CONT",
}  # fmt: skip
WARNED_BEFORE: Final = 60
"""Seconds of --signal without a time."""
GPU: Final = "GPU"


def resource_fields(values: Mapping[str, str]) -> dict[str, Any]:
    """Fields of the description. Raises InvalidInput, which names the option."""
    tasks = _tasks(values)
    gpus = _gpus(values, tasks)
    cores = _cores(values, tasks, gpus)
    tags, expressions = _constraint(values.get("constraint", ""))
    tags += _other_gres(values.get("gres", ""))
    if gpus:
        tags.append(GPU)
    if gpus > 1:
        expressions.append(f"other.GPUs >= {gpus}")
    expressions += [f"!({_is_host(host)})" for host in _hosts(values, "exclude")]
    chosen = _hosts(values, "nodelist")
    if len(chosen) > 1:
        raise InvalidInput(
            f"--nodelist {values['nodelist']}: a job here runs on one node", hint="name one host"
        )
    expressions += map(_is_host, chosen)
    fields: dict[str, Any] = {
        "processors": cores,
        "memory": _memory(values, cores, gpus),
        "wall_time": parse_minutes(values["time"], "--time") if "time" in values else 0,
        "disk": parse_megabytes(values["tmp"], "--tmp") if "tmp" in values else 0,
        "tags": list(dict.fromkeys(tags)),
        "requirements": " && ".join(f"({text})" for text in expressions),
    }
    return {name: value for name, value in fields.items() if value}


def task_count(values: Mapping[str, str]) -> int:
    return _tasks(values)


def parse_signal(text: str) -> tuple[str, int]:
    """(`[B:]NAME`, seconds before the end) of `--signal`.

    >>> parse_signal("B:USR2@90")
    ('B:USR2', 90)
    """
    match = _SIGNAL.match(text.strip())
    if match is None:
        raise InvalidInput(f"--signal {text}: it is no signal", hint="USR1@60 or B:TERM@120")
    name = match[2].upper()
    if name.isdigit():
        if int(name) not in _SIGNAL_NAMES:
            raise InvalidInput(
                f"--signal {text}: signal {name} is not known", hint="give its name, such as USR2"
            )
        name = _SIGNAL_NAMES[int(name)]
    elif name not in _SIGNAL_NAMES.values():
        raise InvalidInput(f"--signal {text}: signal {name} is not known")
    before = int(match[3] or WARNED_BEFORE)
    if before > MOST_BEFORE:
        raise InvalidInput(f"--signal {text}: the most is {MOST_BEFORE:,} seconds")
    # `R` is about reservations, which pools do not have.
    return f"{'B:' if 'B' in (match[1] or '').upper() else ''}{name}", before


def _tasks(values: Mapping[str, str]) -> int:
    if "nodes" in values:
        least, dash, most = values["nodes"].partition("-")
        if dash:
            parse_count(most, "--nodes")
        if parse_count(least, "--nodes") > 1:
            raise InvalidInput(
                f"--nodes {values['nodes']}: a job here runs on one node", hint="--nodes=1 with more --ntasks"
            )
    if "ntasks" in values:
        return parse_count(values["ntasks"], "--ntasks")
    return parse_count(values.get("ntasks-per-node", "1"), "--ntasks-per-node")


def _cores(values: Mapping[str, str], tasks: int, gpus: int) -> int:
    each = parse_count(values.get("cpus-per-task", "1"), "--cpus-per-task")
    for_gpus = parse_count(values["cpus-per-gpu"], "--cpus-per-gpu") * gpus if "cpus-per-gpu" in values else 0
    return max(each * tasks, for_gpus)


def _memory(values: Mapping[str, str], cores: int, gpus: int) -> int:
    given = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in values]
    if len(given) > 1:
        raise InvalidInput(f"--{given[0]} and --{given[1]} cannot be combined")
    if "mem" in values:
        return parse_megabytes(values["mem"], "--mem")
    if "mem-per-cpu" in values:
        return parse_megabytes(values["mem-per-cpu"], "--mem-per-cpu") * cores
    return parse_megabytes(values["mem-per-gpu"], "--mem-per-gpu") * gpus if given else 0


def _gpus(values: Mapping[str, str], tasks: int) -> int:
    """The number of GPUs of the job: the largest number in the options."""
    counts = [0]
    for name, times in (("gpus", 1), ("gpus-per-node", 1), ("gpus-per-task", tasks)):
        if name in values:
            counts.append(_gpu_count(values[name], f"--{name}") * times)
    for part in _split(values.get("gres", "")):
        words = part.removeprefix("gres:").split(":")
        if words[0] == "gpu":
            counts.append(_gpu_count(":".join(words[1:]) or "1", "--gres"))
    return max(counts)


def _gpu_count(text: str, option: str) -> int:
    """`2`, or `a100:2`; a type alone means one."""
    kind, _, number = text.rpartition(":")
    if kind or not number.isdigit():
        raise InvalidInput(
            f"{option} {text}: the type of a GPU is not chosen by {option}",
            hint="--constraint with a tag of the nodes, or another partition",
        )
    return parse_count(number, option, least=0)


def _other_gres(text: str) -> list[str]:
    """Resources other than GPUs are tags; a number above one cannot be counted."""
    tags: list[str] = []
    for part in _split(text):
        name, _, number = part.removeprefix("gres:").partition(":")
        if name == "gpu" or part.lower() == "none":
            continue
        if number not in ("", "1"):
            raise InvalidInput(
                f"--gres {part}: only GPUs are counted", hint=f"--gres={name} asks for the tag {name}"
            )
        tags.append(_feature(name, "--gres"))
    return tags


def _constraint(text: str) -> tuple[list[str], list[str]]:
    """(tags that are all needed, expressions)."""
    if not text.strip():
        return [], []
    if any(letter in text for letter in "[]*()"):
        raise InvalidInput(
            f"--constraint {text}: brackets, `*` and `(` are not understood", hint="a&b, or a|b"
        )
    if "|" not in text:
        return [_feature(part, "--constraint") for part in text.replace("&", ",").split(",")], []
    choices = []
    for choice in text.split("|"):
        names = [_feature(part, "--constraint") for part in choice.replace("&", ",").split(",")]
        choices.append(" && ".join(f'member("{name}", other.Tags)' for name in names))
    return [], [" || ".join(f"({choice})" for choice in choices)]


def _feature(text: str, option: str) -> str:
    if not _FEATURE.match(text.strip()):
        raise InvalidInput(f"{option}: {text or 'nothing'} is not the name of a feature")
    return text.strip()


def _hosts(values: Mapping[str, str], name: str) -> list[str]:
    return [_feature(host, f"--{name}") for host in host_names(values.get(name, "").replace(" ", ""))]


def _is_host(host: str) -> str:
    """Whether the node has this name, with or without its domain."""
    return f'other.Hostname == "{host}" || split(other.Hostname, ".")[0] == "{host}"'


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
