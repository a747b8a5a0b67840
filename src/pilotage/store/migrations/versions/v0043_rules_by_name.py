"""The rules of stored policies by name: "document" is "dirac" now, and no longer the default"""

from __future__ import annotations

import tomllib
from typing import Any

import sqlalchemy as sa
from alembic import op

from pilotage.core.errors import PilotageError
from pilotage.core.policy.toml_edit import Path, Value, value_at, with_values

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

FORMER_DEFAULTS: dict[Path, Value] = {
    ("matching", "rule"): "document",
    ("director", "demand"): "document",
    ("director", "PrivatePilotFraction"): 0.5,
}
NEW_NAMES = {"document": "dirac"}


def upgrade() -> None:
    """Each stored policy names the rules that were in force, so that a home keeps them."""
    connection = op.get_bind()
    for version, text in connection.execute(sa.text("SELECT version, text FROM policies")).fetchall():
        if (changed := _with_rules(text)) != text:
            connection.execute(
                sa.text("UPDATE policies SET text = :text WHERE version = :version"),
                {"text": changed, "version": version},
            )


def _with_rules(text: str) -> str:
    """A text that no parser reads stays: the server tells how to replace it."""
    try:
        tables: dict[str, Any] = tomllib.loads(text)
        values: dict[Path, Value] = {}
        for path, default in FORMER_DEFAULTS.items():
            value = value_at(tables, path)
            value = default if value is None else value
            values[path] = NEW_NAMES.get(value, value) if isinstance(value, str) else value
        return with_values(text, values)
    except (ValueError, RecursionError, PilotageError):
        return text
