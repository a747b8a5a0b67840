"""The pilot's calls: no routing, no models, decoded straight into the wire's dataclasses.

A server's connections (connections.py) answer them by themselves. As bare ASGI (`serve`) they are answered where a
request is out of the ordinary, and of another method or version of HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

import msgspec

from pilotage.core.errors import InvalidInput, NotAuthenticated, TooLarge
from pilotage.server.context import Context
from pilotage.server.errors import answer
from pilotage.services.enrolment import enrol
from pilotage.services.exchange import token_hash
from pilotage.services.matching import MOST
from pilotage.store.transaction import Item, Request
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest, ExchangeResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_BYTES = 32_000_000

_exchange_request = msgspec.json.Decoder(ExchangeRequest)
_enrol_request = msgspec.json.Decoder(EnrolRequest)
_encode = msgspec.json.Encoder().encode


class Call(NamedTuple):
    """What the writer is asked for, and what is made of its answer."""

    request: Request
    told: Callable[[Any], bytes]


Handler = Callable[[Context, str, bytes], Call]
"""(context, token, body) → the call. Raises what the caller is told (`refusal`)."""


class Refusal(NamedTuple):
    status: int
    payload: bytes
    retry_after: int
    """Seconds; 0: it is not worth it."""


def _exchange(context: Context, token: str, body: bytes) -> Call:
    if not token:
        raise NotAuthenticated("no token was given", hint="enrol first")
    request = _exchange_request.decode(body)
    weight = 1 if request.take is None else max(1, min(request.take.count, MOST))
    told = _encode
    if request.leaving or request.releases:

        def told(response: ExchangeResponse) -> bytes:
            context.wake_director.set()
            return _encode(response)

    return Call(Item(context.exchange, (token_hash(token), request), weight), told)


def _enrol(context: Context, token: str, body: bytes) -> Call:
    request = _enrol_request.decode(body)
    pool, clock = context.pool, context.clock
    return Call(lambda tx: enrol(pool, tx, request, clock()), _encode)


HANDLERS: dict[str, Handler] = {"/v1/pilot/exchange": _exchange, "/v1/pilot/enrol": _enrol}


def refusal(error: BaseException) -> Refusal:
    """What is told instead of an answer."""
    if isinstance(error, msgspec.MsgspecError):
        error = InvalidInput(f"the body is not what this address takes: {error}")
    status, told = answer(error)
    return Refusal(status, _encode(told), max(1, round(told.retry_after)) if told.retry_after else 0)


def bearer(value: bytes) -> str:
    """The token of an Authorization header; empty: it has none."""
    kind, _, token = value.partition(b" ")
    return token.decode("latin-1").strip() if kind.lower() == b"bearer" else ""


async def serve(context: Context, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one POST."""
    status, headers = 200, [(b"content-type", b"application/json")]
    try:
        if scope["method"] != "POST":
            raise InvalidInput("this address takes POST only")
        body = await _body(receive)
        call = handler(context, _token(scope), body)
        payload = call.told(await context.writer.acall(call.request))
    except Exception as error:
        status, payload, retry_after = refusal(error)
        if retry_after:
            headers.append((b"retry-after", str(retry_after).encode()))
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
    return next((bearer(value) for name, value in scope["headers"] if name == b"authorization"), "")
