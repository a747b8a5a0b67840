"""What every key of the policy means: the reference in the docs is made of it."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from pilotage.core.policy.bounds import range_of
from pilotage.core.policy.corrector_keys import CORRECTOR_KEYS
from pilotage.core.policy.model import (
    PROPERTIES,
    Accounting,
    Ce,
    Correction,
    Group,
    Jobs,
    LimitEntry,
    Matching,
    Retention,
    Site,
    User,
)
from pilotage.core.queues.limits import ATTRIBUTES
from pilotage.core.shares.correctors import CORRECTORS

KEYS: dict[str, str] = {
    "groups.*.share": "what fraction of the whole the group is entitled to, relative to the other shares",
    "groups.*.properties": f"rights of its members: {', '.join(PROPERTIES)}",
    "groups.*.vo": "virtual organisation, for the ads of pilots; nothing reads it yet",
    "users.*.groups": "the groups of the user; the first is the default",
    "users.*.subject": "certificate subject of the user, for the ads of pilots; nothing reads it yet",
    "sites.*.banned": "true: no job starts there",
    "sites.*.job_types": "the job types that the site takes; absent: all",
    "ces.*.site": "the site that it belongs to",
    "ces.*.type": "how pilots are started: local (processes of this machine)",
    "ces.*.owners": "home: pilots there serve only the owner of the home folder; any: anybody, one owner each",
    "ces.*.setup": "setup that its pilots offer",
    "ces.*.processors": "cores that pilots may use together; 0: all that this program may use",
    "ces.*.memory": "MB (2^20 bytes) that pilots may use together; 0: all of the machine",
    "ces.*.tags": "tags that its pilots offer, beside the tags that they detect on the node",
    "ces.*.required_tags": "tags that a job must have to start there",
    "ces.*.cpu_power": "reference cores per core",
    "ces.*.wall": (
        "seconds that a pilot may live, up to 35 of which are kept for its start and end: jobs of the CPU bucket 5000 s"
        " need a wall of 5035 (with cpu_power 1)"
    ),
    "ces.*.idle": "seconds without work after which a pilot leaves",
    "ces.*.lease": "seconds for which a pilot's jobs stay its own while nothing is heard of it",
    "ces.*.heartbeat": "seconds between two signs of life of a pilot",
    "ces.*.quantum": (
        "seconds for which a pilot that serves one owner at a time goes on with that owner before the draw is among all"
        " again; if it is another one's turn the pilot leaves, and one for that owner is started"
    ),
    "matching.rule": "document (highest CPU bucket first, rand()/priority) or proportional",
    "matching.cpu_buckets": "seconds of a reference core, ascending",
    "matching.memory_buckets": "MB (2^20 bytes), ascending",
    "jobs.max_reschedules": "how often a job is tried again after failures that are not its own",
    "jobs.retry_delay": "seconds between such a failure and the next try",
    "jobs.offer_timeout": "seconds after which an offer that is not confirmed goes back to its queue",
    "jobs.max_input_file": "bytes of one input file",
    "jobs.max_input_sandbox": "bytes of all input files of a submission",
    "jobs.max_output_file": "bytes of one output file",
    "jobs.max_waiting_per_owner": "jobs of one owner that may wait",
    "limits.*.attribute": f"attribute of the task queue: {', '.join(ATTRIBUTES)}",
    "limits.*.value": "its value",
    "limits.*.site": "the site where the limit holds; empty: everywhere",
    "limits.*.ce": "the CE where the limit holds; empty: all",
    "limits.*.running": "at most so many such jobs at a time",
    "limits.*.delay": "seconds between two starts of such jobs",
    "limits.*.burst": "starts that may be saved up",
    "correction.correctors": (
        f"the correctors to run, in this order: {', '.join(CORRECTORS)}; none: shares are not corrected"
    ),
    "correction.period": "seconds between two corrections",
    **{key.name: key.setting.meaning for key in CORRECTOR_KEYS},
    "accounting.history": "seconds for which the use of each day is kept, at least the longest time_span",
    "retention.hot": "seconds after its end for which a job stays in the table of those that wait and run",
    "retention.jobs": "seconds after its end for which a job, its submission and its description can be looked at",
    "retention.outputs": "seconds after a job's end for which its output files, standard output and error are kept",
    "retention.attempts": (
        "seconds after their end for which tries are kept, at least accounting.history and retention.jobs; absent: two"
        " years, or the longer of these"
    ),
    "retention.events": "seconds for which the steps of jobs and pilots, and acts of administrators, are kept",
    "retention.pilots": "seconds after its end for which a pilot and its log are kept, at least the longest ces.*.wall",
    "retention.uploads": "seconds for which an input file is kept that no submission names",
    "retention.reasons": "seconds for which is kept what a queue waited for",
    "platforms.*": "platforms whose jobs a node of this platform can run as well",
}
"""Meaning and unit of every key; the reference in the docs is made of it."""


def reference_markdown() -> str:
    """docs/reference/policy.md: every key with its type, default and meaning."""
    tables: dict[str, type[msgspec.Struct]] = {
        "groups.*": Group,
        "users.*": User,
        "sites.*": Site,
        "ces.*": Ce,
        "matching": Matching,
        "jobs": Jobs,
        "limits.*": LimitEntry,
        "correction": Correction,
        "accounting": Accounting,
        "retention": Retention,
    }
    lines = ["| key | type | default | range | meaning |", "|---|---|---|---|---|"]
    for prefix, table in tables.items():
        for field in msgspec.structs.fields(table):
            key = f"{prefix}.{field.encode_name}"
            if key not in KEYS:
                continue
            default = "(needed)" if field.required else f"`{_shown(field.default)}`"
            lines.append(_row(key, field.type, default))
        if table is Correction:
            lines += [_row(key.name, key.type, f"`{_shown(key.default)}`") for key in CORRECTOR_KEYS]
    lines.append(f"| `platforms.*` | list of texts | `[]` | | {KEYS['platforms.*']} |")
    return "\n".join(lines)


def _row(key: str, kind: Any, default: str) -> str:
    return f"| `{key}` | {_type_name(kind)} | {default} | {range_of(key)} | {KEYS[key]} |"


def correctors_markdown() -> str:
    """The correctors that a policy can name, with an example of each."""
    parts = []
    for name, instance in CORRECTORS.items():
        parts.append(f"`{name}`: {instance.meaning}.\n\n```toml\n{instance.example}```")
    return "\n\n".join(parts)


def _shown(value: Any) -> str:
    """A default as one writes it in TOML."""
    if isinstance(value, tuple):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if value is None:
        return "absent"
    return str(value) if isinstance(value, int) else f"{value:g}"


def _type_name(kind: Any) -> str:
    names = {str: "text", int: "integer", float: "number", bool: "true or false"}
    if kind in names:
        return names[kind]
    if str(kind).startswith("typing.Literal"):
        return " or ".join(f"`{choice}`" for choice in get_args(kind))
    inner = [argument for argument in get_args(kind) if argument not in (type(None), ...)]
    if "tuple" in str(kind):
        first = inner[0] if inner[0] in names else get_args(inner[0])[0]
        return f"list of {names[first]}s"
    return names[inner[0]]
