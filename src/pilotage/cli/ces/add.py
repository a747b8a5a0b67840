"""`pilotage ce add`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotage.cli.ces.add_options import (
    AccountOption,
    ConfOption,
    ConstraintOption,
    DryRunOption,
    LogFolderOption,
    MaxRunningOption,
    MaxWaitingOption,
    MemoryOption,
    NameOption,
    OwnersOption,
    PartitionOption,
    ProcessorsOption,
    QosOption,
    ReachOption,
    RelayOption,
    SetOption,
    SiteOption,
    TypeArgument,
    UrlOption,
    WallOption,
)
from pilotage.cli.policy.versions import ReasonOption
from pilotage.cli.session import Session, connected
from pilotage.core.errors import InvalidInput, Unreachable

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.core.policy.new_ce import NewCe
    from pilotage.wire.policy import PolicyDocument


@connected
def add(
    session: Session,
    kind: TypeArgument,
    name: NameOption = None,
    site: SiteOption = "",
    owners: OwnersOption = "home",
    reach: ReachOption = "",
    relay: RelayOption = "",
    partition: PartitionOption = "",
    url: UrlOption = "",
    conf: ConfOption = "",
    account: AccountOption = "",
    qos: QosOption = "",
    constraint: ConstraintOption = "",
    log_folder: LogFolderOption = "",
    settings: SetOption = None,
    processors: ProcessorsOption = None,
    memory: MemoryOption = None,
    wall: WallOption = None,
    max_waiting: MaxWaitingOption = None,
    max_running: MaxRunningOption = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
) -> None:
    """Add a CE to the policy in force. The server asks a batch system for its partitions, limits and accounts."""
    from pilotage.cli.time_format import parse_duration
    from pilotage.core.policy import parse
    from pilotage.core.policy.new_ce import (
        NewCe,
        choose_site,
        insert_section,
        partition_key,
        require_free_name,
    )

    options = {"conf": conf, partition_key(kind) or "partition": partition, "account": account, "qos": qos}
    options |= {"constraint": constraint, "log_folder": log_folder, "url": url}
    options = {key: value for key, value in options.items() if value}
    _check_usage(kind, options, max_waiting, max_running, reach or relay)
    options, name = _with_settings(kind, options, settings or ()), kind if name is None else name
    with session.client() as client:
        current = client.policy()
        policy = parse(current.text)
        require_free_name(policy, name)
        ce = NewCe(
            name=name,
            site=choose_site(policy, site),
            owners=owners,
            processors=processors,
            memory=memory,
            wall=parse_duration(wall) if wall else None,
            max_waiting=max_waiting,
            max_running=max_running,
            options=options,
            reach=reach,
            relay=relay,
        )
        text = insert_section(current.text, name, _section(client, kind, ce))
        applied = client.apply_policy(text, dry_run=True, expect=current.version)
        _require_accepted(client, text, name)
        if not dry_run:
            reason = reason or f"ce add {kind}: {name}"
            applied = client.apply_policy(text, reason=reason, expect=current.version)
    _report(session, name, current, applied, dry_run)
    _warn_of_experiment(session, kind, name)


def _warn_of_experiment(session: Session, kind: str, name: str) -> None:
    if is_experimental(kind) and not session.as_json:
        session.screen.note(
            f"type {kind} is experimental: it was never tested with the batch system itself; try it with"
            f" `pilotage ce test {name}`"
        )


def is_experimental(kind: str) -> bool:
    """Whether the adapter of a type of CE was never tested with the batch system itself."""
    from pilotage.core.policy.batch_systems import BATCH_SYSTEMS

    return kind in BATCH_SYSTEMS and BATCH_SYSTEMS[kind].is_experimental


def _with_settings(kind: str, options: dict[str, str], words: Sequence[str]) -> dict[str, str]:
    """The options together with the values of `--set`. Each key must be one of the type, and have one value."""
    from pilotage.core.policy.new_ce import option_names

    known, chosen = option_names(kind), dict(options)
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            hint = f"keys of [ces.NAME.{kind}]: {', '.join(known) or 'none'}"
            raise InvalidInput(f"--set {word[:80]!r}: it must be KEY=VALUE", hint=hint)
        if key not in known:
            raise InvalidInput(
                f"--set: [ces.NAME.{kind}] has no key {key[:80]!r}", hint=_hint_for_key(kind, key, known)
            )
        if chosen.get(key, value) != value:
            raise InvalidInput(
                f"{key} has two values: {chosen[key]!r} and {value!r}", hint="give one of them"
            )
        chosen[key] = value
    return {key: value for key, value in chosen.items() if value}


_OWN_OPTIONS = {
    "site": "--site",
    "owners": "--owners",
    "wall": "--wall",
    "max_waiting": "--max-waiting",
    "max_running": "--max-running",
    "pilot_processors": "--processors",
    "pilot_memory": "--memory",
}
"""Keys of [ces.NAME] with an option of their own."""


def _hint_for_key(kind: str, key: str, known: Sequence[str]) -> str:
    """Where an unknown key of `--set` belongs, else the nearest known one."""
    if option := _OWN_OPTIONS.get(key):
        return f"use {option}"
    if not known:
        return "--set is for batch systems"
    near = difflib.get_close_matches(key, known, 1)
    return f"did you mean {near[0]}?" if near else f"its keys: {', '.join(known)}"


def _check_usage(
    kind: str, options: dict[str, str], max_waiting: int | None, max_running: int | None, reach: str
) -> None:
    """`InvalidInput` if there is no such type of CE, or if the type has no such option."""
    from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
    from pilotage.core.policy.new_ce import option_names

    if kind not in ("local", *BATCH_SYSTEMS):
        types = ", ".join(("local", *BATCH_SYSTEMS))
        raise InvalidInput(f"there is no type of CE {kind!r}", hint=f"types: {types}")
    given = [key for key in options if key not in option_names(kind)]
    if kind == "local":
        given += ["max_waiting"] if max_waiting is not None else []
        given += ["max_running"] if max_running is not None else []
        given += ["reach"] if reach else []
    if given:
        words = ", ".join(f"--{key.replace('_', '-')}" for key in given)
        known = ", ".join(option_names(kind))
        hint = f"keys of [ces.NAME.{kind}]: {known}" if known else "these options are for batch systems"
        raise InvalidInput(f"a CE of type {kind} has no {words}", hint=hint)


def _section(client: Client, kind: str, ce: NewCe) -> str:
    """The new section, with sizes and limits from the batch system."""
    from dataclasses import asdict, replace

    from pilotage.core.policy.new_ce import (
        NodeSize,
        PartitionFacts,
        batch_section,
        choose_partition,
        local_section,
        partition_key,
    )
    from pilotage.core.policy.new_ce_accounts import AccountFacts, allowed_partitions, choose_account

    if kind == "local":
        return local_section(ce)
    try:
        described = client.describe_batch_system(kind, ce.options, ce.reach)
    except Unreachable as error:
        if not ce.reach:
            raise
        hint = f'if the connection is not open: `pilotage ce login --reach "{ce.reach}"`'
        raise Unreachable(error.message, hint=hint) from None
    partitions = [
        PartitionFacts(
            row.name, row.default, row.up, row.wall, tuple(NodeSize(**asdict(kind)) for kind in row.kinds)
        )
        for row in described.partitions
    ]
    accounts = [
        AccountFacts(row.name, row.partition, tuple(row.qos), row.default) for row in described.accounts
    ]
    allowed = allowed_partitions(accounts, partitions, ce.options.get("account", ""))
    partition = choose_partition(allowed, ce.options.get(partition_key(kind), ""))
    options = choose_account(accounts, partition.name, ce.options)
    return batch_section(replace(ce, options=options), kind, partition)


def _require_accepted(client: Client, text: str, name: str) -> None:
    """`InvalidInput` if the batch system would refuse the pilots of the CE `name`. `text`: the proposed policy."""
    refusal = client.check_ce(text, name)
    if refusal.reason:
        raise InvalidInput(
            f"the batch system would refuse these pilots: {refusal.reason}",
            hint="choose another partition, account, QOS, constraint or size; nothing has been changed",
        )


def _report(
    session: Session, name: str, before: PolicyDocument, after: PolicyDocument, dry_run: bool
) -> None:
    if session.as_json:
        version = None if dry_run else after.version
        session.screen.json(
            {"name": name, "version": version, "warnings": after.warnings, "text": after.text}
        )
        return
    label = "proposed" if dry_run else f"version {after.version} (in force)"
    old, new = before.text.splitlines(), after.text.splitlines()
    for line in difflib.unified_diff(old, new, f"version {before.version}", label, lineterm=""):
        if session.screen.terminal:
            session.screen.line(line)
        else:
            sys.stdout.write(line + "\n")
    for warning in after.warnings:
        session.screen.note(f"warning: {warning}")
    if dry_run:
        session.screen.line(f"CE {name} was not added: --dry-run")
    else:
        session.screen.line(f"CE {name} is in force with version {after.version} of the policy")
