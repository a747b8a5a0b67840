"""The table of the checks of a database, from their registry."""

from __future__ import annotations

from pilotage.store.integrity.registry import CHECKS


def database_checks_markdown() -> str:
    rows = [
        f"| {check.what}{_only(check.only)} | {check.meaning} | {check.by_hand or 'yes'} |"
        for check in CHECKS
    ]
    return "\n".join(["| wrong rows | meaning | repair |", "|---|---|---|", *rows])


def _only(dialect: str | None) -> str:
    return " (PostgreSQL)" if dialect == "postgresql" else ""
