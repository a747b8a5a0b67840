"""Each kind of transaction, alone: its statements rest on rows that it holds, or say why they need none."""

from __future__ import annotations

from types import ModuleType

import pytest

from pilotage.store.tables import elements, jobs, requests
from tests import decision_guard
from tests.interleavings.kinds import KINDS
from tests.interleavings.pairs import Pairs
from tests.interleavings.world import World

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


def test_transactions_rest_on_rows_that_they_hold(pairs: Pairs) -> None:
    broken = {}
    for name in KINDS:
        try:
            with decision_guard.active():
                pairs.footprints(name)
        except AssertionError as error:
            broken[name] = str(error)
    assert not broken, "\n".join(f"{name}: {words}" for name, words in broken.items())


@pytest.mark.parametrize(
    ("kind", "module", "table"),
    [("kill", jobs, "jobs"), ("abort", requests, "requests"), ("an agent gives back", elements, "elements")],
)
def test_a_lock_that_is_taken_out_is_missed(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, module: ModuleType, table: str
) -> None:
    monkeypatch.setattr(module, "lock_clause", lambda *_: "")
    pairs = Pairs(world)
    with pytest.raises(AssertionError, match=table), decision_guard.active():
        pairs.footprints(kind)
    pairs.close()
