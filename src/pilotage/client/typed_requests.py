"""Calls of the API with typed requests and answers: the base of the client's methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from pilotage.client.transport import Transport
from pilotage.wire.call import ApiCall
from pilotage.wire.limits import MAX_PAGE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pilotage.core.errors import PilotageError

    class RowsPage(Protocol):
        """A page of a list."""

        @property
        def next(self) -> int | None: ...


P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
Row = TypeVar("Row")
Asked = TypeVar("Asked", bound="DataclassInstance")
Rows = TypeVar("Rows", bound="RowsPage")


class TypedRequests:
    """The calls of the table in `pilotage.wire`, with decoded answers."""

    _transport: Transport

    def call(
        self,
        call: ApiCall[Callable[..., R], A],
        request: R | None = None,
        /,
        *,
        timeout: float | None = None,
        **parts: Any,
    ) -> A:
        """Send a call of `pilotage.wire` and return its answer, as in `client.call(BAN_USER, BanRequest("bob"))`.

        `parts`: of its address. `timeout`: seconds without data after which it fails.
        """
        return self._transport.call(call, request, timeout=timeout, **parts)

    def tell_outages(self, tell: Callable[[PilotageError], None]) -> None:
        """Call `tell` with the error when retries take longer than a few seconds, unless `on_outage` was given."""
        self._transport.on_outage = self._transport.on_outage or tell

    def _pages(
        self,
        call: ApiCall[Callable[..., Asked], Rows],
        asked: Asked,
        rows: Callable[[Rows], list[Row]],
        *,
        page: int = MAX_PAGE,
        cursor: str = "after",
        **parts: Any,
    ) -> Iterator[Row]:
        """The rows of all pages. `cursor`: the field that takes the last id of the page before."""
        asked = replace(asked, limit=page)
        while True:
            answer = self.call(call, asked, **parts)
            yield from rows(answer)
            if answer.next is None:
                return
            asked = replace(asked, **{cursor: answer.next})


def verb(call: Callable[[], ApiCall[Callable[P, R], A]]) -> Callable[Concatenate[TypedRequests, P], A]:
    """The method of a call: it takes the fields of the call's request.

    `call` is called by the method: the messages of a call are imported when it is sent.
    """

    def method(self: TypedRequests, /, *args: P.args, **fields: P.kwargs) -> A:
        sent = call()
        return self.call(sent, sent.request(*args, **fields))

    return _documented(method, call)


def verb_on(
    call: Callable[[], ApiCall[Callable[P, R], A]],
) -> Callable[Concatenate[TypedRequests, int, P], A]:
    """The method of a call on one object: it takes the object's number first, the only part of the address."""

    def method(self: TypedRequests, number: int, /, *args: P.args, **fields: P.kwargs) -> A:
        sent = call()
        [part] = sent.parts
        return self.call(sent, sent.request(*args, **fields), **{part: number})

    return _documented(method, call)


def _documented(method: Callable[P, A], call: Callable[[], ApiCall[Any, A]]) -> Callable[P, A]:
    """The method with a hint for `help`, and the call for the reference page, which tells the effect of its route."""
    method.__doc__ = "Send a call of the API: docs/reference/client.md tells its effect."
    method.sends = call  # type: ignore[attr-defined]
    return method
