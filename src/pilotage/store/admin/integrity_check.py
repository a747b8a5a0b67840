"""Look for rows that break a rule (store/integrity), as `pilotage db check` does."""

from __future__ import annotations

from pilotage.core.errors import Conflict
from pilotage.store.admin.revisions import head_revision, refuse_unknown
from pilotage.store.engine.connection import Connection
from pilotage.store.integrity.check import Damage, describe
from pilotage.store.integrity.registry import CHECKS


def find_damage(connection: Connection, revision: str | None) -> list[Damage]:
    """The broken rules, each with count and examples; empty: no damage. For a reader's connection.

    Raises Conflict if the schema is of another version, whose rules are not known here.
    """
    refuse_unknown(revision)
    head = head_revision()
    if revision != head:
        raise Conflict(
            f"the schema of the database is {revision or 'none'}, and this version's is {head}",
            hint="`pilotage db upgrade` changes it after a backup; then check again",
        )
    connection.begin()
    try:
        # All checks see one instant, also while servers run.
        counted = [(check, *check.count(connection)) for check in CHECKS if check.applies(connection)]
        return [describe(check, count, examples) for check, count, examples in counted if count]
    finally:
        connection.rollback()
