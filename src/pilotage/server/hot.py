"""The pilot's calls, as bare ASGI: no routing, no models, decoded straight into the wire's dataclasses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import msgspec

from pilotage.core.errors import InvalidInput, NotAuthenticated, TooLarge
from pilotage.server.context import Context
from pilotage.server.errors import answer
from pilotage.services.enrolment import enrol
from pilotage.services.exchange import token_hash
from pilotage.services.matching import MOST
from pilotage.store.transaction import Item
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest, ExchangeResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_BYTES = 32_000_000

_exchange_request = msgspec.json.Decoder(ExchangeRequest)
_enrol_request = msgspec.json.Decoder(EnrolRequest)
_encode = msgspec.json.Encoder().encode


class Handler(Protocol):
    async def __call__(self, context: Context, token: str, body: bytes) -> bytes: ...


async def _exchange(context: Context, token: str, body: bytes) -> bytes:
    if not token:
        raise NotAuthenticated("no token was given", hint="enrol first")
    request = _exchange_request.decode(body)
    hashed = token_hash(token)
    weight = 1 if request.take is None else max(1, min(request.take.count, MOST))
    response: ExchangeResponse = await context.writer.acall(Item(context.exchange, (hashed, request), weight))
    if request.leaving or request.releases:
        context.wake_director.set()
    return _encode(response)


async def _enrol(context: Context, token: str, body: bytes) -> bytes:
    request = _enrol_request.decode(body)
    pool, clock = context.pool, context.clock
    return _encode(await context.writer.acall(lambda tx: enrol(pool, tx, request, clock())))


HANDLERS: dict[str, Handler] = {"/v1/pilot/exchange": _exchange, "/v1/pilot/enrol": _enrol}


async def serve(context: Context, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one POST."""
    status, headers = 200, [(b"content-type", b"application/json")]
    try:
        if scope["method"] != "POST":
            raise InvalidInput("this address takes POST only")
        body = await _body(receive)
        payload = await handler(context, _token(scope), body)
    except msgspec.MsgspecError as error:
        status, told = answer(InvalidInput(f"the body is not what this address takes: {error}"))
        payload = _encode(told)
    except Exception as error:
        status, told = answer(error)
        payload = _encode(told)
        if told.retry_after:
            headers.append((b"retry-after", str(max(1, round(told.retry_after))).encode()))
    headers.append((b"content-length", str(len(payload)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MOST_BYTES:
            raise TooLarge(f"the body has more than {MOST_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _token(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            return token.decode("latin-1").strip() if kind.lower() == b"bearer" else ""
    return ""
