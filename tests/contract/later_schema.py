"""A migration of a later version, so that tests upgrade by the code that the next release will use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pilotage.store.admin import revisions, upgrade

LATER = f"{int(revisions.head_revision()) + 1:04}"
"""The revision after the present one."""

MIGRATION = """\
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = {later!r}, {head!r}, None, None


def upgrade() -> None:
    op.add_column("bans", sa.Column("remark", sa.Text(), nullable=False, server_default=""))
    {more}
"""


def add_revision(monkeypatch: pytest.MonkeyPatch, folder: Path, more: str = "") -> None:
    """Let this process know a further migration, which adds a column; `more` is a statement of it."""
    head = revisions.head_revision()
    shutil.copytree(Path(str(revisions.migrations())), folder)
    text = MIGRATION.format(later=LATER, head=head, more=more)
    (folder / f"versions/v{LATER}_remarks.py").write_text(text)
    for module in (revisions, upgrade):
        monkeypatch.setattr(module, "migrations", lambda: folder)
