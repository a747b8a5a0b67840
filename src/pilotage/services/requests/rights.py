"""Who may see and change a request."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.core.errors import Forbidden, NotFound
from pilotage.core.policy.model import ADMINISTRATOR, JOB_ADMINISTRATOR, JOB_SHARING, PRODUCTION_MANAGEMENT
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import requests
from pilotage.store.tables.requests import RequestRow


@dataclass(frozen=True, slots=True)
class Actor:
    """A user in a group, with the rights that the policy gives."""

    user: str
    group: str
    properties: frozenset[str]

    @property
    def manages(self) -> bool:
        """May approve and assign requests, and change all of them."""
        return bool(self.properties & {ADMINISTRATOR, PRODUCTION_MANAGEMENT})

    @property
    def sees_all(self) -> bool:
        return self.manages or JOB_ADMINISTRATOR in self.properties

    @property
    def shared_groups(self) -> tuple[str, ...]:
        """The groups whose requests the actor may change like its own."""
        return (self.group,) if JOB_SHARING in self.properties else ()

    def may_change(self, request: RequestRow) -> bool:
        """Own requests, and the group's if it shares its jobs."""
        return self.manages or request.group in self.shared_groups or request.owner == self.user

    def may_see(self, request: RequestRow) -> bool:
        return self.sees_all or self.may_change(request)

    def need_to_manage(self, verb: str) -> None:
        if not self.manages:
            raise Forbidden(
                f"{self.user} ({self.group}) may not {verb} requests",
                hint=f"the property {PRODUCTION_MANAGEMENT} of a group in the policy",
            )

    @property
    def name(self) -> str:
        """The actor in the history."""
        return f"user:{self.user}"


def seen_request(connection: Connection, actor: Actor, number: int) -> RequestRow:
    """The request. Raises `NotFound` also if the actor may not see it."""
    row = requests.by_id(connection, number)
    if row is None or not actor.may_see(row):
        raise _not_found(number)
    return row


def request_to_change(connection: Connection, actor: Actor, number: int) -> RequestRow:
    """The request, locked until the transaction ends. Raises `NotFound` or `Forbidden`."""
    row = requests.for_change(connection, number)
    if row is None or not actor.may_see(row):
        raise _not_found(number)
    if not actor.may_change(row):
        raise Forbidden(f"request {number} belongs to {row.owner}", hint="its owner may change it")
    return row


def _not_found(number: int) -> NotFound:
    return NotFound(f"there is no request {number}", hint="`pilotage request list` shows your requests")
