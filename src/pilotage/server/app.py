"""The HTTP application: bare ASGI for the pilot's messages, FastAPI for everything else."""

from __future__ import annotations

from fastapi import FastAPI

from pilotage import __version__
from pilotage.core.errors import TooLarge
from pilotage.server import errors
from pilotage.server.context import Context
from pilotage.server.hot import HANDLERS, MOST_BYTES, Receive, Scope, Send, serve
from pilotage.server.routes import (
    administration,
    jobs,
    pilot_files,
    places,
    policies,
    shares,
    streams,
    submissions,
    why,
)

STREAMED = ("/v1/uploads/", "/v1/pilot/jobs/")
"""Bodies below these addresses go to the disk as they come, and have limits of their own."""

LIMITS = {
    "/v1/submissions": (
        8_000_000,
        "many rows of parameters are sent in chunks: /v1/submissions/open; files go to /v1/uploads",
    )
}
"""Addresses with a limit of bytes of their own, and what to do about it."""


def build(context: Context) -> Application:
    """The application that answers for `context`."""
    api = FastAPI(title="Pilotage", version=__version__, docs_url="/docs", redoc_url=None)
    api.state.context = context
    errors.install(api)
    for part in (submissions, streams, jobs, places, why, shares, policies, administration, pilot_files):
        api.include_router(part.router)
    api.include_router(administration.monitoring)
    return Application(context, api)


class Application:
    """Sends each request to the handler for its address."""

    def __init__(self, context: Context, api: FastAPI) -> None:
        self.context = context
        self.api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            handler = HANDLERS.get(path)
            if handler is not None:
                await serve(self.context, handler, scope, receive, send)
                return
            if not path.startswith(STREAMED):
                size = _declared_size(scope)
                most, hint = LIMITS.get(path, (MOST_BYTES, "files go to /v1/uploads"))
                if size is None or size > most:
                    await _refuse(size, most, hint, scope, receive, send)
                    return
        await self.api(scope, receive, send)


def _declared_size(scope: Scope) -> int | None:
    """Bytes of the body as declared, 0 for none; None where they are not declared at all."""
    headers = dict(scope["headers"])
    text = headers.get(b"content-length")
    if text is None:
        return None if b"transfer-encoding" in headers else 0
    return int(text) if text.isdigit() else None


async def _refuse(size: int | None, most: int, hint: str, scope: Scope, receive: Receive, send: Send) -> None:
    told = f"the body has {size} bytes" if size is not None else "the size of the body is not declared"
    error = TooLarge(f"{told}: at most {most} are taken here", hint=hint)
    await errors.response_for(error)(scope, receive, send)
