"""The calls of an agent to the server."""

from __future__ import annotations

from typing import TypeVar

from pilotage.client import Client
from pilotage.client.answers import decode
from pilotage.wire.agents import (
    FilesPage,
    JoinRequest,
    JoinResponse,
    MasksPage,
    OfferedElement,
    PostedMasks,
    PostMasks,
    SyncRequest,
    SyncResponse,
)

T = TypeVar("T")

CALL_TIMEOUT = 30.0
"""Seconds without data after which a call fails, and is sent again."""


class AgentCalls(Client):
    """A client with the calls of `wire/agents.py`. Each may be sent again after a lost answer."""

    def join(self, request: JoinRequest) -> JoinResponse:
        return self._send_again("/v1/agents/join", request, JoinResponse)

    def sync(self, agent: int, request: SyncRequest, *, timeout: float = CALL_TIMEOUT) -> SyncResponse:
        return self._send_again(f"/v1/agents/{agent}/sync", request, SyncResponse, timeout)

    def files(self, agent: int, offer: OfferedElement, after: int) -> FilesPage:
        query = {"epoch": offer.epoch, "after": after}
        return self._get(f"/v1/agents/{agent}/elements/{offer.id}/files", FilesPage, query)

    def masks(self, agent: int, offer: OfferedElement, after: int) -> MasksPage:
        query = {"epoch": offer.epoch, "after": after}
        return self._get(f"/v1/agents/{agent}/elements/{offer.id}/jobs", MasksPage, query)

    def post_masks(self, agent: int, offer: OfferedElement, request: PostMasks) -> PostedMasks:
        return self._send_again(f"/v1/agents/{agent}/elements/{offer.id}/jobs", request, PostedMasks)

    def _send_again(self, path: str, body: object, kind: type[T], timeout: float = CALL_TIMEOUT) -> T:
        answer = self._transport.request("POST", path, json=body, idempotent=True, timeout=timeout)
        return decode(answer.content, kind)
