"""The calls of a server by which a client's token is replaced."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.answers import decode
from pilotage.core.errors import Conflict, NotAuthenticated, NotFound

if TYPE_CHECKING:
    from pilotage.client.transport import Transport
    from pilotage.wire.identity import TokenResponse


class TokenCalls:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def refresh(self, token: str) -> TokenResponse:
        """A new token for the old one, which is still valid."""
        answer = self._transport.send(wire.identity.REFRESH_TOKEN, token=token, no_retry=True)
        return decode(answer.content, wire.identity.TokenResponse)

    def exchange(self, token: str, group: str) -> TokenResponse:
        """A token of the server for one of a trusted issuer. `group`: empty: the first one."""
        request = wire.issuers.TokenExchange(token, group)
        answer = self._transport.send(wire.issuers.EXCHANGE_TOKEN, request, token="")
        return decode(answer.content, wire.identity.TokenResponse)

    def ensure_home_token(self) -> None:
        """Let the server write a valid token into the file of its home."""
        with contextlib.suppress(NotAuthenticated, NotFound, Conflict):  # another program has the address
            self._transport.send(wire.identity.RENEW_HOME_TOKEN, token="")
