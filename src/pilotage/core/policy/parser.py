"""From text to policy, or to an error with its line and the nearest right name."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pilotage.core.errors import InvalidInput
from pilotage.core.pilots.wall_time import cpu_time_of_new_pilot, kept, wall_for
from pilotage.core.policy.key_lines import check_shape, line_of
from pilotage.core.policy.model import ADMINISTRATOR, GENERIC_PILOT, NamedInstance, Policy
from pilotage.core.policy.reference import KEYS
from pilotage.core.policy.validation import check
from pilotage.core.shares.priorities import scaled_range

NODE_TAGS = frozenset({"GPU", "apptainer", "userns"})
"""Tags that a pilot finds out of its node by itself, whatever the policy says of its CE."""


def parse(text: str) -> Policy:
    """The policy that `text` says, or `InvalidInput` with line and reason."""
    plain = plain_of(text)
    try:
        policy = msgspec.convert(plain, Policy)
    except msgspec.ValidationError as error:
        raise _explained(str(error), text, plain) from None
    check(policy, text)
    return policy


def plain_of(text: str) -> dict[str, Any]:
    """The tables of a document that is TOML, whether it is a policy or not."""
    check_shape(text)
    try:
        text.encode()
        return tomllib.loads(text)
    except UnicodeEncodeError:
        raise InvalidInput(
            "the policy is not TOML: it has lone surrogates, which are no characters"
        ) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        # Else it says "at end of document".
        line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, None)
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise InvalidInput(f"the policy is not TOML: {reason}", line=line, column=column) from None
    except (RecursionError, ValueError):
        raise InvalidInput("the policy is not TOML that can be read: a number is too long") from None


def warnings(policy: Policy) -> list[str]:
    """What is allowed, but should be known."""
    said = []
    if not any(ADMINISTRATOR in policy.properties(user, group) for user, group in _memberships(policy)):
        said.append(
            f"no user is in a group with {ADMINISTRATOR}: once this policy is in force, nobody can change it any more"
        )
    for name, ce in policy.ces.items():
        if ce.owners == "any":
            said.append(
                f'ces.{name}: owners = "any" lets every user of the policy run programs on this machine under the'
                " account of the server: they can read and change all that this account can, this server's own"
                " files and keys included. Use it only among people who trust each other."
            )
    said += _serving_nobody(policy)
    said += _too_short(policy)
    populated = {group for user in policy.users.values() for group in user.groups}
    for name, group in policy.groups.items():
        if not group.share:
            said.append(f"groups.{name}: with share 0 its jobs start only where nobody else's fit")
        if name not in populated:
            said.append(f"groups.{name} has no users")
    said += [
        f"{corrector} {name}: {text}"
        for corrector, name, instance in policy.correction.instances
        for text in instance.warnings()
    ]
    unread = {
        "groups.*.vo": [name for name, group in policy.groups.items() if group.vo],
        f"property {GENERIC_PILOT}": [n for n, g in policy.groups.items() if GENERIC_PILOT in g.properties],
        "users.*.subject": [name for name, user in policy.users.items() if user.subject],
    }
    said += [
        f"{what} ({_some(names)}) is kept for the director; nothing reads it yet"
        for what, names in unread.items()
        if names
    ]
    return said


def _serving_nobody(policy: Policy) -> Iterator[str]:
    """Local CEs that require tags which nothing there offers."""
    for name, ce in policy.ces.items():
        missing = sorted(set(ce.required_tags) - set(ce.tags) - NODE_TAGS)
        if ce.type == "local" and missing:
            yield (
                f"ces.{name}: required_tags has {_some(missing)}, tags has not: a job without is refused by the CE, and"
                " a job with it refuses the CE, so that it serves nobody"
            )


def _too_short(policy: Policy) -> Iterator[str]:
    """CEs whose wall time reaches a CPU bucket, while what pilots have left of it for jobs does not."""
    for name, ce in policy.ces.items():
        left = cpu_time_of_new_pilot(ce.wall, ce.cpu_power)
        buckets = policy.matching.cpu_buckets
        unmet = next((bucket for bucket in buckets if bucket > left), None)
        if unmet is not None and (left < buckets[0] or unmet <= ce.wall * ce.cpu_power):
            whose = "no job fits" if left < buckets[0] else f"jobs of the CPU bucket {unmet} s do not fit"
            yield (
                f"ces.{name}: wall = {ce.wall:g} leaves {left:g} s of CPU time for jobs, since pilots keep"
                f" {kept(ce.wall):g} s for their start and end: {whose};"
                f" wall = {wall_for(unmet, ce.cpu_power)} would do"
            )


def _memberships(policy: Policy) -> Iterator[tuple[str, str]]:
    return ((name, group) for name, user in policy.users.items() for group in user.groups)


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def known_properties(policy: Policy) -> list[str]:
    """Properties of the draw rule in force that one must know. See docs/reference/rules.md, section 3."""
    if policy.matching.rule == "proportional":
        said = ["rule proportional: each queue that fits is drawn by its priority's part of the whole"]
        if not any(instance.settings.reaches_shares for instance in policy.correction.instances):
            said.append(
                "without a correction of form integral, shares hold of what is started: groups with longer jobs get"
                " more than their share of the running ones"
            )
        return [*said, *_of_instances(policy)]
    return [
        "rule document: the draw is not proportional to priority (of 1 and 3 the second gets .833, not .75), and a"
        " group whose share is spread over many queues gets less than one with a single queue (20 of 1 against one of"
        " 20: .372, not .5)",
        "rule document: of the queues that fit a node those of the highest CPU bucket go first: shares hold within a"
        " bucket only, and short jobs wait for as long as longer ones keep coming",
        'matching.rule = "proportional" has neither property',
        *_of_instances(policy),
    ]


def _of_instances(policy: Policy) -> Iterator[str]:
    """Properties of the corrections, instance by instance, then between the same entities."""
    for corrector, name, instance in policy.correction.instances:
        yield from (f"{corrector} {name}: {text}" for text in instance.properties())
    for group in dict.fromkeys(instance.settings.group for instance in policy.correction.instances):
        yield from _together(
            group, [one for one in policy.correction.instances if one.settings.group == group]
        )


def _together(group: str, instances: Sequence[NamedInstance]) -> Iterator[str]:
    """The range of the factors of all `instances`, which correct between the same entities."""
    ranges = [instance.settings.correction_range for instance in instances]
    lowest, highest = math.prod(low for low, _ in ranges), math.prod(high for _, high in ranges)
    names = ", ".join(f"{instance.corrector} {instance.name}" for instance in instances)
    if len(instances) > 1:
        whom = f"the owners of {group}" if group else "the groups"
        yield (
            f"{names} correct between {whom}: their factors multiply, to between {lowest:.3g} and {highest:.3g}"
        )
    if group:
        two, ten = (scaled_range(lowest, highest, owners) for owners in (2, 10))
        yield (
            f"{names}: bounds hold for each owner's correction before the owners of {group} are scaled to add up to"
            f" its share. A correction lies between {lowest:.3g} and {highest:.3g}; so two owners differ by at most a"
            f" factor of {highest / lowest:.3g}, and of an equal part one of 2 owners gets between {two[0]:.3g} and"
            f" {two[1]:.3g}, one of 10 between {ten[0]:.3g} and {ten[1]:.3g}, and never more than"
            f" {highest / lowest:.3g}"
        )


def _explained(message: str, text: str, plain: dict[str, Any]) -> InvalidInput:
    """The words of msgspec with the line, and the nearest right name for an unknown key."""
    reason, _, path = message.partition(" - at `")
    keys = _named(re.findall(r"[^.\[\]`$]+|\.{3}", path), plain)
    unknown = re.search(r"unknown field `(\w+)`", reason)
    if unknown:
        line = line_of(text, [*keys, unknown[1]])
        here = sorted(_below(keys))
        anywhere = {part for key in KEYS for part in key.split(".") if part != "*"}
        near = difflib.get_close_matches(unknown[1], here, 1) or difflib.get_close_matches(
            unknown[1], sorted(anywhere), 1
        )
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(here)}"
        return InvalidInput(f"unknown key {unknown[1]}", hint=hint, line=line, field=unknown[1])
    where = ".".join(keys)
    missing = re.search(r"required field `(\w+)`", reason)
    if missing:
        reason = f"{'it has' if where else 'there is'} no {f'[{missing[1]}]' if not where else missing[1]}"
    reason = _plain_words(reason)
    hint = _meaning(keys)
    if missing and not where:
        hint = "`pilotage policy init` writes one to begin with"
    line = line_of(text, keys)
    return InvalidInput(f"{where or 'the policy'}: {reason}", hint=hint, line=line, field=where or None)


WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "datetime": "a date",
}


def _plain_words(reason: str) -> str:
    """In the words of TOML: msgspec says "Expected `float`, got `str`"."""
    types = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", reason)
    if types is None:
        return reason[:1].lower() + reason[1:]
    wanted = " or ".join(WORDS.get(one.strip(), one.strip()) for one in types[1].split("|"))
    return f"must be {wanted}, not {WORDS.get(types[2], types[2])}"


def _below(keys: Sequence[str]) -> set[str]:
    """The keys that a policy may have below `keys`."""
    patterns = [key.split(".") for key in KEYS]
    return {
        pattern[len(keys)]
        for pattern in patterns
        if len(pattern) > len(keys)
        and all(part in ("*", key) for part, key in zip(pattern, keys, strict=False))
        and pattern[len(keys)] != "*"
    }


def _meaning(keys: Sequence[str]) -> str:
    """What the key at `keys` means, if it is one."""
    for name, meaning in KEYS.items():
        pattern = name.split(".")
        if len(pattern) == len(keys) and all(p in ("*", k) for p, k in zip(pattern, keys, strict=True)):
            return f"{pattern[-1]}: {meaning}"
    return ""


def _named(keys: list[str], plain: dict[str, Any]) -> list[str]:
    """`keys` with the names of entries: msgspec tells the key of a structure, but "..." for that of a dictionary."""
    while "..." in keys:
        place = keys.index("...")
        entries: dict[str, Any] = plain
        for key in keys[:place]:
            entries = entries[key]
        plain, keys = next(
            (
                (alone, [*keys[:place], name, *keys[place + 1 :]])
                for name, entry in entries.items()
                if not _converts(alone := _nested(keys[:place], {name: entry}))
            ),
            (plain, keys[:place]),
        )
    return keys


def _nested(keys: list[str], value: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    return {"groups": {}, "users": {}, **value}


def _converts(plain: dict[str, Any]) -> bool:
    try:
        msgspec.convert(plain, Policy)
    except msgspec.ValidationError:
        return False
    return True
