"""The pilot's calls: no routing, no models, decoded straight into the wire's dataclasses.

A server's connections (connections.py) answer them by themselves. As bare ASGI (`serve`) they are answered where a
request is out of the ordinary, and of another method or version of HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilotage.core.errors import InvalidInput, NotAuthenticated, TooLarge, TooSlow
from pilotage.server.context import Context
from pilotage.server.errors import answer
from pilotage.server.http.connection_limits import BODY_WITHOUT_TOKEN
from pilotage.server.http.decoding import limited
from pilotage.services.matching.match import MOST
from pilotage.services.pilots.enrolment import enrol
from pilotage.services.pilots.exchange import token_hash
from pilotage.store.tables import pilots
from pilotage.store.writer.transaction import Item, Request
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest, ExchangeResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asked = TypeVar("Asked")

MOST_BYTES = 32_000_000
"""Of a body from a sender that is known."""

_exchange_request = msgspec.json.Decoder(limited(ExchangeRequest))
_enrol_request = msgspec.json.Decoder(limited(EnrolRequest))
_encode = msgspec.json.Encoder().encode


class PilotCall(NamedTuple):
    """What the writer is asked for, and what is made of its answer."""

    request: Request
    told: Callable[[Any], bytes]
    authenticated: bool
    """Whether an answer that is no error shows that the caller's token is valid."""


Body = bytes | bytearray
Handler = Callable[[Context, str, Body], PilotCall]
"""(context, token, body) → the call. Raises what the caller is told (`refusal`)."""


class EndpointError(NamedTuple):
    status: int
    payload: bytes
    retry_after: int
    """Seconds; 0: it is not worth it."""


def _exchange(context: Context, token: str, body: Body) -> PilotCall:
    if not token:
        raise NotAuthenticated("no token was given", hint="enrol first")
    request = _decoded(_exchange_request, body)
    weight = 1 if request.take is None else max(1, min(request.take.count, MOST))
    told = _encode
    if request.leaving or request.releases:

        def told(response: ExchangeResponse) -> bytes:
            context.wake_director.set()
            return _encode(response)

    return PilotCall(Item(context.exchange, (token_hash(token), request), weight), told, True)


def _enrol(context: Context, token: str, body: Body) -> PilotCall:
    request = _decoded(_enrol_request, body)
    pool, clock = context.pool, context.clock
    return PilotCall(lambda tx: enrol(pool, tx, request, clock()), _encode, False)


def _decoded(decoder: msgspec.json.Decoder[Asked], body: Body) -> Asked:
    """The message of a body. Whatever is wrong with it is the sender's mistake, and is not logged."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        reason = str(error)
    except UnicodeError:
        reason = "it is not UTF-8"
    except RecursionError:
        reason = "its values are nested too deeply"
    raise InvalidInput(f"the body is not what this address takes: {reason}")


class Hot(NamedTuple):
    """An address of pilots' calls."""

    handler: Handler
    most: int
    """Bytes of a body."""
    needs_token: bool
    """Whether a body of more than `BODY_WITHOUT_TOKEN` is taken only with a known token."""


HANDLERS: dict[str, Hot] = {
    "/v1/pilot/exchange": Hot(_exchange, MOST_BYTES, True),
    "/v1/pilot/enrol": Hot(_enrol, BODY_WITHOUT_TOKEN, False),
}


async def pilot_is_known(context: Context, token: str) -> bool:
    """Whether a pilot has this token."""
    if not token:
        return False
    hashed = token_hash(token)
    if hashed in context.pool.pilots:
        return True
    return await context.glance(lambda connection: pilots.by_token(connection, hashed)) is not None


def refusal(error: BaseException) -> EndpointError:
    """What is told instead of an answer."""
    status, told = answer(_of_the_message(error))
    return EndpointError(status, _encode(told), max(1, round(told.retry_after)) if told.retry_after else 0)


def _of_the_message(error: BaseException) -> BaseException:
    """A value of the message that no database can hold is the sender's mistake too."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("a text of the message is no Unicode: it has half of a surrogate pair")
    if isinstance(error, OverflowError):
        return InvalidInput("a number of the message has more than 64 bits")
    return error


def bearer(value: bytes) -> str:
    """The token of an Authorization header; empty: it has none."""
    kind, _, token = value.partition(b" ")
    return token.decode("latin-1").strip() if kind.lower() == b"bearer" else ""


async def serve(context: Context, hot: Hot, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one POST."""
    status, headers = 200, [(b"content-type", b"application/json")]
    try:
        if scope["method"] != "POST":
            raise InvalidInput("this address takes POST only")
        token = _token(scope)
        body = await _body(context, hot, token, receive)
        call = hot.handler(context, token, body)
        payload = call.told(await context.writer.acall(call.request))
    except Exception as error:
        status, payload, retry_after = refusal(error)
        if retry_after:
            headers.append((b"retry-after", str(retry_after).encode()))
    headers.append((b"content-length", str(len(payload)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})


async def _body(context: Context, hot: Hot, token: str, receive: Receive) -> Body:
    body, known = bytearray(), not hot.needs_token
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise TooSlow("the request did not come whole")
        body += message.get("body", b"")
        if len(body) > hot.most:
            raise TooLarge(f"the body has more than {hot.most} bytes")
        if len(body) > BODY_WITHOUT_TOKEN and not known:
            known = await pilot_is_known(context, token)
            if not known:
                raise NotAuthenticated("this pilot's token is not known", hint="enrol first")
        if not message.get("more_body"):
            return body


def _token(scope: Scope) -> str:
    return next((bearer(value) for name, value in scope["headers"] if name == b"authorization"), "")
