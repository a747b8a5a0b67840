"""`pilotage db check` of another schema, and states that are no damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.core.errors import Conflict
from pilotage.store.admin import integrity_check
from pilotage.store.admin.revisions import head_revision
from tests.contract.later_schema import add_revision
from tests.contract.stores import Store


def test_an_empty_database_gives_nothing(store: Store) -> None:
    assert integrity_check.find_damage(store.readers.connection(), head_revision()) == []


def test_another_schema_hides_all_other_damage(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy home of an older version is not damaged."""
    present = head_revision()
    with pytest.raises(Conflict, match="development version"):
        integrity_check.find_damage(store.readers.connection(), "0001")
    add_revision(monkeypatch, tmp_path / "later")
    with pytest.raises(Conflict) as caught:
        integrity_check.find_damage(store.readers.connection(), present)
    assert "pilotage db upgrade" in caught.value.hint
