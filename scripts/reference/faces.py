"""The tables of docs/reference/api.md and client.md: from the OpenAPI document, and from the methods of the client."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, cast, get_args

from fastapi.routing import APIRoute

from pilotage.client import Client
from pilotage.server.context import Context
from pilotage.server.http.routes import routers
from pilotage.server.http.routing import build_routes
from pilotage.wire.call import PERSON, ApiCall, all_calls
from pilotage.wire.jobs import Selection

SELECTION = {field.name for field in fields(Selection)}


def addresses() -> str:
    """A row for each route: method, address, docstring, the senders that it accepts, query, body and answer."""
    document = build_routes(cast(Context, None)).openapi()
    # The OpenAPI document has no converters in its paths.
    access = {key.replace(":path}", "}"): call.access.meaning for key, call in all_calls().items()}
    lines = ["| | address | | who | query | body | answer |", "|---|---|---|---|---|---|---|"]
    for path, methods in sorted(document["paths"].items()):
        for method, route in methods.items():
            lines.append(
                f"| `{method.upper()}` | `{path.replace('_}', '}')}` | {one_line(route.get('description', ''))} |"
                f" {access[f'{method.upper()} {path}']} | {_query(route)} | {_body(route)} | {_answer(route)} |"
            )
    return "\n".join(lines)


def _query(route: dict[str, Any]) -> str:
    names = [part["name"] for part in route.get("parameters", []) if part["in"] == "query"]
    selection = set(names) >= SELECTION
    shown = [f"`{name}`" for name in names if not (selection and name in SELECTION)]
    return ", ".join([*shown, *(["a [selection](#selections)"] if selection else [])])


def _body(route: dict[str, Any]) -> str:
    return ", ".join(_schema(content) for content in route.get("requestBody", {}).get("content", {}).values())


def _answer(route: dict[str, Any]) -> str:
    found = []
    for status, answer in route["responses"].items():
        if status.startswith("2"):
            found += [_schema(content) for content in answer.get("content", {}).values()]
    return ", ".join(dict.fromkeys(filter(None, found)))


def _schema(content: dict[str, Any]) -> str:
    schema = content.get("schema", {})
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"list of {_schema({'schema': schema['items']})}"
    if schema.get("format") == "binary":
        return "bytes"
    return "object" if schema.get("type") == "object" else ""


def verbs() -> str:
    """A row for each public method of the client: its signature, and the first paragraph of its docstring."""
    effects = _effects()
    lines = ["| call | answer | |", "|---|---|---|"]
    for name, method in public_methods():
        text = inspect.getdoc(method) or ""
        if hasattr(method, "sends"):
            call = method.sends()
            method, text = _sender(call), one_line(effects[call.key])
            if call.access is not PERSON and "dministrators" not in text:
                text += f" For {call.access.meaning}."
        signature = inspect.signature(method)
        parameters = [part for part in signature.parameters.values() if part.name not in ("self", "cls")]
        answer = (
            "" if signature.return_annotation in ("None", None) else f"`{_type(signature.return_annotation)}`"
        )
        shown = f"{name}({', '.join(map(_parameter, parameters))})"
        lines.append(f"| `{shown}` | {answer} | {one_line(text)} |")
    return "\n".join(lines)


def _effects() -> dict[str, str]:
    """The docstring of each route, by the key of its call."""
    routes = (route for router in routers() for route in router.routes if isinstance(route, APIRoute))
    return {f"{' '.join(route.methods or ())} {route.path}": route.description for route in routes}


def _sender(call: ApiCall[Any, Any]) -> Callable[..., Any]:
    """A function with the signature of the method of a call."""

    def sender() -> None: ...

    parts = [inspect.Parameter(part, inspect.Parameter.POSITIONAL_ONLY) for part in call.parts]
    fields = inspect.signature(call.request).parameters.values()
    answer = inspect.formatannotation(call.answer) if get_args(call.answer) else call.answer.__name__
    sender.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*parts, *fields], return_annotation=answer
    )
    return sender


def public_methods() -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(Client):
        if not name.startswith("_") and callable(member):
            yield name, member


def _parameter(part: inspect.Parameter) -> str:
    if part.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{part.name}"
    if part.default is inspect.Parameter.empty:
        return part.name
    simple = part.default is None or isinstance(part.default, str | int | float | bool | tuple)
    return f"{part.name}={part.default!r}" if simple else f"{part.name}=…"


def _type(annotation: object) -> str:
    text = (
        str(annotation) if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    )
    return re.sub(r"\b([a-z_]+\.)+(?=[A-Z])", "", text).replace("List[", "list[").replace("|", "or")


def one_line(text: str) -> str:
    """The first paragraph, as a cell of a table."""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")
