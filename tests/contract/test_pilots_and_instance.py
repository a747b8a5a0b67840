"""Pilots, the instance, policies, uploads."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.ids import PilotId
from pilotage.store.tables import instance, pilots, submissions
from tests.contract.stores import fill, offer
from tests.pilot_intent import pilot_intent


def test_pilots_and_their_leases(connection: Any) -> None:
    fill(connection)
    with pytest.raises(ValueError, match="secret_hash"):
        pilots.update(connection, PilotId(1), secret_hash="mine")
    pilots.update(connection, PilotId(1), token_hash="t", lease_until=100.0, state="Running")
    found = pilots.by_token(connection, "t")
    assert found == pilots.by_secret(connection, "s", 0) == pilots.by_id(connection, PilotId(1))
    assert pilots.by_secret(connection, "s", 5) is None
    assert pilots.with_expired_lease(connection, 100.0, "", 10) == []
    assert pilots.with_expired_lease(connection, 100.1, "", 10) == [1]
    offer(connection, 1, 1, 50.0, 1)
    pilots.extend_leases(connection, 10.0, 0.0)
    assert pilots.with_expired_lease(connection, 110.0, "", 10) == []
    assert pilots.with_expired_lease(connection, 110.1, "", 10) == [1]
    pilots.extend_leases(connection, -5.0, 107.0)
    assert pilots.with_expired_lease(connection, 107.0, "", 10) == []
    assert pilots.with_expired_lease(connection, 107.1, "", 10) == [1]
    assert pilots.unconfirmed_since(connection) == [(1, 55.0)]
    assert [pilot.id for pilot in pilots.live(connection, "ce there")] == [2]
    assert pilots.running_after(connection, "", 0, 10) == [("ce here", 1, "")]
    assert pilots.running_after(connection, "ce here", 1, 10) == []
    assert pilots.servers_of_running(connection, [PilotId(1), PilotId(2)]) == {1: ""}
    [watched] = pilots.with_batch_jobs(connection, "ce there")
    assert (watched.id, watched.batch_id) == (2, "")
    pilots.update(connection, PilotId(1), ended=5.0, batch_id="5:6")
    assert [pilot.id for pilot in pilots.live(connection)] == [2]
    assert pilots.running_after(connection, "", 0, 10) == []
    assert pilots.with_batch_jobs(connection, "ce") == []
    assert pilots.with_expired_lease(connection, 1000.0, "", 10) == []


def test_live_pilots_are_counted_by_site_and_ce(connection: Any) -> None:
    assert pilots.live_counts(connection) == []
    for number, (site, ce) in enumerate([("a", "x"), ("a", "x"), ("a", "y"), ("b", "z")]):
        pilots.insert(
            connection,
            pilot_intent(str(number), secret_hash=str(number), site=site, ce=ce),
        )
    pilots.update(connection, PilotId(4), ended=2.0)
    assert pilots.live_counts(connection) == [("a", "x", 2), ("a", "y", 1)]


def test_the_instance_and_its_policies(connection: Any) -> None:
    assert instance.load(connection) is None
    assert instance.current_policy(connection) is None
    made = instance.create(connection, "uuid", 5.0)
    assert instance.load(connection) == made
    instance.heartbeat(connection, 9.0)
    assert instance.load(connection).alive_at == 9.0
    versions = [instance.save_policy(connection, text=t, now=1.0, by="a", reason="r") for t in ("one", "two")]
    assert versions == [1, 2]
    assert instance.current_policy(connection).text == "two"


def test_versions_of_the_policy_are_paged_from_the_newest(connection: Any) -> None:
    assert instance.policy_versions(connection, 0, 5) == []
    assert instance.policy_version(connection, 1) is None
    for number in range(1, 8):
        instance.save_policy(connection, text=f"text {number}", now=number, by="a", reason=f"r{number}")
    assert instance.policy_version(connection, 3) == instance.PolicyRow(3, "text 3", 3.0, "a", "r3")
    assert instance.policy_version(connection, 8) is None
    first = instance.policy_versions(connection, 0, 3)
    assert [(one.version, one.text, one.reason) for one in first] == [
        (7, "", "r7"), (6, "", "r6"), (5, "", "r5"),
    ]  # fmt: skip
    # One that comes meanwhile does not shift the pages.
    instance.save_policy(connection, text="text 8", now=8.0, by="b", reason="")
    rest = instance.policy_versions(connection, 5, 10)
    assert [one.version for one in rest] == [4, 3, 2, 1]
    assert instance.policy_versions(connection, 1, 10) == []
    assert instance.policy_versions(connection, 0, 1)[0].applied_by == "b"


def test_uploads_are_each_owners_own(connection: Any) -> None:
    for owner in ("alice", "alice", "bob"):
        submissions.insert_upload(connection, owner, "digest", 5, 1.0)
    assert submissions.upload_size(connection, "alice", "digest") == 5
    assert submissions.upload_size(connection, "carol", "digest") is None
