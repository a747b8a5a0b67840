"""The last answers of the batch systems in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pilotage.services.pool.known_ces import KnownCes
from pilotage.store.tables import ce_information
from pilotage.store.writer.transaction import Transaction


def read_ce_information(ces: KnownCes, tx: Transaction, changed: Mapping[str, bool] | None = None) -> None:
    """Read the answers about CEs from the store. None: about all CEs.

    `changed`: the CEs to read, each with whether its host classes may have changed.
    """
    if changed is None:
        rows = ce_information.load(tx.connection)
        ces.information = {ce: row.information for ce, row in rows.items() if row.information is not None}
        return
    whole = [ce for ce, hosts in changed.items() if hosts or ce not in ces.information]
    rows = ce_information.load(tx.connection, whole) if whole else {}
    for ce, row in ce_information.load_facts(tx.connection, set(changed) - set(whole)).items():
        facts = row.information
        classes = ces.information[ce].host_classes
        rows[ce] = row if facts is None else row._replace(information=replace(facts, host_classes=classes))
    known = {**ces.information, **{ce: row.information for ce, row in rows.items()}}
    gone = changed.keys() - rows.keys()
    ces.information = {ce: facts for ce, facts in known.items() if facts is not None and ce not in gone}
