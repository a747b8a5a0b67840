"""Parser of policies; errors carry the line and, for unknown keys, the nearest known name."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pilotage.core.errors import InvalidInput
from pilotage.core.key_lines import check_shape, line_of
from pilotage.core.pilots.wall_time import cpu_time_of_new_pilot, kept, wall_for
from pilotage.core.plug_ins import unusable_in
from pilotage.core.policy import toml
from pilotage.core.policy.budget import parse_budget, pilot_cost
from pilotage.core.policy.ce_names import PLAIN_CHARACTERS, is_plain
from pilotage.core.policy.cpu_normalization import with_normalized_cpu
from pilotage.core.policy.director import SubmitPool
from pilotage.core.policy.isolation import ISOLATED_TAG
from pilotage.core.policy.model import ADMINISTRATOR, AGENT, GENERIC_PILOT, Ce, NamedInstance, Policy
from pilotage.core.policy.toml_edit import value_at
from pilotage.core.policy.validation import validate
from pilotage.core.setting import keys_of
from pilotage.core.shares.priorities import scaled_range

KEYS: dict[str, str] = {key.name: key.setting.meaning for key in keys_of(Policy)}
"""Meaning and unit of every key, from the annotations of the tables; `*` stands for a name."""

NODE_TAGS = frozenset({"GPU", "apptainer", "userns", ISOLATED_TAG})
"""Tags that a pilot detects on its node, independent of the tags of its CE in the policy."""


def parse(text: str) -> Policy:
    """The policy of a text; raises `InvalidInput` with line and reason."""
    plain = parse_toml(text)
    try:
        try:
            policy = msgspec.convert(plain, Policy)
        except msgspec.ValidationError as error:
            raise _translate_error(str(error), text, plain) from None
        validate(policy, text)
    except InvalidInput as error:
        if unusable := unusable_in(text):
            error.hint = f"{error.hint}; {unusable}" if error.hint else unusable
        raise
    return with_normalized_cpu(policy)


def parse_toml(text: str, document: str = "the policy") -> dict[str, Any]:
    """The tables of a TOML document, which need not be a valid policy. `document`: its name in errors."""
    check_shape(text, document)
    try:
        text.encode()
        return tomllib.loads(text)
    except UnicodeEncodeError:
        raise InvalidInput(f"{document} is not valid TOML: it contains lone surrogates") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        # Without a position the error is at the end of the document.
        line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, None)
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise InvalidInput(f"{document} is not valid TOML: {reason}", line=line, column=column) from None
    except (RecursionError, ValueError):
        raise InvalidInput(f"{document} is not valid TOML: a number is too long") from None


def warnings(policy: Policy) -> list[str]:
    """Warnings about allowed settings with surprising effects."""
    messages = []
    if not any(ADMINISTRATOR in policy.properties(user, group) for user, group in _memberships(policy)):
        messages.append(
            f"no user is in a group with {ADMINISTRATOR}: nobody could change this policy any more after it is applied"
        )
    for name, ce in policy.ces.items():
        if ce.owners == "any" and ce.isolation != "require":
            where = "this machine" if ce.type == "local" else "the nodes of its batch system"
            messages.append(
                f'ces.{name}: owners = "any" lets every user of the policy run programs on {where} under the'
                " account of the server. They can read and change all files of this account, including the"
                " files and keys of this server. Use it only among people who trust each other. The cure is"
                f' ces.{name}.isolation = "require": pilots then isolate payloads from the account and each other.'
            )
    messages += [
        f"ces.{toml.key(name)}: the name needs quotes in every command; plain ones have {PLAIN_CHARACTERS}"
        for name in policy.ces
        if not is_plain(name)
    ]
    messages += _unusable_ces(policy)
    messages += _short_walls(policy)
    messages += _small_budgets(policy)
    messages += _idle_pool_settings(policy)
    messages += _group_warnings(policy)
    messages += [
        f"{corrector} {name}: {text}"
        for corrector, name, instance in policy.correction.instances
        for text in instance.warnings()
    ]
    return messages


def _group_warnings(policy: Policy) -> Iterator[str]:
    """Warnings about groups whose members can do less than their settings say."""
    populated = {group for user in policy.users.values() for group in user.groups}
    for name, group in policy.groups.items():
        if not group.share:
            yield f"groups.{name}: with share 0, its jobs start only where no job of another group fits"
        if name not in populated:
            yield f"groups.{name} has no users"
        if AGENT in group.properties and not group.teams:
            yield f"groups.{name} has the property {AGENT}, but without `teams` its members may run no agent"
    if unused := [name for name, group in policy.groups.items() if GENERIC_PILOT in group.properties]:
        yield (
            f"property {GENERIC_PILOT} ({_shortened(unused)}) is stored for the director of batch systems,"
            " but has no effect yet"
        )


def _unusable_ces(policy: Policy) -> Iterator[str]:
    """Warnings about local CEs that require tags which they do not offer."""
    for name, ce in policy.ces.items():
        missing = sorted(set(ce.required_tags) - set(ce.tags) - NODE_TAGS)
        if ce.type == "local" and missing:
            yield (
                f"ces.{name}: required_tags has {_shortened(missing)}, but tags has not: no job can start there,"
                " because the CE refuses jobs without the tag and does not offer it to jobs with the tag"
            )


def _short_walls(policy: Policy) -> Iterator[str]:
    """Warnings about CEs where a CPU bucket fits the wall time, but not the part of it that is left for jobs."""
    buckets = policy.matching.cpu_buckets
    for name, ce in policy.ces.items():
        left = cpu_time_of_new_pilot(ce.wall, ce.cpu_power)
        unmet = next((bucket for bucket in buckets if bucket > left), None)
        if too_short := short_wall(policy, ce):
            yield f"ces.{name}: {too_short}"
        elif unmet is not None and unmet <= ce.wall * ce.cpu_power:
            yield f"ces.{name}: {_describe_wall(ce, unmet, f'jobs of the CPU bucket {unmet} s do not fit')}"


def short_wall(policy: Policy, ce: Ce) -> str:
    """Why no job ever fits the pilots of a CE, if their wall time is too short; else empty."""
    smallest = policy.matching.cpu_buckets[0]
    if cpu_time_of_new_pilot(ce.wall, ce.cpu_power) >= smallest:
        return ""
    return _describe_wall(ce, smallest, "no job fits")


def _describe_wall(ce: Ce, unmet: float, effect: str) -> str:
    return (
        f"wall = {ce.wall:g} leaves {cpu_time_of_new_pilot(ce.wall, ce.cpu_power):g} s of CPU time for jobs, because"
        f" {kept(ce.wall):g} s are reserved for the start and end of a pilot: {effect};"
        f" wall = {wall_for(unmet, ce.cpu_power)} is enough"
    )


def _small_budgets(policy: Policy) -> Iterator[str]:
    """Warnings about CEs whose budget allows no pilot."""
    for name, ce in policy.ces.items():
        pilot = pilot_cost(ce.pilot_processors, ce.wall)
        if ce.budget and parse_budget(ce.budget).core_seconds < pilot:
            yield (
                f"ces.{name}: the budget {ce.budget!r} is smaller than the {pilot / 3600:.6g} core-h that one pilot"
                " may use: no pilot is ever submitted; shorten wall, or raise the budget"
            )


def _idle_pool_settings(policy: Policy) -> Iterator[str]:
    """Warnings about settings of submit pools that change nothing."""
    for name, pool in policy.director.pools.items():
        if not policy.director.is_handled(name):
            if elsewhere := pool.changed_keys(besides=("enabled", "handled", "CPUNormalization")):
                yield (
                    f"director.pools.{name}: {', '.join(elsewhere)} without effect: another director submits its"
                    " pilots"
                )
            continue
        if pool.min_threads:
            yield (
                f"director.pools.{name}: minThreadsInPool has no effect: each CE has one thread of its own, which"
                " starts with the first call and stays"
            )
        if pool.rank != SubmitPool().rank and not pool.enable_list_match:
            yield f"director.pools.{name}: Rank has no effect without EnableListMatch = true"


def _memberships(policy: Policy) -> Iterator[tuple[str, str]]:
    return ((name, group) for name, user in policy.users.items() for group in user.groups)


def _shortened(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def known_properties(policy: Policy) -> list[str]:
    """Properties of the draw rule and the corrections in force (docs/reference/rules.md, section 3)."""
    if policy.matching.rule == "proportional":
        texts = ["rule proportional: the chance of a queue that fits is its part of the sum of priorities"]
        if not any(instance.settings.reaches_shares for instance in policy.correction.instances):
            texts.append(
                "without a correction of form integral, shares apply to started jobs: groups with longer jobs get more"
                " than their share of the running jobs"
            )
        return [*texts, *_instance_properties(policy)]
    return [
        "rule dirac: the draw is not proportional to priority: of the priorities 1 and 3 the second gets .833, not"
        " .75. A group with many queues gets less than a group with one queue: 20 queues of priority 1 against one of"
        " priority 20 get .372, not .5",
        "rule dirac: among the queues that fit a node, the highest CPU bucket goes first: shares apply only within a"
        " bucket, and short jobs wait as long as longer jobs keep arriving",
        'matching.rule = "proportional" draws in proportion to priority, over all CPU buckets that fit',
        *_instance_properties(policy),
    ]


def _instance_properties(policy: Policy) -> Iterator[str]:
    """Properties of each instance, then of all instances between the same entities."""
    for corrector, name, instance in policy.correction.instances:
        yield from (f"{corrector} {name}: {text}" for text in instance.properties())
    for group in dict.fromkeys(instance.settings.group for instance in policy.correction.instances):
        yield from _combined_properties(
            group, [instance for instance in policy.correction.instances if instance.settings.group == group]
        )


def _combined_properties(group: str, instances: Sequence[NamedInstance]) -> Iterator[str]:
    """The range of the product of all factors; `instances` correct between the same entities."""
    ranges = [instance.settings.correction_range for instance in instances]
    lowest, highest = math.prod(low for low, _ in ranges), math.prod(high for _, high in ranges)
    names = ", ".join(f"{instance.corrector} {instance.name}" for instance in instances)
    if len(instances) > 1:
        whom = f"the owners of {group}" if group else "the groups"
        yield (
            f"{names} correct between {whom}: the product of their factors lies between {lowest:.3g} and {highest:.3g}"
        )
    if group:
        two, ten = (scaled_range(lowest, highest, owners) for owners in (2, 10))
        yield (
            f"{names}: the bounds apply to each owner's correction before the owners of {group} are scaled to add up"
            f" to its share. A correction lies between {lowest:.3g} and {highest:.3g}, so two owners differ by at most"
            f" a factor of {highest / lowest:.3g}. Relative to equal parts, one of 2 owners gets between {two[0]:.3g}"
            f" and {two[1]:.3g}, and one of 10 between {ten[0]:.3g} and {ten[1]:.3g}, never more than"
            f" {highest / lowest:.3g}"
        )


def _translate_error(message: str, text: str, plain: dict[str, Any]) -> InvalidInput:
    """The error of msgspec in TOML's terms, with the line, and the nearest known name for an unknown key."""
    reason, _, path = message.partition(" - at `")
    keys = _resolve_names(re.findall(r"[^.\[\]`$]+|\.{3}", path), plain, message)
    unknown = re.search(r"unknown field `(\w+)`", reason)
    if unknown:
        line = line_of(text, [*keys, unknown[1]])
        hint = hint_for_key(unknown[1], keys)
        return InvalidInput(f"unknown key {unknown[1]}", hint=hint, line=line, field=unknown[1])
    where = ".".join(keys)
    missing = re.search(r"required field `(\w+)`", reason)
    if missing:
        reason = f"the {f'table [{missing[1]}]' if not where else f'key {missing[1]}'} is missing"
    reason = in_words_of_toml(reason)
    hint = _renamed(where, value_at(plain, tuple(keys))) or _meaning(keys)
    if missing and not where:
        hint = "`pilotage policy init` writes a policy to start with"
    line = line_of(text, keys)
    return InvalidInput(f"{where or 'the policy'}: {reason}", hint=hint, line=line, field=where or None)


MOST_TABLES = 3
"""Tables that a hint names."""

_RENAMED = {("matching.rule", "document"): "dirac", ("director.demand", "document"): "dirac"}
"""Values that had another name before, by key."""


def _renamed(key: str, value: Any) -> str:
    """The hint for a former name of a value; empty: it is none."""
    new = _RENAMED.get((key, value)) if isinstance(value, str) else None
    return f'"{value}" is called "{new}" now' if new else ""


TYPE_NAMES = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "datetime": "a date",
}


def in_words_of_toml(reason: str) -> str:
    """Replaces msgspec's "Expected `float`, got `str`" by TOML's terms."""
    types = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", reason)
    if types is None:
        return reason[:1].lower() + reason[1:]
    wanted = " or ".join(TYPE_NAMES.get(name.strip(), name.strip()) for name in types[1].split("|"))
    return f"must be {wanted}, not {TYPE_NAMES.get(types[2], types[2])}"


def hint_for_key(unknown: str, keys: Sequence[str]) -> str:
    """The key that a person may have meant by `unknown` below `keys`, or the table where it belongs."""
    here = sorted(_keys_below(keys))
    if near := difflib.get_close_matches(unknown, here, 1):
        return f"did you mean {near[0]}?"
    tables: dict[str, list[str]] = {}
    for key in KEYS:
        table, _, name = key.rpartition(".")
        tables.setdefault(name, []).append(
            f"[{table.replace('*', 'NAME')}]" if table else "the top of the policy"
        )
    if unknown in tables:
        return f"it belongs to {' or '.join(sorted(tables[unknown])[:MOST_TABLES])}"
    if near := difflib.get_close_matches(unknown, sorted(tables), 1):
        return f"did you mean {near[0]} of {sorted(tables[near[0]])[0]}?"
    return f"known here: {', '.join(here)}"


def _keys_below(keys: Sequence[str]) -> set[str]:
    """The known keys below `keys`."""
    patterns = [key.split(".") for key in KEYS]
    return {
        pattern[len(keys)]
        for pattern in patterns
        if len(pattern) > len(keys)
        and all(part in ("*", key) for part, key in zip(pattern, keys, strict=False))
        and pattern[len(keys)] != "*"
    }


def _meaning(keys: Sequence[str]) -> str:
    """The meaning of the key at `keys`; "" if it is not a key."""
    for name, meaning in KEYS.items():
        pattern = name.split(".")
        if len(pattern) == len(keys) and all(p in ("*", k) for p, k in zip(pattern, keys, strict=True)):
            return f"{pattern[-2] if pattern[-1] == '*' else pattern[-1]}: {meaning}"
    return ""


def _resolve_names(keys: list[str], plain: dict[str, Any], message: str) -> list[str]:
    """`keys` with the names of entries in place of "...", which msgspec reports for keys of dictionaries."""
    while "..." in keys:
        place = keys.index("...")
        entries: Any = plain
        for key in keys[:place]:
            entries = entries[int(key)] if isinstance(entries, list) else entries[key]
        name = _first_refused(plain, keys[:place], entries, message)
        keys = keys[:place] if name is None else [*keys[:place], name, *keys[place + 1 :]]
        plain = plain if name is None else _with_table(plain, keys[:place], {name: entries[name]})
    return keys


def _first_refused(
    plain: dict[str, Any], keys: list[str], entries: dict[str, Any], message: str
) -> str | None:
    """The first entry of the table at `keys` that causes the error `message`, by halving; None: there is none."""
    names = list(entries)
    while len(names) > 1:
        half = names[: len(names) // 2]
        tried = _with_table(plain, keys, {name: entries[name] for name in half})
        names = half if _message_of(tried) == message else names[len(half) :]
    alone = _with_table(plain, keys, {name: entries[name] for name in names})
    return names[0] if names and _message_of(alone) == message else None


def _with_table(tables: Any, keys: list[str], table: dict[str, Any]) -> Any:
    """`tables` with another table at `keys`."""
    if not keys:
        return table
    key, *below = keys
    if isinstance(tables, list):
        place = int(key)
        return [*tables[:place], _with_table(tables[place], below, table), *tables[place + 1 :]]
    return {**tables, key: _with_table(tables[key], below, table)}


def _message_of(plain: dict[str, Any]) -> str:
    """The first error of msgspec; "" if there is none."""
    try:
        msgspec.convert(plain, Policy)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
