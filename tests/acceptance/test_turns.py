"""Three users of one group compete for real pilots, each of which serves one owner at a time.

`PILOTAGE_TURNS_SECONDS=180 PILOTAGE_TURNS_QUANTUM=60` tries the defaults for three minutes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.instance import running, until

SECONDS = float(os.environ.get("PILOTAGE_TURNS_SECONDS", "75"))
QUANTUM = float(os.environ.get("PILOTAGE_TURNS_QUANTUM", "5"))
USERS = ("alice", "bob", "carol")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE + 2 * SECONDS)]


def test_three_users_have_their_shares(tmp_path: Path) -> None:
    with running(tmp_path, owners="any", processors=2) as instance:
        instance.policy = instance.policy.replace("idle =", f"quantum = {QUANTUM}\nidle =")
        instance.policy += '[users.carol]\ngroups = ["others"]\n'
        instance.apply()
        jobs = int(2 * SECONDS) + 50
        sent = {
            user: instance.client(user).submit(
                {"executable": "sleep", "arguments": ["1"]}, values=range(jobs)
            )
            for user in USERS
        }
        begun = time.monotonic()

        def done(user: str) -> int:
            return instance.client().counts(Selection(submission=sent[user].submission)).final

        until(lambda: time.monotonic() - begun >= SECONDS, SECONDS + 60, "the end of the measured time")
        counts = {user: done(user) for user in USERS}
        whole = sum(counts.values())
        print(f"{counts} in {SECONDS:g} s with a quantum of {QUANTUM:g} s")
        for user in USERS:
            assert abs(counts[user] / whole - 1 / 3) <= 0.1, counts
        pilots = list(instance.client().pilots())
        assert {one.owner for one in pilots} >= set(USERS)
        gave_way = [one for one in pilots if one.reason == "share"]
        assert gave_way, "a pilot leaves when it is another owner's turn"
        # No thrash: on each of the two cores there is at most one pilot in each quantum.
        assert len(pilots) <= 2 * (SECONDS / QUANTUM + 2)
        for user in USERS:
            instance.client(user).kill(Selection(submission=sent[user].submission))
