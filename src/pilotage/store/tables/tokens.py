"""Rows of tokens, of revocations, and of the keys that sign tokens."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import decision, guarded, hint, overwrites
from pilotage.store.engine.rows import columns, insertion, values


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: int
    owner: str
    group: str
    issued: float
    expires: float
    issued_by: str
    revoked: float | None = None
    revoked_by: str = ""


@dataclass(frozen=True, slots=True)
class SigningKeyRow:
    number: int
    salt: str
    created: float
    accepted_until: float | None
    """None: it signs new tokens."""


_SIGNING_KEY = columns(SigningKeyRow)


_COLUMNS = columns(TokenRow, group="grp")


def insert(connection: Connection, token: TokenRow) -> None:
    connection.execute(insertion("tokens", _COLUMNS), values(token))


@decision("the owner of a token never changes")
def by_id(connection: Connection, id_: int) -> TokenRow | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", (id_,)).fetchone()
    return TokenRow(*row) if row else None


def page(connection: Connection, after: int, limit: int, owner: str | None) -> list[TokenRow]:
    """Tokens with ids below `after` (0: all), newest first. `owner`: of one user only."""
    sql = (
        f"SELECT {_COLUMNS} FROM tokens WHERE (? = 0 OR id < ?) AND (? = '' OR owner = ?)"
        " ORDER BY id DESC LIMIT ?"
    )
    chosen = owner or ""
    return [TokenRow(*row) for row in connection.execute(sql, (after, after, chosen, chosen, limit))]


def extend(connection: Connection, id_: int, expires: float) -> None:
    """Store the later end of a renewed token."""
    connection.execute("UPDATE tokens SET expires = ? WHERE id = ? AND expires < ?", (expires, id_, expires))


@overwrites("a revoked token stays revoked, and the first word counts")
def revoke(connection: Connection, id_: int, now: float, by: str) -> None:
    connection.execute(
        "UPDATE tokens SET revoked = ?, revoked_by = ? WHERE id = ? AND revoked IS NULL", (now, by, id_)
    )


@guarded("revoked")
def revoke_all(connection: Connection, owner: str, now: float, by: str) -> int:
    """Revoke every token of a user that was issued up to now; returns how many valid ones were made for the user."""
    sql = "UPDATE tokens SET revoked = ?, revoked_by = ? WHERE owner = ? AND revoked IS NULL AND expires > ?"
    revoked = connection.execute(sql, (now, by, owner, now)).rowcount
    sql = (
        "INSERT INTO token_cutoffs (owner, issued_until) VALUES (?, ?)"
        " ON CONFLICT (owner) DO UPDATE SET issued_until = excluded.issued_until"
        " WHERE excluded.issued_until > token_cutoffs.issued_until"
    )
    connection.execute(sql, (owner, now))
    return revoked


@hint("the counter of rules is compared before each call")
def revoked_since(connection: Connection, since: float) -> frozenset[int]:
    """The ids of the tokens that were revoked after an instant."""
    return frozenset(
        row[0] for row in connection.execute("SELECT id FROM tokens WHERE revoked > ?", (since,))
    )


@hint("the counter of rules is compared before each call")
def cutoffs(connection: Connection) -> dict[str, float]:
    """Until when the tokens of each user are revoked."""
    return dict(connection.execute("SELECT owner, issued_until FROM token_cutoffs").fetchall())


@overwrites("ended tokens are refused before they are deleted")
def delete_ended(connection: Connection, before: float) -> None:
    """Delete the rows of tokens and revocations that ended before an instant."""
    connection.execute(
        "DELETE FROM tokens WHERE expires < ? AND (revoked IS NULL OR revoked < ?)", (before, before)
    )
    connection.execute("DELETE FROM signing_keys WHERE accepted_until < ?", (before,))


@hint("a new key has a change row, and is read again")
def signing_keys(connection: Connection) -> list[SigningKeyRow]:
    """The keys of rotations, oldest first. Without rows the key in the home's secrets signs tokens."""
    sql = f"SELECT {_SIGNING_KEY} FROM signing_keys ORDER BY number"
    return [SigningKeyRow(*row) for row in connection.execute(sql)]


def insert_key(connection: Connection, key: SigningKeyRow) -> None:
    connection.execute(
        "INSERT INTO signing_keys (number, salt, created, accepted_until) VALUES (?, ?, ?, ?)",
        (key.number, key.salt, key.created, key.accepted_until),
    )


def limit_keys(connection: Connection, below: int, accepted_until: float) -> None:
    """Accept the keys with lower numbers no longer than until an instant."""
    sql = (
        "UPDATE signing_keys SET accepted_until = ?"
        " WHERE number < ? AND (accepted_until IS NULL OR accepted_until > ?)"
    )
    connection.execute(sql, (accepted_until, below, accepted_until))
