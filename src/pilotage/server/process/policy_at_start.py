"""The policy with which a server starts: the stored one, or one that was given to `up`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import Policy, parse
from pilotage.services.policy.apply import record_change
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import instance
from pilotage.store.tables.instance import PolicyRow
from pilotage.store.writer.transaction import Transaction

REASON = "given at the start"


@dataclass(frozen=True, slots=True)
class PolicyAtStart:
    policy: Policy
    version: int
    replaced: int | None = None
    """The version that `version` has replaced; None: there was no other."""


def read_policy(
    connection: Connection, given: str, first: str, folder: Path, *, by: str, now: float
) -> PolicyAtStart:
    """Return the policy in force. A text that is given replaces the stored one, also if that is not valid any more.

    `first`: the text at the first start. A stored policy that is not valid for this version of Pilotage raises
    `InvalidInput`, and its text is written to `folder`: without a running server nothing else shows it.
    """
    current = instance.current_policy(connection)
    if current is None:
        text = given or first
        reason = REASON if given else "the first start"
        return PolicyAtStart(
            parse(text), instance.save_policy(connection, text=text, now=now, by=by, reason=reason)
        )
    if given and given != current.text:
        policy = parse(given)
        version = instance.save_policy(connection, text=given, now=now, by=by, reason=REASON)
        return PolicyAtStart(policy, version, replaced=current.version)
    try:
        return PolicyAtStart(parse(current.text), current.version)
    except InvalidInput as error:
        raise _with_way_out(error, current, folder) from None


def _with_way_out(error: InvalidInput, current: PolicyRow, folder: Path) -> InvalidInput:
    file = folder / f"policy-{current.version}.toml"
    file.write_text(current.text)
    hint = f"correct {file}, which has its text now, and start with `pilotage up --policy {file}`"
    if error.hint:
        hint = f"{error.hint}; {hint}"
    return InvalidInput(
        f"the stored policy, version {current.version}, is not valid for this version of Pilotage:"
        f" {error.place}{error.message}",
        hint=hint,
    )


def announce_policy(pool: Pool, tx: Transaction, start: PolicyAtStart, *, by: str, now: float) -> None:
    """Record that a policy was replaced, and tell the other servers."""
    if start.replaced is None:
        return
    record_change(pool.ids, tx, start.replaced, start.version, by=by, reason=REASON, now=now)
    pool.peers.publish(tx, PeerUpdate(rules=True))
