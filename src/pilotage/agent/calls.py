"""The calls of an agent to the server."""

from __future__ import annotations

from pilotage.client import Client
from pilotage.wire.agents import (
    JOIN,
    POST_MASKS,
    READ_FILES,
    READ_MASKS,
    SYNC,
    FilesPage,
    HeldElementQuery,
    JoinRequest,
    JoinResponse,
    MasksPage,
    OfferedElement,
    PostedMasks,
    PostMasks,
    SyncRequest,
    SyncResponse,
)

CALL_TIMEOUT = 30.0
"""Seconds without data after which a call fails, and is sent again."""


class AgentCalls(Client):
    """A client with the calls of `wire/agents.py`. Each may be sent again after a lost answer."""

    def join(self, request: JoinRequest) -> JoinResponse:
        return self.call(JOIN, request, timeout=CALL_TIMEOUT)

    def sync(self, agent: int, request: SyncRequest, *, timeout: float = CALL_TIMEOUT) -> SyncResponse:
        return self.call(SYNC, request, timeout=timeout, agent=agent)

    def files(self, agent: int, offer: OfferedElement, after: int) -> FilesPage:
        asked = HeldElementQuery(offer.epoch, after)
        return self.call(READ_FILES, asked, agent=agent, element=offer.id)

    def masks(self, agent: int, offer: OfferedElement, after: int) -> MasksPage:
        asked = HeldElementQuery(offer.epoch, after)
        return self.call(READ_MASKS, asked, agent=agent, element=offer.id)

    def post_masks(self, agent: int, offer: OfferedElement, request: PostMasks) -> PostedMasks:
        return self.call(POST_MASKS, request, timeout=CALL_TIMEOUT, agent=agent, element=offer.id)
