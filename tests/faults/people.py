"""People who do everything at once: submit, kill, reschedule, delete, and change the policy."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from pilotage.client import Client, Selection
from pilotage.core.errors import PilotageError

POLICY = """\
[groups.home]
properties = ["NORMAL_USER", "ADMINISTRATOR"]
share = {home}
[groups.others]
share = {others}
[users.{administrator}]
groups = ["home"]
[users.alice]
groups = ["others"]
[sites.here]
[sites.there]
banned = {banned}
[ces.local]
site = "here"
owners = "any"
lease = 2
heartbeat = 0.5
[ces.other]
site = "there"
owners = "any"
lease = 2
heartbeat = 0.5
[jobs]
retry_delay = 0.2
max_reschedules = 3
offer_timeout = 1.0
[retention]
hot = 1.0
"""
LIMITS = """
[[limits]]
attribute = "group"
value = "home"
site = "here"
running = {all}
[[limits]]
attribute = "owner"
value = "alice"
running = {alice}
"""
LONG = """
[[limits]]
attribute = "cpu_time"
value = "5000"
ce = "local"
running = {long}
"""


class Person:
    """One thread with a client for each server; whoever does not answer is left for the next one."""

    def __init__(
        self,
        clients: Sequence[Client],
        most: int,
        stop: threading.Event,
        seed: int,
        administrator: str = "",
    ) -> None:
        """`administrator`: the account of one, who changes the policy too. Above `most` waiting jobs nobody submits."""
        self.clients, self.at = clients, seed % len(clients)
        self.most, self.stop, self.administrator = most, stop, administrator
        self.rng = Random(seed)
        self.jobs: set[int] = set()
        """Of answered submissions."""
        self.submissions: dict[int, int] = {}
        """How many jobs each has, as the server said."""
        self.acted: list[tuple[str, int]] = []
        """What was done to which job, as the server said."""
        self.applied: dict[int, str] = {}
        """The text of each version of the policy that was taken."""
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run)

    @property
    def client(self) -> Client:
        return self.clients[self.at]

    def run(self) -> None:
        verbs = [self.submit] * 4 + [self.submit_rows, self.kill, self.kill, self.reschedule, self.delete]
        verbs += [self.change] * 2 if self.administrator else []
        try:
            while not self.stop.is_set():
                self.attempt(self.rng.choice(verbs))
        except BaseException as error:
            self.error = error

    def attempt(self, verb: Callable[[], None]) -> None:
        try:
            verb()
        except PilotageError as error:
            self.done[f"{verb.__name__} failed: {type(error).__name__}"] += 1
            self.at = (self.at + 1) % len(self.clients)
            self.stop.wait(0.1)
        else:
            self.done[verb.__name__] += 1

    def description(self) -> dict[str, object]:
        rng = self.rng
        return {
            "executable": "true",
            "cpu_time": rng.choice([0, 0, 5000]),
            "processors": rng.choice([1, 1, 2]),
            "user_priority": rng.choice([0, 1, 1, 5]),
            "retries": rng.choice([0, 1]),
        }

    def submit(self) -> None:
        if self.client.counts(Selection(states=["Waiting"])).total > self.most:
            self.stop.wait(0.05)
            return
        answer = self.client.submit(self.description(), values=range(self.rng.choice([1, 5, 60])))
        self.jobs.update(range(answer.first, answer.first + answer.count))
        self.submissions[answer.submission] = answer.count

    def submit_rows(self) -> None:
        """In chunks, until all are there, whichever server takes them."""
        rows = [[number] for number in range(self.rng.choice([10, 150]))]
        key, description = f"rows {self.rng.getrandbits(40)}", self.description()
        while not self.stop.is_set():
            try:
                answer = self.client.submit_rows(description, iter(rows), key=key)
            except PilotageError:
                self.done["submit_rows went on"] += 1
                self.at = (self.at + 1) % len(self.clients)
                self.stop.wait(0.1)
                continue
            assert answer.count == len(rows), answer
            self.submissions[answer.submission] = answer.count
            return

    def kill(self) -> None:
        some = self.some()
        if some:
            answer = self.client.kill(some, reason="load")
            refused = {one.job for one in answer.refused}
            if answer.matched == len(some):
                self.acted += [("killed", job) for job in some if job not in refused]

    def reschedule(self) -> None:
        """Several people may mean the same ones."""
        self.act_on_ended("rescheduled", self.client.reschedule, ["Failed", "Killed"], 20)

    def delete(self) -> None:
        self.act_on_ended("deleted", self.client.delete, ["Done", "Failed", "Killed"], 3)

    def act_on_ended(self, kind: str, verb: Callable[..., object], states: list[str], most: int) -> None:
        ended = [one.id for one in self.client.jobs(Selection(states=states), page=50)][:50]
        if not ended:
            return
        some = self.rng.sample(ended, min(len(ended), most))
        answer = verb(some)
        refused = {one.job for one in answer.refused}  # type: ignore[attr-defined]
        if answer.matched == len(some):  # type: ignore[attr-defined]
            self.acted += [(kind, job) for job in some if job not in refused]

    def some(self) -> list[int]:
        """More of those that were submitted lately."""
        known = sorted(self.jobs)[-300:]
        return self.rng.sample(known, min(len(known), self.rng.choice([1, 10])))

    def change(self) -> None:
        """The policy, and leave it so for a while: at times without one limit, or with a site banned."""
        rng = self.rng
        self.apply(
            rng.choice([5, 40, 100]),
            rng.choice([0, 4, 20]),
            rng.choice([None, 0, 2, 20]),
            shares=(rng.choice([1, 10, 1000]), rng.choice([1, 10])),
            banned=rng.random() < 0.3,
        )
        self.stop.wait(rng.uniform(0.3, 1.2))

    def apply(
        self,
        all_: int,
        alice: int,
        long: int | None,
        *,
        shares: tuple[int, int] = (10, 10),
        banned: bool = False,
    ) -> None:
        text = POLICY.format(
            administrator=self.administrator, home=shares[0], others=shares[1], banned=str(banned).lower()
        )
        text += LIMITS.format(all=all_, alice=alice) + ("" if long is None else LONG.format(long=long))
        answer = self.client.apply_policy(text)
        self.applied[answer.version] = text
