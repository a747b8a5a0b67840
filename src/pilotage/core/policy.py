"""The policy: who may do what, where, with which share. One TOML document, applied whole or refused.

Every key is a field below, with unit and default in its docstring entry of `KEYS`; unknown keys are refused with
their line and the nearest right name.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from typing import Any, Literal, get_args

import msgspec

from pilotage.core.errors import InvalidInput
from pilotage.core.queues.draws import Rule
from pilotage.core.queues.limits import ATTRIBUTES, Limit

ADMINISTRATOR = "ADMINISTRATOR"
JOB_ADMINISTRATOR = "JOB_ADMINISTRATOR"
JOB_SHARING = "JOB_SHARING"
GENERIC_PILOT = "GENERIC_PILOT"
NORMAL_USER = "NORMAL_USER"
PROPERTIES = (NORMAL_USER, JOB_SHARING, JOB_ADMINISTRATOR, ADMINISTRATOR, GENERIC_PILOT)

Owners = Literal["home", "any"]
CeType = Literal["local"]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of the document."""


class Group(_Table, frozen=True):
    share: float = 1000.0
    properties: tuple[str, ...] = (NORMAL_USER,)
    vo: str = ""


class User(_Table, frozen=True):
    groups: tuple[str, ...]
    subject: str = ""


class Site(_Table, frozen=True):
    banned: bool = False
    job_types: tuple[str, ...] | None = None


class Ce(_Table, frozen=True):
    site: str
    type: CeType = "local"
    owners: Owners = "home"
    setup: str = ""
    processors: int = 0
    memory: int = 0
    tags: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    cpu_power: float = 1.0
    wall: float = 604800.0
    idle: float = 5.0
    lease: float = 3600.0
    heartbeat: float = 5.0


class Matching(_Table, frozen=True):
    rule: Rule = "document"
    cpu_buckets: tuple[int, ...] = (500, 5000, 50000, 300000)
    memory_buckets: tuple[int, ...] = (
        *(512, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000, 32000),
        *(48000, 64000, 96000, 128000, 192000, 256000, 512000, 1024000),
    )


class Jobs(_Table, frozen=True):
    max_reschedules: int = 3
    retry_delay: float = 10.0
    offer_timeout: float = 300.0
    max_input_file: int = 1_000_000_000
    max_input_sandbox: int = 2_000_000_000
    max_output_file: int = 10_000_000_000
    max_waiting_per_owner: int = 2_000_000


class LimitEntry(_Table, frozen=True):
    attribute: str
    value: str
    site: str = ""
    ce: str = ""
    running: int | None = None
    delay: float = 0.0
    burst: int = 1


class Policy(_Table, frozen=True):
    """The whole document. All references between its tables hold: `parse` has checked them."""

    groups: dict[str, Group]
    users: dict[str, User]
    sites: dict[str, Site] = {}
    ces: dict[str, Ce] = {}
    matching: Matching = Matching()
    jobs: Jobs = Jobs()
    limits: tuple[LimitEntry, ...] = ()
    platforms: dict[str, tuple[str, ...]] = {}

    def properties(self, user: str, group: str) -> frozenset[str]:
        """What `user` may do in `group`; empty if the policy has no such membership."""
        known = self.users.get(user)
        if known is None or group not in known.groups or group not in self.groups:
            return frozenset()
        return frozenset(self.groups[group].properties)

    def priority(self, group: str) -> float:
        """Of a queue of this group, until shares are computed: the group's share; 0 for a vanished group."""
        known = self.groups.get(group)
        return known.share if known else 0.0

    def entity(self, owner: str, group: str) -> tuple[str, str]:
        known = self.groups.get(group)
        sharing = known is not None and JOB_SHARING in known.properties
        return ("", group) if sharing else (owner, group)

    def compatible(self, platform: str) -> frozenset[str]:
        """The platforms whose jobs a node of `platform` can run, itself included."""
        return frozenset({platform, *self.platforms.get(platform, ())})

    def limit_list(self) -> tuple[Limit, ...]:
        return tuple(Limit(**msgspec.structs.asdict(entry)) for entry in self.limits)


KEYS: dict[str, str] = {
    "groups.*.share": "what fraction of the whole the group is entitled to, relative to the other shares",
    "groups.*.properties": f"rights of its members: {', '.join(PROPERTIES)}",
    "groups.*.vo": "virtual organisation, for the ads of pilots",
    "users.*.groups": "the groups of the user; the first is the default",
    "users.*.subject": "certificate subject of the user, for the ads of pilots",
    "sites.*.banned": "true: no job starts there",
    "sites.*.job_types": "the job types that the site takes; absent: all",
    "ces.*.site": "the site that it belongs to",
    "ces.*.type": "how pilots are started: local (processes of this machine)",
    "ces.*.owners": "home: pilots there serve only the owner of the home folder; any: anybody, one owner each",
    "ces.*.setup": "setup that its pilots offer",
    "ces.*.processors": "cores that pilots may use together; 0: all that this program may use",
    "ces.*.memory": "MB that pilots may use together; 0: all of the machine",
    "ces.*.tags": "tags that its pilots offer, besides those that they find themselves",
    "ces.*.required_tags": "tags that a job must have to start there",
    "ces.*.cpu_power": "reference cores per core",
    "ces.*.wall": "seconds that a pilot may live",
    "ces.*.idle": "seconds without work after which a pilot leaves",
    "ces.*.lease": "seconds for which a pilot's jobs stay its own while nothing is heard of it",
    "ces.*.heartbeat": "seconds between two signs of life of a pilot",
    "matching.rule": "document (highest CPU bucket first, rand()/priority) or proportional",
    "matching.cpu_buckets": "seconds of a reference core, ascending",
    "matching.memory_buckets": "MB, ascending",
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
    "platforms.*": "platforms whose jobs a node of this platform can run as well",
}
"""Meaning and unit of every key; the reference in the docs is made of it."""


def parse(text: str) -> Policy:
    """The policy that `text` says, or `InvalidInput` with line and reason."""
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        line, column = (int(place[1]), int(place[2])) if place else (None, None)
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise InvalidInput(f"the policy is not TOML: {reason}", line=line, column=column) from None
    try:
        policy = msgspec.convert(plain, Policy)
    except msgspec.ValidationError as error:
        raise _explained(str(error), text, plain) from None
    _check(policy, text)
    return policy


def warnings(policy: Policy) -> list[str]:
    """What is allowed, but should be known."""
    said = []
    for name, ce in policy.ces.items():
        if ce.owners == "any":
            said.append(
                f'ces.{name}: owners = "any" lets every user of the policy run programs on this machine under the'
                " account of the server: they can read and change all that this account can, this server's own"
                " files and keys included. Use it only among people who trust each other."
            )
    if all(group.share == 0 for group in policy.groups.values()):
        said.append("all shares are 0: every task queue is equally likely")
    return said


def _explained(message: str, text: str, plain: dict[str, Any]) -> InvalidInput:
    """The words of msgspec with the line, and the nearest right name for an unknown key."""
    reason, _, path = message.partition(" - at `")
    keys = re.findall(r"[^.\[\]`$]+|\.{3}", path)
    if "..." in keys[1:2]:
        keys[1] = _refused_entry(keys[0], plain[keys[0]])
    unknown = re.search(r"unknown field `(\w+)`", reason)
    if unknown:
        line = _line_of(text, [*keys, unknown[1]])
        known = sorted({part for key in KEYS for part in key.split(".") if part != "*"})
        near = difflib.get_close_matches(unknown[1], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        return InvalidInput(f"unknown key {unknown[1]}", hint=hint, line=line, field=unknown[1])
    where = ".".join(keys)
    return InvalidInput(f"{where or 'the policy'}: {reason}", line=_line_of(text, keys), field=where or None)


def _refused_entry(table: str, entries: dict[str, Any]) -> str:
    """Which entry msgspec means, that tells the key of a structure, but not that of a dictionary."""
    for name, entry in entries.items():
        try:
            msgspec.convert({"groups": {}, "users": {}, table: {name: entry}}, Policy)
        except msgspec.ValidationError:
            return name
    return "..."


def _line_of(text: str, keys: list[str]) -> int | None:
    """Where `keys` stand, or the nearest table above them; best effort: tomllib tells no places."""
    places: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[{1,2})([^\[\]]+)\]", line)
        pair = re.match(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*'|\s*\.\s*)+?)\s*=", line)
        if header:
            table = _key_parts(header[2])
            if header[1] == "[[":
                table += (str(sum(path[:-1] == table for path in places)),)
            places.setdefault(table, number)
        elif pair:
            places.setdefault(table + _key_parts(pair[1]), number)
    for length in range(len(keys), 0, -1):
        found = [n for path, n in places.items() if path[:length] == tuple(keys[:length])]
        if found:
            return min(found)
    return None


def _key_parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(r"[\w-]+|\"[^\"]*\"|'[^']*'", dotted))


class _Refuser:
    """Raises `InvalidInput` with the line where the keys stand."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, message: str, *keys: str, hint: str = "") -> None:
        raise InvalidInput(message, hint=hint, line=_line_of(self._text, list(keys)), field=".".join(keys))


def _check(policy: Policy, text: str) -> None:
    refuse = _Refuser(text)
    _check_people(policy, refuse)
    _check_places(policy, refuse)
    _check_limits(policy, refuse)
    _check_jobs(policy.jobs, refuse)
    for buckets in ("cpu_buckets", "memory_buckets"):
        values = getattr(policy.matching, buckets)
        if not values or list(values) != sorted(set(values)) or values[0] <= 0:
            refuse(f"matching.{buckets} must rise and be positive", "matching", buckets)


def _check_people(policy: Policy, refuse: _Refuser) -> None:
    for name, group in policy.groups.items():
        if not 0 <= group.share < float("inf"):
            refuse(f"the share of group {name} must be a number of at least 0", "groups", name, "share")
        for unknown in set(group.properties) - set(PROPERTIES):
            known = f"known: {', '.join(PROPERTIES)}"
            refuse(f"group {name}: unknown property {unknown}", "groups", name, "properties", hint=known)
    for name, user in policy.users.items():
        if not user.groups:
            refuse(f"user {name} is in no group", "users", name, "groups")
        for missing in [group for group in user.groups if group not in policy.groups]:
            refuse(
                f"user {name}: there is no group {missing}",
                "users",
                name,
                "groups",
                hint=_known(policy.groups),
            )


def _check_places(policy: Policy, refuse: _Refuser) -> None:
    for name, ce in policy.ces.items():
        if ce.site not in policy.sites:
            refuse(f"CE {name}: there is no site {ce.site}", "ces", name, "site", hint=_known(policy.sites))
        for key in ("lease", "heartbeat", "cpu_power", "wall"):
            if not 0 < getattr(ce, key) < math.inf:
                refuse(f"CE {name}: {key} must be a number above 0", "ces", name, key)
        if ce.heartbeat * 3 > ce.lease:
            refuse(f"CE {name}: a lease must last at least three heartbeats", "ces", name, "lease")
        for key in ("processors", "memory", "idle"):
            if not 0 <= getattr(ce, key) < math.inf:
                refuse(f"CE {name}: {key} must be a number of at least 0", "ces", name, key)


def _check_limits(policy: Policy, refuse: _Refuser) -> None:
    for place, limit in enumerate(policy.limits):
        here = ("limits", str(place))
        if limit.attribute not in ATTRIBUTES:
            known = f"known: {', '.join(ATTRIBUTES)}"
            refuse(f"limits: unknown attribute {limit.attribute}", *here, "attribute", hint=known)
        running = 0 if limit.running is None else limit.running
        counts = running >= 0 and 0 <= limit.delay < math.inf and limit.burst >= 1
        if not counts or (limit.running is None and not limit.delay):
            refuse("a limit needs running or delay (at least 0), and a burst of at least 1", *here)
        if limit.site and limit.site not in policy.sites:
            refuse(f"limits: there is no site {limit.site}", *here, "site", hint=_known(policy.sites))
        if limit.ce and limit.ce not in policy.ces:
            refuse(f"limits: there is no CE {limit.ce}", *here, "ce", hint=_known(policy.ces))


def _check_jobs(jobs: Jobs, refuse: _Refuser) -> None:
    for key in jobs.__struct_fields__:
        if not 0 <= getattr(jobs, key) < math.inf:
            refuse(f"jobs.{key} must be a number of at least 0", "jobs", key)
    if not jobs.offer_timeout:
        refuse("jobs.offer_timeout must be above 0", "jobs", "offer_timeout")


def _known(names: dict[str, Any]) -> str:
    return f"there are: {', '.join(sorted(names)) or 'none'}"


def initial(owner: str, site: str) -> str:
    """The policy of a fresh home: its owner, one group, one site with the local CE."""
    return f"""\
# The policy of this Pilotage instance: one document, applied whole with `pilotage policy apply FILE`.
# Every key, its unit and default: docs/reference/policy.md.

[groups.home]
share = 1000
properties = ["{NORMAL_USER}", "{ADMINISTRATOR}"]

[users.{_quoted(owner)}]
groups = ["home"]

[sites.{_quoted(site)}]

[ces.local]
site = {_quoted(site)}
type = "local"
owners = "home"
"""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
    }
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for prefix, table in tables.items():
        for field in msgspec.structs.fields(table):
            key = f"{prefix}.{field.name}"
            default = "(needed)" if field.required else f"`{_shown(field.default)}`"
            lines.append(f"| `{key}` | {_type_name(field.type)} | {default} | {KEYS[key]} |")
    lines.append(f"| `platforms.*` | list of texts | `[]` | {KEYS['platforms.*']} |")
    return "\n".join(lines)


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
