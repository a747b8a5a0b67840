"""Whatever the server reads has bounds in its type: each integer, number, text, list and mapping of every message."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from fastapi.routing import APIRoute

from pilotage.core.datasets import facts
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.fields import FIELDS
from pilotage.core.jobs.parsers import parse_yaml_mapping
from pilotage.core.requests.fields import LOG_COLLECT, MERGE, OUTPUT, REQUEST, RETRY, STEP
from pilotage.core.requests.parser import parse_mapping
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from pilotage.server.http.routes import routers
from pilotage.wire import limits, pilot, probe
from pilotage.wire.limits import Bounds

PILOTS = {
    "/v1/pilot/exchange": pilot.ExchangeRequest,
    "/v1/pilot/enrol": pilot.EnrolRequest,
    "/v1/pilot/probe": probe.ProbeReport,
}

READ_BY_TABLE = {
    # Values of any type: a table of core has the bounds of each, and the tests below try them.
    "PostMasks.masks[][]",
    "MatchRequest.description[]",
    "SubmitRequest.description[]",
    "NamedSubmission.description[]",
    "OpenRequest.description[]",
    "RequestSubmission.specification[]",
    "Parameters.rows[][]",
}


def routes() -> list[APIRoute]:
    return [route for router in routers() for route in router.routes if isinstance(route, APIRoute)]


def unbounded(hint: Any, place: str, bounds: Bounds | None = None) -> Iterator[str]:
    """The places in a type where a value has no bound."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        own = next((extra for extra in arguments[1:] if isinstance(extra, Bounds)), None)
        yield from unbounded(arguments[0], place, own or bounds)
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        for name, kind in get_type_hints(hint, include_extras=True).items():
            if get_origin(kind) is not ClassVar:
                yield from unbounded(kind, f"{hint.__name__}.{name}")
    elif (
        hint in (bool, type(None))
        or origin is Literal
        or (isinstance(hint, type) and issubclass(hint, enum.Enum))
    ):
        pass
    elif hint in (int, float):
        if bounds is None or bounds.low is None or bounds.high is None:
            yield place
    elif hint is str:
        if bounds is None or bounds.longest is None:
            yield place
    elif origin is list or origin is dict:
        if bounds is None or bounds.longest is None:
            yield place
        for part in arguments:
            yield from unbounded(part, f"{place}[]")
    elif (origin is not None and type(None) in arguments) or origin is Union:
        for part in arguments:
            yield from unbounded(part, place, bounds)
    elif place not in READ_BY_TABLE:
        yield f"{place}: {hint}"


def messages(route: APIRoute) -> Iterator[type]:
    """The bodies of a route."""
    for name, hint in get_type_hints(route.endpoint).items():
        if name != "return" and isinstance(hint, type) and hint.__module__.startswith("pilotage.wire."):
            yield hint


def received() -> dict[str, type]:
    """Every message that the server reads, by name."""
    return {
        kind.__name__: kind
        for kind in (*PILOTS.values(), *(kind for route in routes() for kind in messages(route)))
        if dataclasses.is_dataclass(kind)
    }


def test_every_call_of_pilots_is_among_them() -> None:
    assert PILOTS.keys() == ENDPOINTS.keys()


@pytest.mark.parametrize("name", sorted(received()))
def test_every_field_of_every_message_to_the_server_has_bounds(name: str) -> None:
    assert sorted(set(unbounded(received()[name], name))) == []


def parameters(dependant: Any) -> Iterator[Any]:
    yield from (*dependant.path_params, *dependant.query_params, *dependant.header_params)
    for below in dependant.dependencies:
        yield from parameters(below)


def test_every_parameter_of_every_address_has_bounds() -> None:
    without = []
    for route in routes():
        for parameter in parameters(route.dependant):
            kind, info = parameter.field_info.annotation, parameter.field_info
            place = f"{route.path} {parameter.name}"
            rules = {type(rule).__name__: rule for rule in info.metadata}
            given = [rule for rule in info.metadata if isinstance(rule, Bounds)]
            bounds = given[0] if given else _limit_of(rules)
            without += list(unbounded(kind, place, bounds))
    assert without == []


def _limit_of(rules: dict[str, Any]) -> Bounds:
    return Bounds(
        longest=rules["MaxLen"].max_length if "MaxLen" in rules else None,
        low=rules["Ge"].ge if "Ge" in rules else None,
        high=rules["Le"].le if "Le" in rules else None,
    )


@dataclass
class _New:
    number: int = 0
    amount: float = 0.0
    text: str = ""
    names: list[str] = dataclasses.field(default_factory=list)
    table: dict[str, int] = dataclasses.field(default_factory=dict)
    half: Annotated[int, Bounds(low=0)] = 0


def test_a_new_field_without_bounds_would_be_seen() -> None:
    found = set(unbounded(_New, "_New"))
    assert found >= {f"_New.{name}" for name in ("number", "amount", "text", "names", "table", "half")}
    assert {"_New.names[]", "_New.table[]"} <= found


HUGE: dict[str, Any] = {
    "a text": "x" * 1_100_000,
    "an integer": 10**30,
    "a negative integer": -(10**30),
    "infinity": float("inf"),
    "not a number": float("nan"),
    "a list of texts": [f"x{number}" for number in range(20_000)],
    "a list of a long text": ["x" * 1_100_000],
    "a list of integers": list(range(20_000)),
    "a list of a huge integer": [10**30],
    "a mapping": {f"X{number}": "1" for number in range(20_000)},
    "a mapping to a long text": {"X": "x" * 1_100_000},
}
"""Values that no field of a document may take."""

REQUEST_BASE: dict[str, Any] = {
    "name": "n",
    "events": 10,
    "program": {"executable": "x"},
    "splitting": {"algorithm": "EventBased", "events_per_job": 2},
}
TABLES = {"merge": MERGE, "output": OUTPUT, "log_collect": LOG_COLLECT, "retry": RETRY}


@pytest.mark.parametrize("what", HUGE)
def test_no_field_of_a_job_description_is_unbounded(what: str) -> None:
    for field in FIELDS:
        try:
            submission = parse_yaml_mapping({"executable": "x", field.name: HUGE[what]})
        except InvalidInput:
            continue
        # A number is taken as the text that it is written with.
        read = getattr(submission.description, field.name)
        assert isinstance(HUGE[what], int | float) or "huge integer" in what, field.name
        assert not isinstance(read, int | float), field.name
        assert len(str(read)) < 100, field.name


@pytest.mark.parametrize("what", HUGE)
def test_no_field_of_a_request_is_unbounded(what: str) -> None:
    parse_mapping(REQUEST_BASE)
    for table, fields in {"": (*REQUEST, *STEP), **TABLES}.items():
        for field in fields:
            below = {field.name: HUGE[what]}
            with pytest.raises(InvalidInput):
                parse_mapping({**REQUEST_BASE, **({table: below} if table else below)})


def test_core_and_wire_agree_on_the_facts_of_a_file() -> None:
    assert facts.MAX_EVENTS == limits.MAX_FILE_EVENTS
    assert facts.MAX_SIZE == limits.MAX_FILE_SIZE
    assert facts.MAX_LUMI == limits.MAX_LUMI


ODD: tuple[Any, ...] = ({"a": "b"}, [[]], [{"a": 1}], 1e999, -1, 1.5, True, None, "", "x", [None], {"": None})
"""Values of every kind: a field takes them, or refuses them as invalid input."""


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_no_kind_of_value_ends_a_parser(value: Any) -> None:
    for field in FIELDS:
        with contextlib.suppress(InvalidInput):
            parse_yaml_mapping({"executable": "x", field.name: value, "unknown": value})
    for table, fields in {"": (*REQUEST, *STEP), **TABLES}.items():
        for name in (*(field.name for field in fields), "unknown"):
            below = {name: value, "other": 1}
            with contextlib.suppress(InvalidInput):
                parse_mapping({**REQUEST_BASE, **({table: below} if table else below)})
