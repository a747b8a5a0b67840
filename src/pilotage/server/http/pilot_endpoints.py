"""The endpoints for pilots' messages, decoded straight into the wire's dataclasses without routing or models.

Connections answer these calls themselves (`pilot_protocol`). `serve` answers the same calls as bare ASGI: requests
with another method, and addresses with a query string or escapes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilotage.core.errors import InvalidInput, NotAuthenticated, TooLarge, TooSlow
from pilotage.server.context import Context
from pilotage.server.errors import answer
from pilotage.server.http.connection_limits import BODY_WITHOUT_TOKEN
from pilotage.server.http.decoding import with_limits
from pilotage.server.http.json_bodies import check_values
from pilotage.services.director.probes import receive_report
from pilotage.services.matching.match import MOST
from pilotage.services.pilots.enrolment import enrol
from pilotage.services.pilots.exchange import token_hash
from pilotage.services.pilots.message_parts import joined, parts_of
from pilotage.store.tables import pilots
from pilotage.store.writer.transaction import BatchableRequest, Request
from pilotage.store.writer.writer import Writer
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest, ExchangeResponse, ProbeReport

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Message = TypeVar("Message")

MAX_BODY = 32_000_000
"""Bytes of a body from an authenticated sender."""
MAX_TAIL = 4_000_000
"""Bytes of a piece of a payload's output that a pilot sends while the payload runs."""

_exchange_request = msgspec.json.Decoder(with_limits(ExchangeRequest))
_enrol_request = msgspec.json.Decoder(with_limits(EnrolRequest))
_probe_report = msgspec.json.Decoder(with_limits(ProbeReport))
_encode = msgspec.json.Encoder().encode


class PilotCall(NamedTuple):
    """The request for the writer, and the encoder of its result."""

    request: Request
    encode: Callable[[Any], bytes]
    authenticates: bool
    """Whether success shows that the caller's token is valid."""
    earlier: Sequence[Request] = ()
    """Parts of a long message: requests to be carried out before, each in a transaction of its own."""
    join: Callable[[list[Any]], Any] = itemgetter(-1)
    """Makes the result of the call from the results of all its requests."""

    async def carry_out(self, writer: Writer) -> Any:
        """The result of a call of several parts. Between them the writer serves others."""
        return self.join([await writer.acall(request) for request in (*self.earlier, self.request)])


Body = bytes | bytearray
Handler = Callable[[Context, str, Body], PilotCall]
"""(context, token, body) → the call. Raises the error that the caller receives (`error_answer`)."""


class EndpointError(NamedTuple):
    status: int
    payload: bytes
    retry_after: int
    """Seconds; 0: the header is not sent."""


def _exchange(context: Context, token: str, body: Body) -> PilotCall:
    if not token:
        raise NotAuthenticated("no token was given", hint="enrol first")
    request = _decode(_exchange_request, body)
    hashed, messages = token_hash(token), parts_of(request)
    encode: Callable[[Any], bytes] = _encode
    if request.leaving or request.releases:

        def encode_and_wake(response: ExchangeResponse) -> bytes:
            context.wake.director.set()
            return _encode(response)

        encode = encode_and_wake

    *earlier, last = (
        BatchableRequest(context.pilots.exchange, (hashed, part), _weight(part)) for part in messages
    )
    return PilotCall(last, encode, True, earlier, joined if earlier else itemgetter(-1))


def _weight(request: ExchangeRequest) -> int:
    """How many simple messages the request is worth."""
    reports = len(request.finishes) + len(request.releases) + len(request.confirms)
    return max(1, reports, min(request.take.count, MOST) if request.take is not None else 0)


def _enrol(context: Context, token: str, body: Body) -> PilotCall:
    request = _decode(_enrol_request, body)
    pool, clock = context.pool, context.clock
    return PilotCall(lambda tx: enrol(pool, tx, request, clock()), _encode, False)


def _probe(context: Context, token: str, body: Body) -> PilotCall:
    report = _decode(_probe_report, body)
    pool, clock = context.pool, context.clock
    return PilotCall(lambda tx: receive_report(pool, tx, token, report, clock()), _encode, True)


def _decode(decoder: msgspec.json.Decoder[Message], body: Body) -> Message:
    """Decode a body. All errors are the sender's mistake, so none is logged."""
    check_values(body)
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        reason = str(error)
    except UnicodeError:
        reason = "it is not UTF-8"
    except RecursionError:
        reason = "its values are nested too deeply"
    raise InvalidInput(f"the body is not a message for this address: {reason}")


class PilotEndpoint(NamedTuple):
    """The handler and limits of one address for pilots' calls."""

    handler: Handler
    max_body: int
    """Bytes."""
    needs_token: bool
    """Whether a body of more than `BODY_WITHOUT_TOKEN` bytes is accepted only with a known token."""


ENDPOINTS: dict[str, PilotEndpoint] = {
    "/v1/pilot/exchange": PilotEndpoint(_exchange, MAX_BODY, True),
    "/v1/pilot/enrol": PilotEndpoint(_enrol, BODY_WITHOUT_TOKEN, False),
    "/v1/pilot/probe": PilotEndpoint(_probe, BODY_WITHOUT_TOKEN, True),
}


async def pilot_is_known(context: Context, token: str) -> bool:
    """Whether a pilot has this token."""
    if not token:
        return False
    hashed = token_hash(token)
    if hashed in context.pool.pilots.rows:
        return True
    return await context.quick_read(lambda connection: pilots.by_token(connection, hashed)) is not None


def error_answer(error: BaseException) -> EndpointError:
    """The answer for a call that failed."""
    status, error_body = answer(_as_input_error(error))
    retry_after = max(1, round(error_body.retry_after)) if error_body.retry_after else 0
    return EndpointError(status, _encode(error_body), retry_after)


def _as_input_error(error: BaseException) -> BaseException:
    """The same error, or `InvalidInput` where a value of the message cannot be stored in a database."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("a text of the message is not valid Unicode: it has half of a surrogate pair")
    if isinstance(error, OverflowError):
        return InvalidInput("a number of the message has more than 64 bits")
    return error


def bearer(value: bytes) -> str:
    """The token of an Authorization header; empty if it has none."""
    kind, _, token = value.partition(b" ")
    return token.decode("latin-1").strip() if kind.lower() == b"bearer" else ""


async def serve(
    context: Context, endpoint: PilotEndpoint, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer one request as an ASGI application."""
    status, headers = 200, [(b"content-type", b"application/json")]
    try:
        if scope["method"] != "POST":
            raise InvalidInput("this address accepts POST only")
        token = _token_of(scope)
        body = await _read_body(context, endpoint, token, receive)
        call = endpoint.handler(context, token, body)
        payload = call.encode(await call.carry_out(context.writer))
    except Exception as error:
        status, payload, retry_after = error_answer(error)
        if retry_after:
            headers.append((b"retry-after", str(retry_after).encode()))
    headers.append((b"content-length", str(len(payload)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})


async def _read_body(context: Context, endpoint: PilotEndpoint, token: str, receive: Receive) -> Body:
    body, known = bytearray(), not endpoint.needs_token
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise TooSlow("the request is incomplete")
        body += message.get("body", b"")
        if len(body) > endpoint.max_body:
            raise TooLarge(f"the body has more than {endpoint.max_body} bytes")
        if len(body) > BODY_WITHOUT_TOKEN and not known:
            known = await pilot_is_known(context, token)
            if not known:
                raise NotAuthenticated("this pilot's token is not known", hint="enrol first")
        if not message.get("more_body"):
            return body


def _token_of(scope: Scope) -> str:
    return next((bearer(value) for name, value in scope["headers"] if name == b"authorization"), "")
