"""The information of a CE that counts: the batch system's facts, completed and overridden by the policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pilotage.core.brokering.ce_ad import FUTURE_TOLERANCE
from pilotage.core.brokering.host_classes import flattened
from pilotage.core.brokering.host_values import host_values
from pilotage.core.glue import schema as glue
from pilotage.core.glue.information import CeInformation, HostClass, Value, number_of
from pilotage.core.glue.schema import is_of_hosts
from pilotage.core.plurals import plural
from pilotage.core.policy import Ce, Policy

_DYNAMIC_OWN: Final = frozenset({"unavailablehosts"})


@dataclass(frozen=True, slots=True)
class PublishedInformation:
    """The information of a CE, and why a part of it is unknown."""

    information: CeInformation
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedHosts:
    """The host classes of a CE with the values that the policy reads out of native names."""

    classes: tuple[HostClass, ...]
    least: Mapping[str, Value]
    """The common denominator of the attributes of hosts."""
    problems: tuple[str, ...] = ()


def publish_hosts(ce: Ce, live: tuple[HostClass, ...]) -> PublishedHosts:
    """The host classes of a CE. `live`: as its batch system told them."""
    classes, problems = _classes(ce, live)
    least = {key: value for key, value in flattened(classes).items() if is_of_hosts(key)}
    return PublishedHosts(classes, least, problems)


def is_usable(live: CeInformation, now: float) -> bool:
    """Whether the facts have neither expired, nor come from the future."""
    return live.is_current(now) and live.updated <= now + FUTURE_TOLERANCE


def publish(
    policy: Policy, name: str, live: CeInformation, hosts: PublishedHosts, *, current: bool, home_owner: str
) -> PublishedInformation:
    """The information of a CE of the policy.

    `live`: the last facts of its batch system. `current`: as `is_usable`. Facts that change all the time are left out
    unless they are current; the others hold until the next answer.
    """
    ce = policy.ces[name]
    names = _Names()
    attributes: dict[str, Value] = {}
    for source in (
        _of_policy(policy, name, home_owner),
        {key: value for key, value in live.attributes.items() if current or not is_dynamic(key)},
        hosts.least,
        _limits(ce, live.attributes),
        ce.attributes,
    ):
        attributes |= {names.spelled(key): value for key, value in source.items()}
    homogeneous = ce.homogeneous or (live.homogeneous and not ce.hosts)
    information = CeInformation(attributes, hosts.classes, homogeneous, live.updated, live.expiry)
    return PublishedInformation(information, hosts.problems)


def is_dynamic(name: str) -> bool:
    """Whether an attribute changes all the time, so that it is unknown once it has expired."""
    return glue.is_dynamic(name) or name.lower() in _DYNAMIC_OWN


class _Names:
    """One spelling of each name: ClassAds compare names without regard to case."""

    def __init__(self) -> None:
        self._spellings: dict[str, str] = {}

    def spelled(self, name: str) -> str:
        return self._spellings.setdefault(name.lower(), name)


def _classes(ce: Ce, live: tuple[HostClass, ...]) -> tuple[tuple[HostClass, ...], tuple[str, ...]]:
    """The host classes, with the values that native names of hosts stand for, and the problems of these."""
    if ce.hosts:
        return tuple(HostClass(entry.size, entry.attributes, entry.hosts) for entry in ce.hosts), ()
    of_all = {key: value for key, value in ce.attributes.items() if ce.homogeneous and is_of_hosts(key)}
    rules = ce.forward_table.with_rules(ce.forward)
    classes, problems = [], []
    for host_class in live:
        values, mistakes = host_values(host_class.attributes, rules) if rules else ({}, [])
        problems += [f"{_hosts_text(host_class)}: {mistake}, so it is unknown there" for mistake in mistakes]
        attributes = {**host_class.attributes, **values, **of_all}
        classes.append(replace(host_class, attributes=attributes) if values or of_all else host_class)
    return tuple(classes), tuple(problems)


def _hosts_text(host_class: HostClass) -> str:
    more = f" and {host_class.count - 1} more" if host_class.count > 1 else ""
    return f"host {host_class.hosts[0]}{more}" if host_class.hosts else plural(host_class.count, "host")


def _of_policy(policy: Policy, name: str, home_owner: str) -> dict[str, Value]:
    """The facts about a CE that the rest of the policy tells."""
    ce = policy.ces[name]
    attributes: dict[str, Value] = {
        "GlueCEUniqueID": name,
        "GlueSiteUniqueID": ce.site,
        "GlueSiteName": ce.site,
        "GlueCEInfoLRMSType": ce.type,
    }
    if rule := _access_rule(policy, ce, home_owner):
        attributes["GlueCEAccessControlBaseRule"] = rule
    return attributes


def _access_rule(policy: Policy, ce: Ce, home_owner: str) -> tuple[str, ...]:
    """Who may use the CE. Empty: not told, since some group that may use it has no VO."""
    if not ce.serves_everybody:
        user = policy.users.get(home_owner)
        return ((user.subject if user is not None else "") or home_owner,)
    vos: Collection[str] = {group.vo for group in policy.groups.values()}
    return () if "" in vos else tuple(f"VO:{vo}" for vo in sorted(vos))


def _limits(ce: Ce, live: Mapping[str, Value]) -> dict[str, Value]:
    """The longest job: pilots end after the wall time of the policy, if the batch system allows that much.

    CPU time is that of one core. Without a limit of its own it is the wall time.
    """
    wall = _least(ce.wall, live.get("GlueCEPolicyMaxWallClockTime"))
    return {
        "GlueCEPolicyMaxWallClockTime": wall,
        "GlueCEPolicyMaxCPUTime": _least(wall, live.get("GlueCEPolicyMaxCPUTime")),
    }


def _least(seconds: float, limit: Value | None) -> int:
    number = number_of(limit)
    return int(seconds if number is None else min(seconds, number))
