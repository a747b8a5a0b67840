"""The last facts about each CE and its hosts, as its batch system told them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import ONE_SERVER, decision, hint, overwrites
from pilotage.store.engine.rows import replacement


class InformationRow(NamedTuple):
    """The row of one CE."""

    ce: str
    information: CeInformation | None
    """None: its batch system has never answered."""
    problem: str = ""
    """Why the last question had no answer; empty: it had one."""
    problem_since: float | None = None


_FACTS = "ce, updated, expiry, attributes, homogeneous, problem, problem_since"
_HOSTS = "ce, hosts"
_encode = msgspec.json.Encoder().encode
_decode_attributes = msgspec.json.Decoder(dict[str, int | float | str | bool | tuple[str, ...]]).decode
_decode_hosts = msgspec.json.Decoder(tuple[HostClass, ...]).decode


@hint("a later answer of the CE has a change row")
def load(connection: Connection, ces: Collection[str] | None = None) -> dict[str, InformationRow]:
    """The rows of these CEs, by name. None: of all."""
    hosts = {ce: _decode_hosts(text) for ce, text in _select(connection, _HOSTS, ces)}
    return {
        row.ce: row
        for row in (_to_row(values, hosts.get(values[0], ())) for values in _select(connection, _FACTS, ces))
    }


@hint("a later answer of the CE has a change row")
def load_facts(connection: Connection, ces: Collection[str] | None = None) -> dict[str, InformationRow]:
    """The rows of `load`, without host classes."""
    rows = (_to_row(values, ()) for values in _select(connection, _FACTS, ces))
    return {row.ce: row for row in rows}


def _select(connection: Connection, columns: str, ces: Collection[str] | None) -> Iterable[Any]:
    sql = f"SELECT {columns} FROM ce_information"
    if not ces:
        return connection.execute(sql) if ces is None else ()
    condition, names = in_list(connection, "ce", list(ces))
    return connection.execute(f"{sql} WHERE {condition}", (names,))


def _to_row(values: Any, hosts: tuple[HostClass, ...]) -> InformationRow:
    ce, updated, expiry, attributes, homogeneous, problem, since = values
    if not updated:
        return InformationRow(ce, None, problem, since)
    known: dict[str, Value] = _decode_attributes(attributes)
    information = CeInformation(known, hosts, bool(homogeneous), updated, expiry)
    return InformationRow(ce, information, problem, since)


@decision(ONE_SERVER)
def problems(connection: Connection, ces: Collection[str]) -> dict[str, str]:
    """The problems of these CEs, by name; CEs without one are left out."""
    condition, names = in_list(connection, "ce", list(ces))
    sql = f"SELECT ce, problem FROM ce_information WHERE problem <> '' AND {condition}"
    return dict(connection.execute(sql, (names,)).fetchall())


def save(connection: Connection, ce: str, facts: CeInformation, *, hosts: bool) -> None:
    """Insert or replace the facts about a CE. `hosts`: its host classes have changed, so they are written too."""
    values: dict[str, Any] = {
        "updated": facts.updated,
        "expiry": facts.expiry,
        "attributes": _encode(dict(facts.attributes)).decode(),
        "homogeneous": int(facts.homogeneous),
    }
    if hosts:
        values["hosts"] = _encode(facts.host_classes).decode()
    _upsert(connection, ce, values)


def save_problem(connection: Connection, ce: str, problem: str, now: float) -> None:
    """Write why the last question had no answer; empty: it had one."""
    _upsert(connection, ce, {"problem": problem, "problem_since": now if problem else None})


def _upsert(connection: Connection, ce: str, values: dict[str, Any]) -> None:
    connection.execute(replacement("ce_information", "ce", values), (ce, *values.values()))


@overwrites(ONE_SERVER)
def renew(connection: Connection, rows: Iterable[tuple[str, CeInformation]]) -> None:
    """Write that the facts about these CEs are still the same."""
    connection.executemany(
        "UPDATE ce_information SET updated = ?, expiry = ? WHERE ce = ?",
        [(facts.updated, facts.expiry, ce) for ce, facts in rows],
    )


def names(connection: Connection) -> set[str]:
    """The CEs that have a row."""
    return {ce for (ce,) in connection.execute("SELECT ce FROM ce_information")}


@overwrites(ONE_SERVER)
def delete(connection: Connection, ces: Collection[str]) -> None:
    connection.executemany("DELETE FROM ce_information WHERE ce = ?", [(ce,) for ce in ces])
