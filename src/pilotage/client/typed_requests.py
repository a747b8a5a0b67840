"""Requests with decoded answers, the base of the client's methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from pilotage.client.answers import decode
from pilotage.client.transport import Query, Transport
from pilotage.wire.limits import MAX_PAGE

if TYPE_CHECKING:
    from pilotage.wire.datasets import BlocksPage, DataSetFilesPage, DataSetsPage
    from pilotage.wire.identity import TokensPage
    from pilotage.wire.jobs import JobsPage
    from pilotage.wire.policy import PolicyVersionsPage
    from pilotage.wire.pool import PilotsPage, QueuesPage

T = TypeVar("T")
P = TypeVar(
    "P",
    "JobsPage",
    "QueuesPage",
    "PilotsPage",
    "PolicyVersionsPage",
    "TokensPage",
    "DataSetsPage",
    "BlocksPage",
    "DataSetFilesPage",
)


class TypedRequests:
    """Requests whose answers are decoded by type."""

    _transport: Transport

    def _get(self, path: str, kind: type[T], query: Query | None = None) -> T:
        return decode(self._transport.request("GET", quote(path), query=query).content, kind)

    def _post(self, path: str, body: object, kind: type[T], *, idempotent: bool | None = None) -> T:
        return decode(self._transport.request("POST", path, json=body, idempotent=idempotent).content, kind)

    def _pages(
        self,
        path: str,
        kind: type[P],
        rows: Callable[[P], list[T]],
        page: int = MAX_PAGE,
        query: Query | None = None,
    ) -> Iterator[T]:
        asked = {"limit": page, **(query or {})}
        while True:
            answer = self._get(path, kind, asked)
            yield from rows(answer)
            if answer.next is None:
                return
            asked["after"] = answer.next
