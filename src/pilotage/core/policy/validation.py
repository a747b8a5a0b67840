"""Validation of a policy: conditions between its tables, and ranges of its values."""

from __future__ import annotations

import math
import posixpath
import re

from pilotage.core.classads import parse_expression
from pilotage.core.errors import InvalidInput
from pilotage.core.folders import folder_mistake
from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.core.policy.bounds import first_violation
from pilotage.core.policy.budget import parse_budget
from pilotage.core.policy.ce_model import Ce
from pilotage.core.policy.ce_names import PLAIN_CHARACTERS, mistake_in_name
from pilotage.core.policy.cpu_normalization import STATIC_ATTRIBUTES, normalized_cpu_power
from pilotage.core.policy.isolation import visible_path
from pilotage.core.policy.model import PROPERTIES, Jobs, Policy
from pilotage.core.policy.outside_validation import (
    check_batch_options,
    check_catalogues,
    check_issuers,
    check_mail,
    check_storage,
)
from pilotage.core.policy.partitions import check_partitions
from pilotage.core.policy.refuser import Refuser, known_names
from pilotage.core.policy.requests import MAX_BANDS
from pilotage.core.queues.limits import ATTRIBUTES
from pilotage.core.shares.corrector import CorrectorInstance
from pilotage.core.shares.correctors import CORRECTORS
from pilotage.core.shares.use import HOURS_KEPT

_PROXY = re.compile(r"http://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}/?")

_NO_STORAGE = frozenset({"/", "//", "/proc", "/dev", "/sys"})


def validate(policy: Policy, text: str) -> None:
    """Raise `InvalidInput` with its line for the first contradiction or value out of range."""
    refuse = Refuser(text)
    _check_people(policy, refuse)
    _check_sites(policy, refuse)
    _check_places(policy, refuse)
    check_partitions(policy, refuse)
    check_batch_options(policy, refuse)
    check_catalogues(policy, refuse)
    check_issuers(policy, refuse)
    check_mail(policy, refuse)
    check_storage(policy, refuse)
    _check_limits(policy, refuse)
    _check_director(policy, refuse)
    _check_jobs(policy.jobs, refuse)
    _check_correction(policy, refuse)
    _check_retention(policy, refuse)
    _check_requests(policy, refuse)
    for buckets in ("cpu_buckets", "memory_buckets", "disk_buckets"):
        values = getattr(policy.matching, buckets)
        if not values or list(values) != sorted(set(values)) or values[0] <= 0:
            refuse(f"matching.{buckets} must be a list of increasing numbers above 0", "matching", buckets)
    violation = first_violation(policy)
    if violation is not None:
        reason, keys = violation
        refuse(reason, *keys)


def _check_people(policy: Policy, refuse: Refuser) -> None:
    if policy.groups and not any(group.share for group in policy.groups.values()):
        hint = "give at least one group a share above 0"
        refuse("all shares are 0, so no group would be entitled to anything", "groups", hint=hint)
    for name, group in policy.groups.items():
        if not 0 <= group.share < float("inf"):
            refuse(f"the share of group {name} must be a finite number, at least 0", "groups", name, "share")
        for unknown in sorted(set(group.properties) - set(PROPERTIES)):
            known = f"known: {', '.join(PROPERTIES)}"
            refuse(f"group {name}: unknown property {unknown}", "groups", name, "properties", hint=known)
    if not math.isfinite(sum(group.share for group in policy.groups.values())):
        refuse(
            "the sum of all shares is too large", "groups", hint="use smaller numbers: only the ratios count"
        )
    for name, user in policy.users.items():
        if not user.groups:
            refuse(f"user {name} is in no group", "users", name, "groups", hint="name at least one group")
        for missing in (group for group in user.groups if group not in policy.groups):
            refuse(
                f"user {name}: there is no group {missing}",
                "users",
                name,
                "groups",
                hint=known_names(policy.groups),
            )


def _check_sites(policy: Policy, refuse: Refuser) -> None:
    for name, site in policy.sites.items():
        for user in (user for user in site.administrators if user not in policy.users):
            reason = f"site {name}: there is no user {user}"
            refuse(reason, "sites", name, "administrators", hint=known_names(policy.users))
        for path in site.storage:
            if path not in policy.storage and (
                not path.startswith("/") or posixpath.normpath(path) in _NO_STORAGE
            ):
                reason = f"site {name}: {path!r} cannot be a storage place"
                hint = "name an absolute path, such as /data/pilotage, or a table `storage.NAME`"
                refuse(reason, "sites", name, "storage", hint=hint)


def _check_places(policy: Policy, refuse: Refuser) -> None:
    for name, ce in policy.ces.items():
        if reason := mistake_in_name(name):
            hint = f"use {PLAIN_CHARACTERS}"
            refuse(f"the name {name[:80]!r} of a CE {reason}", "ces", name, hint=hint)
        if ce.site not in policy.sites:
            refuse(
                f"CE {name}: there is no site {ce.site}", "ces", name, "site", hint=known_names(policy.sites)
            )
        for path in map(visible_path, ce.visible):
            if not path.startswith("/") or posixpath.normpath(path) in ("/", "//", "/proc", "/dev"):
                reason = f"CE {name}: {path!r} cannot be made visible"
                refuse(
                    reason, "ces", name, "visible", hint="name an absolute path, such as /data or /data:rw"
                )
        _check_shared_folders(name, ce.shared_folders, refuse)
        for key in ("lease", "heartbeat", "cpu_power", "wall", "quantum"):
            if not 0 < getattr(ce, key) < math.inf:
                refuse(f"CE {name}: {key} must be a finite number above 0", "ces", name, key)
        if ce.heartbeat * 3 > ce.lease:
            refuse(
                f"CE {name}: the lease must be at least three heartbeats ({3 * ce.heartbeat:g} s)",
                "ces",
                name,
                "lease",
            )
        _check_budget(policy, name, refuse)
        for key in ("processors", "memory", "idle"):
            if not 0 <= getattr(ce, key) < math.inf:
                refuse(f"CE {name}: {key} must be a finite number, at least 0", "ces", name, key)
        if ce.proxy and not _PROXY.fullmatch(ce.proxy):
            hint = "leave out the user and the password: batch scripts would show them"
            refuse(f"CE {name}: the proxy is not http://HOST:PORT", "ces", name, "proxy", hint=hint)


def _check_shared_folders(name: str, folders: tuple[str, ...], refuse: Refuser) -> None:
    for folder in folders:
        if reason := folder_mistake(folder):
            refuse(f"CE {name}: the shared folder {folder!r} {reason}", "ces", name, "shared_folders")
    if len(set(folders)) < len(folders):
        refuse(f"CE {name}: shared_folders names a folder twice", "ces", name, "shared_folders")


def _check_budget(policy: Policy, name: str, refuse: Refuser) -> None:
    text = policy.ces[name].budget
    if not text:
        return
    try:
        budget = parse_budget(text)
    except InvalidInput as error:
        refuse(f"CE {name}: {error}", "ces", name, "budget", hint=error.hint)
        return
    kept = policy.attempt_retention()
    if budget.window > kept:
        hint = "shorten the window, or raise retention.attempts"
        message = f"CE {name}: costs are kept for {kept:g} s, shorter than the window of the budget"
        refuse(message, "ces", name, "budget", hint=hint)


def _check_limits(policy: Policy, refuse: Refuser) -> None:
    for place, limit in enumerate(policy.limits):
        here = ("limits", str(place))
        if limit.attribute not in ATTRIBUTES:
            known = f"known: {', '.join(ATTRIBUTES)}"
            refuse(f"limits: unknown attribute {limit.attribute}", *here, "attribute", hint=known)
        running = 0 if limit.running is None else limit.running
        counts = running >= 0 and 0 <= limit.delay < math.inf and limit.burst >= 1
        if not counts or (limit.running is None and not limit.delay):
            refuse(
                "a limit needs running (at least 0) or delay (above 0), and burst must be at least 1", *here
            )
        if limit.site and limit.site not in policy.sites:
            refuse(f"limits: there is no site {limit.site}", *here, "site", hint=known_names(policy.sites))
        if limit.ce and limit.ce not in policy.ces:
            refuse(f"limits: there is no CE {limit.ce}", *here, "ce", hint=known_names(policy.ces))


def _check_director(policy: Policy, refuse: Refuser) -> None:
    director = policy.director
    known = policy.submit_pools()
    for name in director.default_pools or ():
        if name not in known:
            hint = f"SubmitPools: {', '.join(known)}"
            refuse(f"there is no submit pool {name}", "director", "DefaultSubmitPools", hint=hint)
    for name, ce in policy.ces.items():
        if ce.submit_pool not in known:
            hint = f"add {ce.submit_pool} to director.SubmitPools, or set ces.{name}.pool to one of its pools"
            refuse(f"CE {name}: there is no submit pool {ce.submit_pool}", "ces", name, "pool", hint=hint)
        if not ce.allowed_pilot_types:
            hint = 'add "private", or set owners = "any"'
            message = f"CE {name}: its pilots must be private, since it does not isolate payloads"
            refuse(message, "ces", name, "pilot_types", hint=hint)
    _check_pools(policy, refuse)


def _check_pools(policy: Policy, refuse: Refuser) -> None:
    known = policy.submit_pools()
    for name, pool in policy.director.pools.items():
        here = ("director", "pools", name)
        if name not in known:
            refuse(f"director.SubmitPools has no pool {name}", *here, hint=f"it has: {', '.join(known)}")
        for key, expression in (("Rank", pool.rank), ("CPUNormalization", pool.cpu_normalization)):
            try:
                parse_expression(expression or "0")
            except InvalidInput as error:
                refuse(f"pool {name}: {key} is no ClassAd expression: {error.message}", *here, key)
        if pool.endpoints and policy.director.is_handled(name):
            message = f"pool {name}: no adapter of its CEs can use the endpoint {pool.endpoints[0]}"
            refuse(message, *here, "endpoints", hint=_endpoint_hint(policy, name))
        if pool.min_threads > pool.max_threads:
            message = f"pool {name}: minThreadsInPool is more than maxThreadsInPool ({pool.max_threads})"
            refuse(message, *here, "minThreadsInPool")
    for name, ce in policy.ces.items():
        if normalized_cpu_power(policy, name) is None:
            message = (
                f"pool {ce.submit_pool}: CPUNormalization gives no number from 1e-06 to 1e+06 for CE {name}"
            )
            hint = f"attributes of its ad: {', '.join(STATIC_ATTRIBUTES)}"
            refuse(message, "director", "pools", ce.submit_pool, "CPUNormalization", hint=hint)


def _ces_of(policy: Policy, pool: str) -> list[Ce]:
    return [ce for ce in policy.ces.values() if ce.submit_pool == pool]


def _endpoint_hint(policy: Policy, pool: str) -> str:
    """The replacement of endpoints, and why the CEs of the pool have none."""
    systems = dict.fromkeys(ce.type for ce in _ces_of(policy, pool) if ce.type != "local")
    reasons = [f"type {system}: {BATCH_SYSTEMS[system].own_endpoints}" for system in systems]
    advice = f'remove it, and give each way to a batch system a CE with pool = "{pool}"'
    return "; ".join([advice, *reasons])


def _check_jobs(jobs: Jobs, refuse: Refuser) -> None:
    for key in jobs.__struct_fields__:
        if not 0 <= getattr(jobs, key) < math.inf:
            refuse(f"jobs.{key} must be a finite number, at least 0", "jobs", key)
    if not jobs.offer_timeout:
        refuse("jobs.offer_timeout must be above 0", "jobs", "offer_timeout")


def _check_retention(policy: Policy, refuse: Refuser) -> None:
    retention = policy.retention
    for key in retention.__struct_fields__:
        seconds = getattr(retention, key)
        if seconds is not None and not 0 <= seconds < math.inf:
            refuse(f"retention.{key} must be a finite number, at least 0", "retention", key)
    if retention.attempts is None:
        return
    for key, name, seconds in (
        ("accounting.history", "accounting and the shares", policy.accounting.history),
        ("retention.jobs", "ended jobs", retention.jobs),
    ):
        if retention.attempts < seconds:
            hint = f"raise retention.attempts, lower {key}, or remove retention.attempts: the default is long enough"
            message = f"retention.attempts must be at least {key} ({seconds:g}): {name} need the attempts"
            refuse(message, "retention", "attempts", hint=hint)


def _check_requests(policy: Policy, refuse: Refuser) -> None:
    requests = policy.requests
    bands = requests.priority_bands
    if list(bands) != sorted(set(bands)):
        refuse("requests.priority_bands must be a list of increasing numbers", "requests", "priority_bands")
    if len(bands) > MAX_BANDS:
        message = f"requests.priority_bands has {len(bands)} numbers; the limit is {MAX_BANDS}"
        refuse(message, "requests", "priority_bands", hint="UserPriority ends at 10")
    if requests.agent_period * 3 > requests.agent_lease:
        seconds = f"{3 * requests.agent_period:g} s"
        message = f"requests.agent_lease must be at least three times agent_period ({seconds})"
        refuse(message, "requests", "agent_lease")
    places: set[tuple[str, str]] = set()
    for place, entry in enumerate(requests.thresholds):
        here = ("requests", "thresholds", str(place))
        if entry.site and entry.site not in policy.sites:
            message = f"requests.thresholds: there is no site {entry.site}"
            refuse(message, *here, "site", hint=known_names(policy.sites))
        if entry.pending is None and entry.running is None:
            refuse("a threshold needs pending or running", *here)
        if (entry.site, entry.type) in places:
            refuse("two thresholds have the same site and type", *here)
        places.add((entry.site, entry.type))


def _check_correction(policy: Policy, refuse: Refuser) -> None:
    correction = policy.correction
    for name in correction.correctors:
        if name not in CORRECTORS:
            known = f"known: {', '.join(CORRECTORS)}"
            refuse(f"there is no corrector {name}", "correction", "correctors", hint=known)
    if len(set(correction.correctors)) < len(correction.correctors):
        refuse("correction.correctors names a corrector twice", "correction", "correctors")
    if not 1 <= correction.period < math.inf:
        refuse("correction.period must be a finite number, at least 1", "correction", "period")
    if not HOURS_KEPT <= policy.accounting.history < math.inf:
        message = f"accounting.history must be at least {HOURS_KEPT} s (8 days)"
        refuse(message, "accounting", "history")
    for corrector in CORRECTORS:
        _check_corrector(corrector, policy, refuse)


def _check_corrector(corrector: str, policy: Policy, refuse: Refuser) -> None:
    started = corrector in policy.correction.correctors
    instances = policy.correction.instances_of(corrector)
    if instances and not started:
        names = ", ".join(f'"{name}"' for name in (*policy.correction.correctors, corrector))
        hint = f"add correctors = [{names}] to [correction]"
        refuse(
            f"{corrector} has instances, but correction.correctors does not name it",
            "correction",
            corrector,
            hint=hint,
        )
    if started and not instances:
        hint = f"add [correction.{corrector}.NAME], or remove {corrector} from correction.correctors"
        refuse(
            f"correction.correctors names {corrector}, which has no instance",
            "correction",
            "correctors",
            hint=hint,
        )
    for name, instance in instances.items():
        _check_instance(corrector, name, instance, policy, refuse)


def _check_instance(
    corrector: str, name: str, instance: CorrectorInstance, policy: Policy, refuse: Refuser
) -> None:
    here = ("correction", corrector, name)
    if instance.group and instance.group not in policy.groups:
        refuse(f"{name}: there is no group {instance.group}", *here, "group", hint=known_names(policy.groups))
    if instance.group and policy.sharing(instance.group):
        hint = "the share belongs to the group as a whole; remove the instance"
        refuse(
            f"{name}: {instance.group} has JOB_SHARING, so its owners have no shares of their own",
            *here,
            hint=hint,
        )
    for fault in instance.faults(policy.accounting.history):
        where = f"{name}, {fault.part}" if fault.part else name
        refuse(f"{where}: {fault.message}", *here, *fault.keys, hint=fault.hint)
