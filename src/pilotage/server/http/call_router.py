"""Routes made from the table of API calls (wire/call.py): a route cannot differ from its row."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from fastapi import APIRouter, Depends, Query, Response

from pilotage.server.http.edge import BINARY, CheckedRoute
from pilotage.wire.call import ApiCall, NoRequest, Nothing

Answer = TypeVar("Answer")
Handler = Callable[..., Answer | Response | Awaitable[Answer | Response]]


class CallRouter(APIRouter):
    """A router whose routes are rows of the table of calls. `tag`: their chapter in the OpenAPI document."""

    def __init__(self, tag: str) -> None:
        super().__init__(tags=[tag], route_class=CheckedRoute)

    def call(
        self, call: ApiCall[Any, Answer], **options: Any
    ) -> Callable[[Handler[Answer]], Handler[Answer]]:
        """Serve a call by the decorated function. It takes the call's request, and the parts of its address."""
        if call.answer in (bytes, Nothing):
            content = BINARY if call.answer is bytes else None
            options = {"response_class": Response, "responses": content, **options}

        def register(handler: Handler[Answer]) -> Handler[Answer]:
            described = None if call.answer in (bytes, Nothing) else call.answer
            _take_request(handler, call)
            self.add_api_route(
                call.path,
                handler,
                methods=[call.method],
                status_code=call.status,
                response_model=described,
                **options,
            )
            return handler

        return register


def _take_request(handler: Callable[..., Any], call: ApiCall[Any, Any]) -> None:
    """Let FastAPI read the request of the call: it takes a parameter of this type as the body by itself."""
    if call.request is NoRequest:
        return
    signature = inspect.signature(handler, eval_str=True)
    if call.request not in [parameter.annotation for parameter in signature.parameters.values()]:
        raise TypeError(f"{handler.__name__} takes no {call.request.__name__}, the request of {call.key}")
    if call.has_query:
        query = Annotated[call.request, Depends(_reader_of(call.request))]  # type: ignore[name-defined]
        parameters = [
            parameter.replace(annotation=query) if parameter.annotation is call.request else parameter
            for parameter in signature.parameters.values()
        ]
        handler.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]


def _reader_of(kind: type) -> Callable[..., Any]:
    """A function that makes a `kind` of the parameters of a query."""
    hints = get_type_hints(kind, include_extras=True)

    def read(**given: Any) -> Any:
        return kind(**given)

    read.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(field, hints[field.name]) for field in fields(kind)]
    )
    return read


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    """The parameter of a field. A text in the type of the field is its description in the OpenAPI document."""
    description = next((extra for extra in get_args(hint)[1:] if isinstance(extra, str)), None)
    default = field.default
    if default is MISSING:
        default = inspect.Parameter.empty if field.default_factory is MISSING else field.default_factory()
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint, Query(description=description)],
    )
