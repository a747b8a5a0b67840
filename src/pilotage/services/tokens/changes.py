"""Changes of tokens. Each stores its event, and takes effect on all servers of the pool when they read it."""

from __future__ import annotations

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.ids import PilotId
from pilotage.core.pilots.states import FINAL
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.services.pool.token_state import LONGEST_LIFETIME, read_token_state
from pilotage.store.tables import pilots, tokens
from pilotage.store.tables.events import record
from pilotage.store.tables.tokens import SigningKeyRow, TokenRow
from pilotage.store.writer.transaction import Transaction

MAX_KEYS = 100
"""Keys that are accepted at the same time, at most."""


def create_token(
    ids: IdAllocators,
    tx: Transaction,
    user: str,
    group: str,
    *,
    expires: float,
    by: str,
    now: float,
    issuer: str = "",
) -> int:
    """Record a new token; returns its id. `issuer`: where the user has signed in for it."""
    tokens.delete_ended(tx.connection, now - LONGEST_LIFETIME)
    detail = f"for {user} ({group}), {expires - now:.0f} s" + (f", by issuer {issuer}" if issuer else "")
    number = _record(ids, tx, now, "token", by, detail)
    tokens.insert(tx.connection, TokenRow(number, user, group, now, expires, issuer or by))
    return number


def revoke_token(pool: Pool, tx: Transaction, number: int, *, owner: str | None, by: str, now: float) -> None:
    """Revoke one token. `owner`: only if it is this user's. Raises NotFound, also if it is another's."""
    row = tokens.by_id(tx.connection, number)
    if row is None or (owner is not None and row.owner != owner):
        raise NotFound(f"there is no token {number}", hint="`pilotage token list` shows the tokens")
    if row.revoked is not None:
        return
    tokens.revoke(tx.connection, number, now, by)
    _record(pool.ids, tx, now, "token-revoked", by, f"token {number} of {row.owner} ({row.group})")
    _publish(pool, tx, now)


def revoke_tokens_of(pool: Pool, tx: Transaction, user: str, *, by: str, now: float) -> int:
    """Revoke all tokens of a user that were issued up to now; returns how many of them are listed."""
    revoked = tokens.revoke_all(tx.connection, user, now, by)
    _record(pool.ids, tx, now, "token-revoked", by, f"all tokens of {user}")
    _publish(pool, tx, now)
    return revoked


def revoke_pilot(pool: Pool, tx: Transaction, pilot_id: int, *, by: str, now: float) -> None:
    """Revoke the token of a pilot: the pilot ends, and its jobs go back to their queues."""
    # Locked before its state is read and before its jobs, so that two servers do not both end it.
    locked = pilots.by_ids(tx.connection, [PilotId(pilot_id)])
    if not locked:
        raise NotFound(f"there is no pilot {pilot_id}", hint="`pilotage pilot list` shows the pilots")
    [pilot] = locked
    if pilot.state in FINAL:
        raise Conflict(f"pilot {pilot_id} is {pilot.state}, so its token is not valid")
    _record(pool.ids, tx, now, "token-revoked", by, f"the token of pilot {pilot_id}")
    end_silent_pilot(pool, tx, pilot, PilotEnd.CANCELLED, f"its token was revoked by {by}", now)
    pilots.update(tx.connection, pilot.id, token_hash=None)


def rotate_key(pool: Pool, tx: Transaction, salt: str, *, grace: float, by: str, now: float) -> int:
    """Sign new tokens with a new key; returns its number. Tokens of the other keys are accepted for `grace` seconds."""
    tokens.delete_ended(tx.connection, now - LONGEST_LIFETIME)
    rows = tokens.signing_keys(tx.connection)
    if len(rows) >= MAX_KEYS:
        raise InvalidInput("the key was rotated too often", hint="try again in a month")
    if not rows:
        tokens.insert_key(tx.connection, SigningKeyRow(0, "", now, None))
    number = max((row.number for row in rows), default=0) + 1
    tokens.insert_key(tx.connection, SigningKeyRow(number, salt, now, None))
    tokens.limit_keys(tx.connection, number, now + grace)
    _record(
        pool.ids, tx, now, "token-key", by, f"key {number}; tokens of others are accepted for {grace:.0f} s"
    )
    _publish(pool, tx, now)
    return number


def _record(ids: IdAllocators, tx: Transaction, now: float, kind: str, by: str, detail: str) -> int:
    return record(tx.connection, ids.events, at=now, kind=kind, actor=f"user:{by}", detail=detail)


def _publish(pool: Pool, tx: Transaction, now: float) -> None:
    tx.set(pool.server, "token_state", read_token_state(tx.connection, now))
    pool.peers.publish(tx, PeerUpdate(rules=True))
