"""The clients of S3 places of the policy, which routes and duties share, and how the places answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pilotage.core.errors import NotFound, PilotageError
from pilotage.core.policy import Policy
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.operations import (
    ObjectPage,
    ObjectPiece,
    S3Operation,
    SignedRequest,
    StoredObject,
)
from pilotage.server.outside_calls import OutsideCalls
from pilotage.services.jobs.storage_access import StorageAccess

if TYPE_CHECKING:
    from pilotage.outside.storage.s3 import S3Place

log = logging.getLogger(__name__)

Value = TypeVar("Value")

ATTEMPTS_KEPT = 1000
"""Attempts whose rights are kept in memory."""


class StorageState(NamedTuple):
    """How a place has answered last."""

    problem: str
    """Empty: it serves."""
    kind: str
    """The code of the problem. Its words may differ with each answer."""
    since: float


class StorageClients:
    """One client for each S3 place, made when it is first needed. Several threads may use it."""

    def __init__(self, outside: OutsideCalls) -> None:
        """`outside`: makes the calls."""
        self._outside = outside
        self._lock = threading.Lock()
        self._made: dict[str, tuple[S3Options, S3Place]] = {}
        self.states: dict[str, StorageState] = {}
        """The states by name of the place; a place that nobody has asked is missing."""
        self.access: dict[tuple[int, int], StorageAccess] = {}
        """The rights of the latest attempts that have asked, by job and epoch. Used by the loop's thread."""

    def _place(self, policy: Policy, name: str) -> S3Place:
        """The client by the present section of the policy."""
        from pilotage.outside.storage.s3 import S3Place  # here, as it imports an HTTP client

        section = policy.storage.get(name)
        if section is None or section.type != "s3":
            known = ", ".join(sorted(name for name, row in policy.storage.items() if row.type == "s3"))
            raise NotFound(f"the policy has no S3 place {name}", hint=f"there are: {known or 'none'}")
        with self._lock:
            made = self._made.get(name)
            if made is None or made[0] != section.s3:
                if made is not None:
                    made[1].close()
                made = self._made[name] = section.s3, S3Place(section.s3)
        return made[1]

    def keep_access(self, job: int, epoch: int, access: StorageAccess) -> None:
        """Keep the rights of an attempt, which will ask again soon."""
        while len(self.access) >= ATTEMPTS_KEPT:
            del self.access[next(iter(self.access))]
        self.access[job, epoch] = access

    def sign(self, policy: Policy, name: str, operation: S3Operation, now: float) -> SignedRequest:
        """The request by which a pilot does this itself, from now on for a while."""
        place = self._place(policy, name)
        return self._ask(name, "address", SignedRequest, lambda: place.sign(operation, now))

    def look_at(self, policy: Policy, name: str, urls: Sequence[str], now: float) -> list[StoredObject]:
        """The objects with these addresses, as the service tells them."""
        place = self._place(policy, name)
        return self._ask(name, f"look at {urls[0]}", list[StoredObject], lambda: place.look_at(urls, now))

    def list_objects(self, policy: Policy, name: str, after: str, now: float) -> ObjectPage:
        """A page of the objects at a place, with addresses above `after`."""
        place = self._place(policy, name)
        return self._ask(name, f"list {after}", ObjectPage, lambda: place.list_objects(after, now))

    def remove(self, policy: Policy, name: str, urls: Sequence[str], now: float) -> None:
        """Remove objects at a place."""
        place = self._place(policy, name)
        self._ask(name, f"remove {urls[0]}", None, lambda: place.remove(urls, now))

    def read(self, policy: Policy, name: str, piece: ObjectPiece, now: float) -> bytes:
        """A piece of an object at a place."""
        place = self._place(policy, name)
        call = f"read {piece.url} from {piece.offset}"
        return self._ask(name, call, bytes, lambda: place.read(piece, now))

    def check(self, policy: Policy, name: str, now: float) -> str:
        """Ask a place whether it serves, and keep the answer. Returns its problem; empty: there is none."""
        problem = kind = ""
        try:
            place = self._place(policy, name)
            self._ask(name, "check", None, lambda: place.check(now))
        except PilotageError as error:
            problem, kind = str(error), error.code
        known = self.states.get(name)
        is_new = known is None or known.kind != kind
        self.states[name] = StorageState(problem, kind, now if known is None or is_new else known.since)
        if is_new:
            if problem:
                log.warning("storage %s: %s", name, problem)
            elif known is not None:
                log.info("storage %s serves again", name)
        return problem

    def close(self) -> None:
        with self._lock:
            made, self._made = self._made, {}
        for _, place in made.values():
            place.close()

    def _ask(self, name: str, call: str, kind: Any, make: Callable[[], Value]) -> Value:
        return self._outside.ask(f"storage {name}: {call}", kind, make)
