"""Limits of the policy at two servers: each holds, whatever the transactions of the other one do meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from pilotage.core.policy import Policy
from pilotage.core.setting import keys_of
from pilotage.server.duties.ces import BatchCesDuty, LocalCesDuty
from pilotage.server.duties.director import DirectorDuty
from pilotage.server.duties.output_blocks import OutputBlockDuty
from pilotage.server.duties.release import ReleaseDuty
from pilotage.server.duties.roll_up import RollUpDuty
from pilotage.server.duties.shares import ShareDuty
from pilotage.store.tables import instance
from tests.contract import limit_races
from tests.contract.limit_races import Pair, held_by
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import fill, postgresql_store

AMOUNT = re.compile(r"(CPU )?(seconds|hours|MB)\b")
"""How the meaning of a number begins that counts nothing."""

RACES: dict[str, Callable[[Pair], None]] = {
    "jobs.max_waiting_per_owner": limit_races.waiting_jobs,
    "jobs.max_reschedules": limit_races.further_attempts,
    "requests.max_requests_per_owner": limit_races.unfinished_requests,
    "requests.max_elements_per_request": limit_races.elements_of_a_request,
    "requests.elements_ahead": limit_races.elements_ahead,
    "requests.max_retries*": held_by(RollUpDuty),
    "requests.max_jobs_per_owner": held_by(ReleaseDuty),
    "requests.owner_limit_factor": held_by(ReleaseDuty),
    "requests.pending_fraction": held_by(ReleaseDuty),
    "requests.overflow": held_by(ReleaseDuty),
    "requests.thresholds.*": held_by(ReleaseDuty),
    "requests.output_block_*": held_by(OutputBlockDuty),
    "limits.*.running": limit_races.places,
    "limits.*.delay": limit_races.starts,
    "limits.*.burst": limit_races.starts,
    "ces.*.processors": held_by(LocalCesDuty),
    "ces.*.max_*": held_by(BatchCesDuty),
    "ces.*.submit_rate": held_by(BatchCesDuty),
    "director.pools.*Threads*": held_by(BatchCesDuty),
    "director.*[pP]ilot*": held_by(DirectorDuty),
    "correction.*": held_by(ShareDuty),
}
"""The race under each limit. A pattern stands for the limits that one decision applies."""

NO_LIMIT_OF_SEVERAL = {
    "it describes resources, or says how to choose": (
        "groups.*.share",
        "ces.*.cpu_power",
        "ces.*.wall",
        "ces.*.pilot_processors",
        "ces.*.attributes.*",
        "ces.*.hosts.*",
        "ces.*.sge.qmaster_port",
        "catalogues.*.rucio.rule_copies",
        "requests.priority_bands",
        "requests.queue_depth",
        "requests.site_floor",
        "requests.cooloff_*",
        "director.cancel_after",
    ),
    "it holds for one message, file or transaction": (
        "jobs.max_input_file",
        "jobs.max_input_sandbox",
        "jobs.max_output_file",
        "requests.max_output_size",
        "requests.elements_per_pull",
        "requests.intake_slice",
        "requests.confirm_jobs",
    ),
}
"""The other numbers of the policy, by the reason why two servers cannot exceed them together."""

KEYS = [
    key.name
    for key in keys_of(Policy)
    if key.setting.range is not None and not AMOUNT.match(key.setting.meaning)
]


def races_of(key: str) -> list[Callable[[Pair], None]]:
    return [race for pattern, race in RACES.items() if fnmatchcase(key, pattern)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    store = postgresql_store(tmp_path, migrated=True)
    connection = store.open_writer()
    fill(connection)
    instance.save_policy(connection, text=POLICY, now=1.0, by="alice", reason="")
    made = Pair(One(store, "a"), One(store, "b"))
    yield made
    made.threads.shutdown()
    for one in (made.first, made.second):
        one.end()
    connection.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


@pytest.mark.parametrize("key", KEYS)
def test_each_number_of_the_policy_has_a_race_or_needs_none(key: str) -> None:
    reasons = [
        reason
        for reason, patterns in NO_LIMIT_OF_SEVERAL.items()
        if any(fnmatchcase(key, pattern) for pattern in patterns)
    ]
    assert len(races_of(key)) + len(reasons) == 1, (
        f"{key}: add a race of two servers under it, or say why they cannot exceed it together"
    )


def test_no_race_is_of_a_limit_that_the_policy_does_not_have() -> None:
    named = [*RACES, *(pattern for patterns in NO_LIMIT_OF_SEVERAL.values() for pattern in patterns)]
    assert [pattern for pattern in named if not any(fnmatchcase(key, pattern) for key in KEYS)] == []


@pytest.mark.slow
@pytest.mark.parametrize("limit", RACES)
def test_two_servers_at_once_hold_the_limit(pair: Pair, limit: str) -> None:
    RACES[limit](pair)
