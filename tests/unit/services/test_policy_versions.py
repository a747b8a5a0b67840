"""Versions of the policy: kept, expected, rolled back to; and whom a change leaves without work."""

from __future__ import annotations

import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import Conflict
from pilotage.core.ids import PilotId
from pilotage.services.policy import impact
from pilotage.services.policy.apply import apply_policy, need_version, roll_back
from pilotage.services.policy.impact import StrandedQueue, StrandedWork, stranded_work
from pilotage.store.tables import instance, pilots
from tests.unit.services.bench import POLICY, Bench

SECOND = POLICY + "# second\n"


def applied(bench: Bench, text: str, expect: int | None = None, reason: str = "why") -> int:
    policy = policies.parse(text)
    return bench.do(
        lambda tx: apply_policy(
            bench.pool, tx, policy, text, by="alice", reason=reason, now=bench.now, expect=expect
        )
    )


def undo_changes(bench: Bench, to: int, reason: str = "", expect: int | None = None) -> int:
    earlier = instance.policy_version(bench.connection, to)
    assert earlier is not None
    policy = policies.parse(earlier.text)
    return bench.do(
        lambda tx: roll_back(
            bench.pool, tx, policy, earlier, by="bob", reason=reason, now=bench.now, expect=expect
        )
    )


def left(bench: Bench, text: str) -> StrandedWork:
    entries = bench.pool.queues.index.entries.values()
    return stranded_work(policies.parse(text), entries, pilots.live_counts(bench.connection))


def events(bench: Bench) -> list[tuple[str, str, str, str]]:
    sql = "SELECT actor, old, new, detail FROM events WHERE kind = 'policy' ORDER BY id"
    return [tuple(row) for row in bench.connection.execute(sql)]


def test_every_version_is_kept_with_who_when_and_why(bench: Bench) -> None:
    bench.now = 2000.0
    assert applied(bench, SECOND, reason="more") == 2
    bench.now = 3000.0
    assert undo_changes(bench, 1, "oops") == 3
    assert undo_changes(bench, 2) == 4
    kept = instance.policy_versions(bench.connection, 0, 10)
    assert [(one.version, one.applied_at, one.applied_by, one.reason) for one in kept] == [
        (4, 3000.0, "bob", "rollback to version 2"),
        (3, 3000.0, "bob", "rollback to version 1: oops"),
        (2, 2000.0, "alice", "more"),
        (1, 1000.0, "test", "first"),
    ]
    texts = [instance.policy_version(bench.connection, number).text for number in (1, 2, 3, 4)]
    assert texts == [POLICY, SECOND, POLICY, SECOND]
    assert events(bench) == [
        ("user:alice", "1", "2", "version 1 to version 2: more"),
        ("user:bob", "2", "3", "version 2 to version 3: rollback to version 1: oops"),
        ("user:bob", "3", "4", "version 3 to version 4: rollback to version 2"),
    ]
    bench.crash()
    assert bench.pool.server.policy_version == 4


def test_two_administrators_do_not_undo_each_others_work_unseen(bench: Bench) -> None:
    assert applied(bench, SECOND, expect=1) == 2
    with pytest.raises(Conflict, match="version 2 of the policy is in force, not 1"):
        applied(bench, POLICY, expect=1)
    with pytest.raises(Conflict, match="in force, not 1"):
        undo_changes(bench, 1, expect=1)
    assert bench.pool.server.policy_version == 2
    assert len(instance.policy_versions(bench.connection, 0, 10)) == 2
    # In one group of requests the second sees what the first has done.
    policy = policies.parse(POLICY)

    def one(tx: object) -> int:
        return apply_policy(bench.pool, tx, policy, POLICY, by="a", reason="", now=bench.now, expect=2)  # type: ignore[arg-type]

    first, second = bench.together(one, one)
    assert first == 3
    assert isinstance(second, Conflict)
    assert bench.pool.server.policy_version == 3
    need_version(3, None)


def test_a_rollback_to_the_version_in_force_is_refused(bench: Bench) -> None:
    with pytest.raises(Conflict, match="version 1 is in force"):
        undo_changes(bench, 1)
    applied(bench, SECOND)
    with pytest.raises(Conflict, match="version 2 is in force"):
        undo_changes(bench, 2)


def test_a_rollback_that_could_not_be_stored_leaves_all_as_it_was(bench: Bench) -> None:
    applied(bench, SECOND)
    before = (bench.pool.policy, bench.pool.server.policy_version, bench.pool.queues.index)
    earlier = instance.policy_version(bench.connection, 1)
    assert earlier is not None

    def fails(tx: object) -> None:
        roll_back(bench.pool, tx, policies.parse(POLICY), earlier, by="b", reason="", now=bench.now)  # type: ignore[arg-type]
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        bench.do(fails)
    assert (bench.pool.policy, bench.pool.server.policy_version, bench.pool.queues.index) == before
    assert len(instance.policy_versions(bench.connection, 0, 10)) == 2


def test_whom_a_change_strands(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.submit(5)
    bench.submit(2, memory=3000)
    bench.submit(3, owner="bob")
    bench.submit(4, owner="bob", group="sharing")
    pilot = bench.pilot()
    [offer] = pilot.take()
    waiting = {"alice": 7, "bob": 3}
    waiting[offer.payload.owner] -= 1 if offer.payload.group == "physics" else 0
    sharing = 4 - (offer.payload.group == "sharing")
    assert left(bench, POLICY) == StrandedWork(0, (), ())
    # A group that goes: all its members at once.
    gone = POLICY.replace("[groups.physics]\nshare = 1000\n", "").replace(
        '["physics", "sharing"]', '["sharing"]'
    )
    found = left(bench, gone)
    assert found.stranded == (StrandedQueue("physics", "", sum(waiting.values())),)
    assert found.jobs == sum(waiting.values())
    # A user who goes: the jobs of the group that shares are the group's, and go on.
    without_bob = POLICY.replace('[users.bob]\ngroups = ["physics", "sharing"]\n', "")
    assert left(bench, without_bob).stranded == (StrandedQueue("physics", "bob", waiting["bob"]),)
    # Most jobs first, and a bounded list with the sum of all.
    monkeypatch.setattr(impact, "MAX_LINES", 1)
    neither = gone.replace("[groups.sharing]\n", "[groups.other]\n").replace('"sharing"]\n[', '"other"]\n[')
    found = left(bench, neither.replace('["sharing"]', '["other"]'))
    assert found.jobs == sum(waiting.values()) + sharing
    assert [one.group for one in found.stranded] == ["physics"]
    # Known before it is applied, and the same after it; the jobs stay, and none of them starts.
    assert applied(bench, gone) == 2
    assert left(bench, gone).jobs == sum(waiting.values())
    assert {other.payload.group for other in bench.pilot(processors=64).take(64, processors=64)} <= {
        "sharing"
    }
    assert applied(bench, POLICY) == 3
    assert left(bench, POLICY).jobs == 0


def test_pilots_of_a_ce_that_goes_are_told(bench: Bench) -> None:
    bench.pilot()
    bench.pilot()
    home = bench.pilot("home")
    without = POLICY[: POLICY.index("[ces.local]")] + POLICY[POLICY.index("[ces.home]") :]
    assert left(bench, without).pilots == (("here", "local", 2),)
    elsewhere = POLICY.replace("[sites.here]", "[sites.there]").replace('site = "here"', 'site = "there"')
    assert left(bench, elsewhere).pilots == (("here", "home", 1), ("here", "local", 2))
    bench.do(lambda tx: pilots.update(tx.connection, PilotId(home.id), ended=bench.now))
    assert left(bench, elsewhere).pilots == (("here", "local", 2),)
