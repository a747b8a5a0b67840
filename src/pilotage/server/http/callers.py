"""Parameters of routes: the running server, and the user who makes the request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from pilotage.server.context import Context, identity_of
from pilotage.server.tokens import Caller

_bearer = HTTPBearer(auto_error=False)


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def caller_of(
    request: Request,
    _documented: HTTPAuthorizationCredentials | None = Depends(_bearer),
) -> Caller:
    """The user behind a request of a client."""
    identity = identity_of(request.scope)
    assert isinstance(identity, Caller)
    return identity


TheContext = Annotated[Context, Depends(context_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
