"""The table of API calls: every call has its route, and every route is made from a call."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, get_args, get_type_hints

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from pilotage import wire
from pilotage.core.policy.model import PROPERTIES
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from pilotage.server.http.routes import routers
from pilotage.wire.bans import BAN_USER, BanLift, BanSummary
from pilotage.wire.call import PERSON, ApiCall, NoRequest, all_calls
from pilotage.wire.jobs import COUNT_JOBS, LIST_JOBS, ActionRequest, ListedJobs
from tests.acceptance.loop_entries import ENTRIES

CALLS = all_calls()
SOURCE = Path(wire.__file__).parents[1]


def test_every_call_has_a_route_and_an_entry_of_the_loop_test() -> None:
    routes = [route for router in routers() for route in router.routes if isinstance(route, APIRoute)]
    assert all(isinstance(route, CheckedRoute) for route in routes)
    keys = [f"{' '.join(route.methods or ())} {route.path}" for route in routes]
    assert sorted([*keys, *(f"POST {path}" for path in ENDPOINTS)]) == sorted(CALLS)
    assert ENTRIES.keys() == CALLS.keys()


WITHOUT_CLIENT = {
    "READ_PROGRAM": "for the script of a batch job",
    "FIND_UPLOAD": "for other programs: FIND_MISSING asks for many",
    "SHOW_SUBMISSION": "for other programs: OPEN_SUBMISSION finds it by its key",
}


def test_every_call_has_a_sender_in_the_program_or_a_reason() -> None:
    senders = [SOURCE / folder for folder in ("client", "agent", "pilot")]
    text = "".join(path.read_text() for folder in senders for path in sorted(folder.rglob("*.py")))
    names = {
        name
        for module in iter_modules(wire.__path__)
        if module.name != "monitoring"
        for name, member in vars(import_module(f"pilotage.wire.{module.name}")).items()
        if isinstance(member, ApiCall)
    }
    assert names - set(re.findall(r"[A-Z_]{3,}", text)) == WITHOUT_CLIENT.keys()


def test_senders_are_named_by_properties_of_the_policy() -> None:
    named = {name for call in CALLS.values() for name in call.access.properties or ()}
    assert named <= set(PROPERTIES)


def test_an_address_has_the_values_of_its_parts() -> None:
    call = ApiCall("GET", "/v1/jobs/{job}/outputs/{name:path}", NoRequest, bytes, PERSON)
    assert call.address(job=3, name="a b/c") == "/v1/jobs/3/outputs/a%20b/c"


def test_a_route_without_a_call_is_refused() -> None:
    router = APIRouter(route_class=CheckedRoute)
    with pytest.raises(LookupError, match="GET /v1/new is not in the table"):
        router.get("/v1/new")(lambda: None)


def test_a_route_that_takes_another_request_than_its_call_is_refused() -> None:
    async def lift(body: BanLift) -> BanSummary:
        raise AssertionError(body)

    with pytest.raises(TypeError, match="lift takes no BanRequest, the request of POST /v1/bans"):
        CallRouter("bans").call(BAN_USER)(lift)


def _has_pattern(kind: Any) -> bool:
    """Whether a message, or a part of it, takes a pattern of names."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return "name_pattern" in hints or any(_has_pattern(hint) for hint in hints.values())
    return any(map(_has_pattern, get_args(kind)))


def test_patterns_of_names_choose_jobs_for_lists_only() -> None:
    """A pattern may choose more jobs than its writer thought of: no call that may change something takes one."""
    takers = {key for key, call in CALLS.items() if _has_pattern(call.request)}
    assert takers == {LIST_JOBS.key, COUNT_JOBS.key}
    assert {CALLS[key].method for key in takers} == {"GET"}
    with pytest.raises(TypeError, match="list"):
        ActionRequest(ListedJobs(name_pattern="a*"))
    with pytest.raises(ValidationError, match="name_pattern"):
        TypeAdapter(ActionRequest).validate_python({"selection": {"owner": "alice", "name_pattern": "a*"}})
