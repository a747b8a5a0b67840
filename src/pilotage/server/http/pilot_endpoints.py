"""The endpoints for pilots' messages: from the body of a request to the writer, and from its result to the answer.

Messages are decoded straight into the wire's dataclasses, without routing or models. No task and no ASGI event lies
between connection and writer; for a call about a single job these would cost half of its match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from uvicorn.protocols.http.flow_control import FlowControl

from pilotage.core.errors import InvalidInput, NotAuthenticated, TooLarge
from pilotage.server.context import Context
from pilotage.server.http.connection_limits import BODY_WITHOUT_TOKEN
from pilotage.server.http.decoding import with_limits
from pilotage.server.http.json_bodies import check_values
from pilotage.server.http.request_reader import IncomingRequest
from pilotage.server.http.stored_objects import check_objects, has_objects
from pilotage.services.director.probes import receive_report
from pilotage.services.matching.match import MOST
from pilotage.services.pilots.enrolment import enrol
from pilotage.services.pilots.exchange import token_hash
from pilotage.services.pilots.message_parts import joined, parts_of
from pilotage.store.tables import pilots
from pilotage.store.writer.replies import LoopReply
from pilotage.store.writer.transaction import BatchableRequest, Request
from pilotage.store.writer.writer import Writer
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest, ExchangeResponse
from pilotage.wire.pilot_calls import ENROL, EXCHANGE, PROBE
from pilotage.wire.probe import ProbeReport

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
    prepare: Callable[[], Awaitable[None]] | None = None
    """Asks others before the requests are carried out; None: there is nothing to ask."""

    @property
    def is_long(self) -> bool:
        """Whether it needs a task of its own: `run`."""
        return bool(self.earlier) or self.prepare is not None

    async def run(self, writer: Writer) -> Any:
        """The result of a long call. Between its parts the writer serves others."""
        if self.prepare is not None:
            await self.prepare()
        return self.join([await writer.acall(request) for request in (*self.earlier, self.request)])


Body = bytes | bytearray
Decode = Callable[[Context, str, Body], PilotCall]
"""(context, token, body) → the call. Raises the error that the caller receives."""


def _exchange(context: Context, token: str, body: Body) -> PilotCall:
    if not token:
        raise NotAuthenticated("no token was given", hint="enrol first")
    request = _decode(_exchange_request, body)
    hashed, messages = token_hash(token), parts_of(request)
    encode: Callable[[Any], bytes] = _encode
    if request.leaving or request.releases:

        def encode_and_wake(response: ExchangeResponse) -> bytes:
            context.wake.local_ces.set()
            return _encode(response)

        encode = encode_and_wake

    if request.finishes and (telemetry := context.work.telemetry) is not None:
        from pilotage.server.http.spans import FinishSpans

        encode = FinishSpans(context, telemetry, request.finishes, encode)
    *earlier, last = (
        BatchableRequest(context.pilots.exchange, (hashed, part), _weight(part)) for part in messages
    )
    prepare = partial(_check_objects, context, token, messages) if has_objects(request.finishes) else None
    return PilotCall(last, encode, True, earlier, joined if earlier else itemgetter(-1), prepare)


async def _check_objects(context: Context, token: str, messages: Sequence[ExchangeRequest]) -> None:
    """Ask S3 services for the files of finishes. For an unknown token nobody is asked: the exchange refuses it."""
    if await pilot_is_known(context, token):
        await check_objects(context, messages)


def _weight(request: ExchangeRequest) -> int:
    """How many simple messages the request is worth."""
    reports = len(request.finishes) + len(request.releases) + len(request.confirms) + len(request.starts)
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
    """The decoder and limits of one address for pilots' calls."""

    decode: Decode
    max_body: int
    """Bytes. A body of more than `BODY_WITHOUT_TOKEN` bytes is accepted only with a known token."""


ENDPOINTS: dict[str, PilotEndpoint] = {
    EXCHANGE.path: PilotEndpoint(_exchange, MAX_BODY),
    ENROL.path: PilotEndpoint(_enrol, BODY_WITHOUT_TOKEN),
    PROBE.path: PilotEndpoint(_probe, BODY_WITHOUT_TOKEN),
}
_BY_URL = {path.encode(): endpoint for path, endpoint in ENDPOINTS.items()}


def endpoint_of(request: IncomingRequest) -> PilotEndpoint | None:
    """The endpoint of a pilot's call; None for any other request."""
    if request.method != b"POST":
        return None
    return _BY_URL.get(request.url) or ENDPOINTS.get(request.target().path)


async def pilot_is_known(context: Context, token: str) -> bool:
    """Whether a pilot has this token."""
    if not token:
        return False
    hashed = token_hash(token)
    if hashed in context.pool.pilots.rows:
        return True
    return await context.quick_read(lambda connection: pilots.by_token(connection, hashed)) is not None


def storable_error(error: BaseException) -> BaseException:
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


class CallConnection(Protocol):
    """The part of a connection that the handler of a call uses."""

    context: Context
    flow: FlowControl
    is_trusted: bool
    loop: asyncio.AbstractEventLoop

    def trust(self) -> None: ...
    def write(self, data: bytes) -> None: ...
    def answer(self, payload: bytes) -> None: ...
    def refuse(self, error: BaseException) -> None: ...
    def start_task(self, work: Coroutine[Any, Any, None]) -> None: ...


class TokenCheck(Enum):
    """How far the look-up of a token is, which a body of more than `BODY_WITHOUT_TOKEN` bytes needs."""

    OPEN = "no such body has come yet"
    RUNNING = "the token is being looked up"
    DONE = "the token is known, or the body is complete"


_OPEN, _RUNNING, _DONE = TokenCheck.OPEN, TokenCheck.RUNNING, TokenCheck.DONE


class PilotCallHandler:
    """Reads the body of one call, hands the call to the writer, and answers it over the connection."""

    __slots__ = ("_body", "_call", "_connection", "_endpoint", "_request", "_token_check")

    starts_early = changes = False
    response_started = False

    def __init__(self, connection: CallConnection, request: IncomingRequest, endpoint: PilotEndpoint) -> None:
        self._connection = connection
        self._request = request
        self._endpoint = endpoint
        self._token_check = _OPEN
        self._body: Body = b""
        self._call: PilotCall

    @property
    def _token(self) -> str:
        return bearer(self._request.unique_fields.get(b"authorization", b""))

    @property
    def wants_body(self) -> bool:
        return self._token_check is not _RUNNING

    def await_body(self) -> None:
        """Prepare for a body that is not complete yet. Raises the error with which the call is refused."""
        self._limit_body(self._request.declared_size)
        if self.wants_body:
            self._send_continue()

    def _send_continue(self) -> None:
        if self._request.expects_continue:
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _limit_body(self, size: int) -> None:
        """Refuse a body that is too large, and look up the token of a large one."""
        if size > self._endpoint.max_body:
            raise TooLarge(f"the body has more than {self._endpoint.max_body} bytes")
        if size > BODY_WITHOUT_TOKEN and self._token_check is _OPEN:
            self._token_check = _RUNNING
            self._connection.start_task(self._look_up_token())

    async def _look_up_token(self) -> None:
        """Resume the body if the token is valid. No other request is read meanwhile, since reading is paused."""
        error: Exception | None = None
        try:
            if not await pilot_is_known(self._connection.context, self._token):
                error = NotAuthenticated("this pilot's token is not known", hint="enrol first")
        except Exception as lookup_error:
            error = lookup_error
        if self._token_check is not _RUNNING:
            return
        self._token_check = _DONE
        if error is not None:
            self._connection.refuse(error)
            return
        self._connection.trust()
        self._send_continue()
        self._connection.flow.resume_reading()

    def add_body(self, data: Body) -> None:
        if self._request.size > BODY_WITHOUT_TOKEN:
            self._limit_body(self._request.size)
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data

    def complete(self) -> None:
        self._token_check = _DONE
        connection, loop = self._connection, self._connection.loop
        try:
            call = self._call = self._endpoint.decode(connection.context, self._token, self._body)
            if call.is_long:
                connection.start_task(self._carry_out())
            else:
                connection.context.writer.submit(call.request, LoopReply(loop, self._finish))
        except Exception as error:
            # Not now: the connection has yet to handle the data that arrived together with the request.
            loop.call_soon(connection.refuse, storable_error(error))

    def abandon(self) -> None:
        self._token_check = _DONE

    async def _carry_out(self) -> None:
        """Answer a call of several parts, or one that asks others before."""
        try:
            result = await self._call.run(self._connection.context.writer)
        except Exception as error:
            self._finish(None, error)
        else:
            self._finish(result, None)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                if self._call.authenticates and not self._connection.is_trusted:
                    self._connection.trust()
                self._connection.answer(self._call.encode(result))
                return
        except Exception as unexpected:
            error = unexpected
        self._connection.refuse(storable_error(error))
