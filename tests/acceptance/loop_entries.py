"""For every route and pilot's call: the largest requests that it accepts, for `test_loop_is_never_held.py`.

A new route needs a line in ENTRIES. `EDGES` asks with every parameter at its edges. `BY_TYPE` sends the largest bodies
that the types allow. A route whose work depends on more than the types has a function of its own, with bodies that
reach this work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import quote

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from pilotage.wire import limits
from pilotage.wire.limits import Bounds
from pilotage.wire.pilot import MAX_HELD, EnrolRequest, ExchangeRequest
from pilotage.wire.probe import ProbeReport
from tests.largest_bodies import Largest

MANY = 140_000
"""Values of a body: about as many as are accepted."""


@dataclass
class Sent:
    """One request of an entry."""

    path: str
    content: bytes | None = None
    token: str = ""
    """Empty: the administrator's."""


@dataclass
class World:
    """The objects of the server that the requests name."""

    known: dict[str, Any]
    """By the name of a parameter of an address."""
    dataset: str
    agent: int
    nonce: str
    element: int
    epoch: int
    files: list[int]
    """Of the element."""
    pilot_token: str
    incarnation: int
    held: list[tuple[int, int]]
    """(job, epoch) that the pilot was offered."""


Entry = Callable[[World, Any], Iterable[Sent]]


def body(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=asdict).encode()


# --- addresses and their parameters

NUMBERS = (0, -1, 1, 2**31, 2e11, -2e11, 1e15, 1e300, "nan", "inf", 2**63 - 1, 2**63)


def in_address(dependant: Dependant) -> list[Any]:
    """The parameters in the address of a route."""
    return [*dependant.path_params, *chain(*map(in_address, dependant.dependencies))]


def in_query(dependant: Dependant) -> list[Any]:
    """The parameters in the query of a route, those of the class of its query among them."""
    return [*dependant.query_params, *chain(*map(in_query, dependant.dependencies))]


def address(world: World, route: APIRoute) -> str:
    path = route.path
    for parameter in in_address(route.dependant):
        for braces in (f"{{{parameter.name}}}", f"{{{parameter.name}:path}}"):
            path = path.replace(braces, str(world.known.get(parameter.name, "x" * 255)))
    return path


def edges(world: World, route: APIRoute) -> Iterator[Sent]:
    """Every parameter of the query and of the address at its edges, one after the other."""
    path = address(world, route)
    needed = {
        parameter.alias: str(world.known.get(parameter.name, 1))
        for parameter in in_query(route.dependant)
        if parameter.field_info.is_required()
    }
    yield Sent(_with_query(path, needed))
    # A choice such as `by` may change what is done with the others.
    choices = [
        {parameter.alias: str(choice)}
        for parameter in in_query(route.dependant)
        for choice in get_args(parameter.field_info.annotation)
        if get_origin(parameter.field_info.annotation) is Literal
    ]
    for parameter in in_query(route.dependant):
        for value in _edges_of(parameter):
            for chosen in ({}, *choices):
                yield Sent(_with_query(path, {**needed, **chosen, parameter.alias: value}))
    for parameter in in_address(route.dependant):
        for value in (*_edges_of(parameter), "x" * 300, "%F0%9F%98%80" * 300):
            others = {**world.known, parameter.name: value}
            yield Sent(_with_query(address(World(**{**vars(world), "known": others}), route), needed))


def _with_query(path: str, query: dict[str, str]) -> str:
    return f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}" if query else path


def _edges_of(parameter: Any) -> Iterator[str]:
    """Texts at and beyond the bounds of a parameter."""
    kinds = repr(parameter.field_info.annotation)
    rules = parameter.field_info.metadata
    for rule in rules:
        for name in ("low", "high", "ge", "le"):
            if getattr(rule, name, None) is not None:
                yield str(getattr(rule, name))
    if "int" in kinds or "float" in kinds:
        yield from map(str, NUMBERS)
    if "str" in kinds:
        longest = next((rule.longest for rule in rules if isinstance(rule, Bounds) and rule.longest), 255)
        yield from (
            "x" * longest,
            "x" * (longest + 1),
            "%F0%9F%98%80" * min(longest, 250),
            "..",
            "%2F",
            "\u00e9",
        )


# --- bodies by type


def by_type(world: World, route: APIRoute) -> Iterator[Sent]:
    """Bodies of many short and of fewer long texts, with numbers at both edges."""
    [kind] = [
        hint
        for name, hint in get_type_hints(route.endpoint).items()
        if name != "return" and getattr(hint, "__module__", "").startswith("pilotage.wire.")
    ]
    for maker in (Largest(), Largest(low=True), Largest(long_texts=True)):
        yield Sent(address(world, route), body(maker.body(kind, MANY)))


# --- bodies that reach the work


def masks(world: World, route: APIRoute) -> Iterator[Sent]:
    """Masks of many ranges with gaps between them: no two of their intervals can be joined."""
    yield from by_type(world, route)
    ranges = MANY // 4
    file = world.files[0]
    several = [
        {"files": [[file, 4 * n + 2 * ranges * 4 * k, 1] for n in range(ranges // 60)]} for k in range(60)
    ]
    path = address(world, route)
    yield Sent(path, body({"epoch": world.epoch, "masks": several}))
    backwards = [{"files": [[file, 4 * n + 2, 1] for n in reversed(range(ranges))]}]
    yield Sent(path, body({"epoch": world.epoch, "masks": backwards}))
    lumis = [[1, 3 * n, 3 * n] for n in range(MANY // 5)]
    yield Sent(path, body({"epoch": world.epoch, "masks": [{"files": [[world.files[1], 0, -1, lumis]]}]}))
    one_each = [{"files": [[other, 0, -1]]} for other in world.files[2:1002]]
    yield Sent(path, body({"epoch": world.epoch, "masks": one_each}))


def sync(world: World, route: APIRoute) -> Iterator[Sent]:
    yield from by_type(world, route)
    held = [{"element": number, "epoch": 1} for number in range(1, 10_001)]
    message = {"nonce": world.nonce, "holding": held, "releases": held, "want": 200}
    yield Sent(address(world, route), body({**message, "slots": {f"s{n}": n for n in range(100_000)}}))
    element = {"element": world.element, "epoch": world.epoch}
    yield Sent(address(world, route), body({"nonce": world.nonce, "holding": [element]}))


def files(world: World, route: APIRoute) -> Iterator[Sent]:
    yield from by_type(world, route)
    path, most = address(world, route), {"dataset": world.dataset}
    lumis = [[1, 2 * n, 2 * n] for n in range(10_000)]
    few = [{"name": f"long/{n}", "lumis": lumis} for n in range(6)]
    yield Sent(path, body({**most, "block": "long", "files": few}))
    short = [[1, n, n] for n in range(0, 24, 2)]
    many = [{"name": f"many/{n}", "events": 9, "size": 9, "lumis": short} for n in range(4000)]
    for complete in (False, True, True):
        yield Sent(path, body({**most, "block": "many", "files": many, "complete": complete}))
    plain = [{"name": f"plain/{n}", "events": 10**12, "size": 2**50} for n in range(5000)]
    yield Sent(path, body({**most, "block": "plain", "files": plain}))
    sites = [{"site": "here", "prefix": f"/{n}"} for n in range(1000)]
    yield Sent(path, body({**most, "block": "x", "files": plain, "replicas": sites}))


def chosen_jobs(world: World, route: APIRoute) -> Iterator[Sent]:
    yield from by_type(world, route)
    path = address(world, route)
    yield Sent(path, body({"selection": {"ids": list(range(1, 100_001))}}))
    yield Sent(path, body({"selection": {"submission": world.known["submission"]}}))


REQUIREMENT = " && ".join(f'(other.A{n} > {n} || member("x{n}", other.B))' for n in range(1000))


def submission(world: World, route: APIRoute) -> Iterator[Sent]:
    """Descriptions at every bound: as a table, as JDL, as YAML."""
    path = address(world, route)
    words = [f"{n}" for n in range(9_000)]
    for description in (
        {"executable": "a", "arguments": words, "environment": {f"A{n}": "b" for n in range(1000)}},
        {"executable": "a", "requirements": REQUIREMENT},
        {"executable": "a", "requirements": "other.A > " + "1 + " * 20_000 + "1"},
        {"executable": "a", "sites": [f"s{n}" for n in range(1000)], "tags": [f"t{n}" for n in range(1000)]},
        {f"field{n}": n for n in range(1000)},
        {"executable": "x" * 1_000_000},
    ):
        yield Sent(path, body({"description": description, "names": ["a"], "key": "k"}))
    if route.path.startswith("/v1/submissions/open"):
        return
    rows = [[n] for n in range(100_000)]
    described = {"executable": "a", "arguments": "%s", "tags": ["nowhere"]}
    yield Sent(path, body({"description": described, "parameters": {"names": [""], "rows": rows}}))
    values = ", ".join(f'"{n}"' for n in range(100_000))
    yield Sent(path, body({"jdl": f'Executable = "a"; Tags = "nowhere"; Parameters = {{{values}}};'}))
    yield Sent(path, body({"jdl": "A = {" * 100_000}))
    yield Sent(path, body({"yaml": f"executable: a\ntags: nowhere\nparameters: [{values}]\n"}))
    yield Sent(path, body({"yaml": "".join(f"f{n}: {n}\n" for n in range(200_000))}))


def graph(world: World, route: APIRoute) -> Iterator[Sent]:
    """Many submissions, many parents, and many jobs in one of them."""
    path = address(world, route)
    plain = {"description": {"executable": "a", "tags": ["nowhere"]}}
    chain = [
        {**plain, "name": f"n{n}", "key": f"k{n}", "after": [f"n{n - 1}"] if n else []} for n in range(1000)
    ]
    yield Sent(path, body({"submissions": chain}))
    every = [f"n{n}" for n in range(999)]
    yield Sent(path, body({"submissions": [*chain[:-1], {**chain[-1], "after": every}]}))
    rows = {"names": [""], "rows": [[n] for n in range(50_000)]}
    first = {**plain, "name": "a", "key": "a", "parameters": rows}
    each = {**first, "name": "b", "key": "b", "after_each": ["a"]}
    yield Sent(path, body({"submissions": [first, each]}))


def chunk(world: World, route: APIRoute) -> Iterator[Sent]:
    path = address(world, route)
    yield Sent(path, body([[n] for n in range(5000)]))
    yield Sent(path, body([["x" * 100] for _ in range(5000)]))
    yield Sent(path, body([[[[[n]]]] for n in range(5000)]))


STEP = {
    "program": {"executable": "x"},
    "splitting": {"algorithm": "EventBased", "events_per_job": 2},
}


def request(world: World, route: APIRoute) -> Iterator[Sent]:
    path = address(world, route)
    names = [f"/d/{n}" for n in range(10_000)]
    for specification in (
        {"name": "n", "events": 10**15, **STEP},
        {"name": "n", "input": names, "blocks": names, "runs": list(range(10_000)), **STEP},
        {"name": "n", "input": [world.dataset], "pileup": names, **STEP},
        {"name": "n", "steps": [{"name": f"s{n}", "events": 10, **STEP} for n in range(1000)]},
        {"name": "n", "events": 10, "sites": [f"s{n}" for n in range(10_000)], **STEP},
        {"name": "n", "events": 10, **STEP, "merge": {f"field{n}": n for n in range(100_000)}},
        {"name": "n", "events": 10, **STEP, "splitting": {f"field{n}": n for n in range(100_000)}},
        {"name": "n", "events": 10, **STEP, "program": {f"field{n}": n for n in range(100_000)}},
        {"name": "n", "events": 10, **STEP, "output": {"files": [f"*{n}" for n in range(10_000)]}},
        {f"field{n}": n for n in range(1000)},
    ):
        yield Sent(path, body({"specification": specification, "confirmed": True}))
    inputs = {
        f"s{n}": [{"name": f"{m}", "digest": "0" * 64, "size": 1} for m in range(100)] for n in range(400)
    }
    yield Sent(path, body({"specification": {"name": "n", "events": 10, **STEP}, "inputs": inputs}))


def policy(world: World, route: APIRoute) -> Iterator[Sent]:
    """Texts at their bound. None of them can come into force."""
    yield from by_type(world, route)
    path, never = address(world, route), {"expect": 2**62, "reason": "x"}
    groups = "".join(f"[groups.g{n}]\nshare = {n + 1}\n" for n in range(40_000))
    for text in (groups, "x = [" + "1, " * 500_000 + "]", "a." * 900_000, "# x\n" * 400_000, '"' * 1_000_000):
        yield Sent(path, body({**never, "text": text[:2_000_000]}))


def match(world: World, route: APIRoute) -> Iterator[Sent]:
    yield from by_type(world, route)
    described = {"executable": "a", "requirements": REQUIREMENT}
    yield Sent(address(world, route), body({"description": described}))


def exchange(world: World, route: APIRoute | None) -> Iterator[Sent]:
    """Lists at their bound, of the pilot's own jobs and of jobs of others."""
    path = "/v1/pilot/exchange"

    def message(**parts: Any) -> Sent:
        return Sent(path, body({"incarnation": world.incarnation, **parts}), world.pilot_token)

    own = [{"job": job, "epoch": epoch} for job, epoch in world.held]
    foreign = [{"job": world.held[0][0] + n, "epoch": 3} for n in range(MAX_HELD)]
    absent = [{"job": 2**62 + n, "epoch": 1} for n in range(MAX_HELD)]
    lumis = [[1, 3 * n, 3 * n] for n in range(10_000)]
    stored = {"name": "1/1-1/x", "pattern": "x", "place": "/s", "prefix": "/s", "size": 1, "checksum": ""}
    end = {"exit_code": 0, "stdout": "eHh4" * 1000, "stderr": "eHh4" * 1000, "wall": limits.MAX_INSTANT}
    yield message(holding=own[:MAX_HELD], confirms=own[:MAX_HELD])
    for others in (foreign, absent):
        for name in ("holding", "confirms", "releases", "finishes"):
            yield message(**{name: others})
    yield message(holding=foreign, confirms=foreign, releases=absent)
    yield message(finishes=[{**one, "files": [{**stored, "lumis": lumis}] * 6} for one in own[:1]])
    yield message(finishes=[{**one, "outputs": [f"{n}" for n in range(100_000)]} for one in own[:2]])
    yield message(
        finishes=[{**one, "message": "x" * 100_000, "missing": ["y" * 1000] * 1000} for one in own[2:12]]
    )
    tags, facts = [f"t{n}" for n in range(1000)], {f"A{n}": "b" * 1000 for n in range(1000)}
    node = {
        "hostname": "n",
        "processors": 10**6,
        "memory": 2**40,
        "cpu_left": 1e12,
        "tags": tags,
        "attributes": facts,
    }
    yield message(take={"number": 100, "count": 2**63 - 1, "ahead": 2**63 - 1, "node": node})
    yield message(finishes=[{**one, **end} for one in own[12:1000]])
    yield message(releases=own[1000:])
    for maker in (Largest(), Largest(low=True), Largest(long_texts=True)):
        parts = maker.body(ExchangeRequest, MANY)
        yield Sent(path, body({**parts, "incarnation": world.incarnation, "leaving": ""}), world.pilot_token)


def enrol(world: World, route: APIRoute | None) -> Iterator[Sent]:
    for maker in (Largest(), Largest(low=True), Largest(long_texts=True)):
        yield Sent("/v1/pilot/enrol", body(maker.body(EnrolRequest)), "-")


def probe(world: World, route: APIRoute | None) -> Iterator[Sent]:
    for maker in (Largest(), Largest(low=True), Largest(long_texts=True)):
        yield Sent("/v1/pilot/probe", body(maker.body(ProbeReport))[:100_000], world.pilot_token)


def blob(world: World, route: APIRoute) -> Iterator[Sent]:
    """Bytes that the server stores or refuses, to any name."""
    for sent in edges(world, route):
        yield Sent(sent.path, b"x" * 200_000, world.pilot_token if "/pilot/" in sent.path else "")


def ends_the_server(world: World, route: APIRoute) -> Iterator[Sent]:
    """Only a body that is refused can be sent."""
    yield Sent(address(world, route), body({"pilots": "x" * 256}))


def rotate(world: World, route: APIRoute) -> Iterator[Sent]:
    """Earlier tokens stay valid."""
    yield Sent(address(world, route), body({"grace": limits.MAX_INSTANT}))
    yield Sent(address(world, route), body({"grace": 86400.0}))


DUTIES = {
    "AgentDuty": "an agent with an element of 1,500 files",
    "BatchCesDuty": "no batch system: its own tests have their listings",
    "AnnouncementDuty": "one file",
    "CatalogueDuty": "no outside catalogue: its own tests have large answers",
    "RegistrationDuty": "no outside catalogue",
    "StorageDuty": "no S3 service: it is asked in a thread",
    "RelayDuty": "no CE behind a login node",
    "CostDuty": "attempts of 1,500 jobs of one pilot",
    "DependantsDuty": "50,000 jobs that depend on 50,000 others, and 999 parents of one job",
    "DirectorDuty": "queues of a million waiting jobs",
    "DiskDuty": "a full database",
    "EmbeddedAgentDuty": "requests of a team without an agent",
    "FeedDuty": "no listener: tests/contract/test_change_feed.py has changes of many jobs",
    "InformationDuty": "no batch system",
    "IntakeDuty": "requests of 10^15 events, and of a data set of 20,000 files",
    "JobCountsDuty": "changes of a million waiting jobs",
    "IntervalDuty": "queues of a million waiting jobs",
    "LocalInformationDuty": "the local CE",
    "LeaseDuty": "a pilot with 1,500 jobs",
    "LocalCesDuty": "queues of a million waiting jobs",
    "MailDuty": "no server of mail: it is asked in a thread",
    "LocationDuty": "data sets with blocks of 5,000 files",
    "OutputBlockDuty": "data sets of requests",
    "PriorityDuty": "owners of a million waiting jobs",
    "PropagationDuty": "requests with a step that follows",
    "QueueDuty": "queues without jobs",
    "ReasonDuty": "queues of a million waiting jobs",
    "ReleaseDuty": "masks of 12,000 ranges, and 1,000 masks of one element",
    "RetentionDuty": "all of it",
    "RollUpDuty": "ends of jobs",
    "ShareDuty": "attempts of 1,500 jobs",
}
"""The duties of a single server, and the work that the entries below leave to each."""
OF_SEVERAL_SERVERS = {
    *("AddressDuty", "RenewalDuty", "PeersDuty", "RebalanceDuty", "RecountDuty", "ClockDuty", "ServersDuty"),
    *("SubmissionsDuty", "LimitsDuty", "LedgerDuty"),
}
"""With PostgreSQL, whose transactions run in a thread of their own."""
OVER_TLS = {"CertificateDuty"}
WITH_SPANS = {"SpanDuty"}
"""With `--otlp`. It reads 500 jobs at a time, and the history of one."""


def source(world: World, route: APIRoute) -> Iterator[Sent]:
    """The submission that has jobs."""
    known = {**world.known, "submission_id": world.known["submission"]}
    yield from edges(World(**{**vars(world), "known": known}), route)


EDGES, BY_TYPE = edges, by_type

ENTRIES: dict[str, Entry] = {
    "POST /v1/pilot/exchange": exchange,
    "POST /v1/pilot/enrol": enrol,
    "POST /v1/pilot/probe": probe,
    "GET /v1/whoami": EDGES,
    "POST /v1/web/codes": EDGES,
    "GET /v1/history/jobs": EDGES,
    "POST /v1/shutdown": ends_the_server,
    "GET /live": EDGES,
    "GET /ready": EDGES,
    "GET /metrics": EDGES,
    "POST /v1/agents/join": BY_TYPE,
    "POST /v1/agents/{agent}/sync": sync,
    "GET /v1/agents/{agent}/elements/{element}/files": EDGES,
    "GET /v1/agents/{agent}/elements/{element}/jobs": EDGES,
    "POST /v1/agents/{agent}/elements/{element}/jobs": masks,
    "GET /v1/agents": EDGES,
    "POST /v1/agents/drain": BY_TYPE,
    "POST /v1/agents/enable": BY_TYPE,
    "POST /v1/agents/remove": BY_TYPE,
    "GET /v1/bans": EDGES,
    "POST /v1/bans": BY_TYPE,
    "POST /v1/bans/lift": BY_TYPE,
    "POST /v1/ces/probe": BY_TYPE,
    "GET /v1/ces/probe": EDGES,
    "GET /v1/batch-systems/{name}": EDGES,
    "POST /v1/ces/check": BY_TYPE,
    "POST /v1/ces/record": BY_TYPE,
    "GET /v1/ces/jobs": EDGES,
    "GET /v1/ces": EDGES,
    "GET /v1/ces/report": EDGES,
    "POST /v1/ces/enable": BY_TYPE,
    "POST /v1/ces/disable": BY_TYPE,
    "GET /v1/catalogues": EDGES,
    "GET /v1/catalogues/{catalogue}": EDGES,
    "POST /v1/catalogues/{catalogue}/test": EDGES,
    "GET /v1/storage": EDGES,
    "POST /v1/storage/{storage}/test": EDGES,
    "GET /v1/storage/{storage}/unclaimed": EDGES,
    "POST /v1/storage/{storage}/unclaimed/remove": BY_TYPE,
    "GET /v1/costs": EDGES,
    "GET /v1/datasets": EDGES,
    "POST /v1/datasets": BY_TYPE,
    "GET /v1/datasets/report": EDGES,
    "GET /v1/datasets/blocks": EDGES,
    "GET /v1/datasets/files": EDGES,
    "POST /v1/datasets/files": files,
    "POST /v1/datasets/follow": BY_TYPE,
    "POST /v1/datasets/replicas": BY_TYPE,
    "POST /v1/datasets/close": BY_TYPE,
    "POST /v1/datasets/remove": BY_TYPE,
    "GET /v1/director": EDGES,
    "GET /v1/duties": EDGES,
    "GET /v1/jobs": EDGES,
    "GET /v1/accounting/attempts": EDGES,
    "GET /v1/attempts": EDGES,
    "GET /v1/audit": EDGES,
    "GET /v1/counts": EDGES,
    "GET /v1/changes": EDGES,
    "GET /v1/jobs/{job}": EDGES,
    "GET /v1/jobs/{job}/events": EDGES,
    "GET /v1/jobs/{job}/outputs": EDGES,
    "GET /v1/jobs/{job}/outputs/{name:path}": EDGES,
    "POST /v1/outputs": chosen_jobs,
    "GET /v1/jobs/{job}/logs/{stream}": EDGES,
    "POST /v1/jobs/{verb}": chosen_jobs,
    "POST /v1/matchmaking": match,
    "GET /v1/ces/ad": EDGES,
    "GET /v1/jobs/{job}/ad": EDGES,
    "GET /v1/pilot/jobs/{job}/inputs/{digest}": EDGES,
    "GET /v1/pilot/jobs/{job}/inputs/{digest}/address": EDGES,
    "GET /v1/pilot/jobs/{job}/outputs/{name:path}": EDGES,
    "PUT /v1/pilot/jobs/{job}/{epoch}/outputs/{name:path}": blob,
    "POST /v1/pilot/jobs/{job}/{epoch}/addresses": BY_TYPE,
    "POST /v1/pilot/jobs/{job}/{epoch}/outputs": BY_TYPE,
    "PUT /v1/pilot/jobs/{job}/{epoch}/streams/{stream}": blob,
    "POST /v1/pilot/jobs/{job}/tail": blob,
    "GET /v1/pilot.pyz": EDGES,
    "GET /v1/pilots": EDGES,
    "GET /v1/pilots/{pilot}": EDGES,
    "GET /v1/pilots/{pilot}/log": EDGES,
    "POST /v1/pilots/kill": BY_TYPE,
    "GET /v1/policy": EDGES,
    "PUT /v1/policy": policy,
    "GET /v1/policy/versions": EDGES,
    "GET /v1/policy/versions/{version}": EDGES,
    "POST /v1/policy/rollback": BY_TYPE,
    "GET /v1/requests/{request}/why": EDGES,
    "GET /v1/elements/{element}/why": EDGES,
    "POST /v1/requests": request,
    "POST /v1/requests/check": request,
    "GET /v1/requests": EDGES,
    "GET /v1/requests/{request}": EDGES,
    "GET /v1/requests/{request}/history": EDGES,
    "GET /v1/requests/{request}/elements": EDGES,
    "POST /v1/requests/{request}/approve": BY_TYPE,
    "POST /v1/requests/{request}/reject": BY_TYPE,
    "POST /v1/requests/{request}/abort": BY_TYPE,
    "POST /v1/requests/{request}/force-complete": BY_TYPE,
    "POST /v1/requests/{request}/announce": BY_TYPE,
    "POST /v1/requests/{request}/pause": BY_TYPE,
    "POST /v1/requests/{request}/resume": BY_TYPE,
    "POST /v1/requests/{request}/archive": BY_TYPE,
    "POST /v1/requests/{request}/close-out": BY_TYPE,
    "POST /v1/requests/{request}/assign": BY_TYPE,
    "POST /v1/requests/{request}/priority": BY_TYPE,
    "POST /v1/requests/{request}/sites": BY_TYPE,
    "POST /v1/requests/{request}/clone": BY_TYPE,
    "POST /v1/requests/{request}/resubmit": BY_TYPE,
    "GET /v1/shares": EDGES,
    "GET /v1/fairness": EDGES,
    "GET /v1/accounting": EDGES,
    "GET /v1/queues": EDGES,
    "GET /v1/waiting": EDGES,
    "GET /v1/waiting/history": EDGES,
    "GET /v1/waiting/queues": EDGES,
    "GET /v1/shares/use": EDGES,
    "GET /v1/partitions": EDGES,
    "GET /v1/shares/history": EDGES,
    "GET /v1/sites": EDGES,
    "POST /v1/sites/state": BY_TYPE,
    "GET /v1/submissions/{submission_id}/source": source,
    "POST /v1/submissions/open": submission,
    "POST /v1/submissions/open/check": submission,
    "GET /v1/submissions/{submission_id}": EDGES,
    "GET /v1/submissions/{submission_id}/chunks": EDGES,
    "GET /v1/submissions": EDGES,
    "GET /v1/submissions/{submission_id}/progress": EDGES,
    "POST /v1/submissions/{submission_id}/parallel": BY_TYPE,
    "PUT /v1/submissions/{submission_id}/chunks/{number}": chunk,
    "POST /v1/submissions/{submission_id}/close": BY_TYPE,
    "POST /v1/submissions": submission,
    "POST /v1/submissions/check": submission,
    "POST /v1/submissions/graph": graph,
    "GET /v1/issuers": EDGES,
    "POST /v1/issuers/{issuer}/test": EDGES,
    "POST /v1/tokens/exchange": BY_TYPE,
    "POST /v1/tokens": BY_TYPE,
    "GET /v1/tokens": EDGES,
    "POST /v1/tokens/revoke": BY_TYPE,
    "POST /v1/tokens/rotate-key": rotate,
    "POST /v1/tokens/refresh": EDGES,
    "POST /v1/tokens/home": EDGES,
    "GET /v1/trace": EDGES,
    "POST /v1/uploads": BY_TYPE,
    "PUT /v1/uploads": blob,
    "HEAD /v1/uploads/{digest}": EDGES,
    "PUT /v1/uploads/{digest}": blob,
    "POST /v1/uploads/{digest}/address": BY_TYPE,
    "POST /v1/uploads/{digest}/object": BY_TYPE,
    "GET /v1/jobs/{job}/why": EDGES,
    "GET /v1/queues/{queue}/why": EDGES,
}


# --- pages


def job_filters(world: World, path: str) -> Iterator[Sent]:
    """The filter of all jobs, with names at their bound and many numbers."""
    yield Sent(path)
    for name in ("owner", "group", "job_group", "site", "name"):
        yield Sent(f"{path}?{name}={'%F0%9F%98%80' * 255}")
        yield Sent(f"{path}?{name}={'%F0%9F%98%80' * 256}")
    yield Sent(f"{path}?ids={','.join(str(10**17 + number) for number in range(400))}")
    for number in ("1", str(2**63 - 1), str(2**63), "-1", "x"):
        yield Sent(f"{path}?submission={number}&before={number}")
    yield Sent(f"{path}?state=Waiting,Running,Failed")
    yield Sent(f"{path}?state=Nothing")


def form_of_filters(world: World, path: str) -> Iterator[Sent]:
    """All waiting jobs, and forms that are too large or no forms."""
    yield Sent(path, b"state=Waiting&reason=" + b"x" * 2000)
    yield Sent(path, b"state=Waiting&reason=" + b"x" * 2001)
    yield Sent(path, b"&".join(b"a%d=b" % number for number in range(5000)))
    yield Sent(path, b"\xff\x00" * 30_000)


def form_of_names(world: World, path: str) -> Iterator[Sent]:
    """Names at their bounds, most of which are refused."""
    yield Sent(path, b"")
    yield Sent(path, b"name=local&value=1&reason=" + b"x" * 2000)
    yield Sent(path, b"name=" + b"y" * 60_000 + b"&user=" + b"z" * 5000 + b"&reason=" + b"x" * 2001)


def page_of(*queries: str) -> Callable[[World, str], Iterable[Sent]]:
    """A page with each of these queries."""
    return lambda world, path: [Sent(path + query) for query in ("", *queries)]


def sign_in_forms(world: World, path: str) -> Iterator[Sent]:
    yield Sent(path, b"token=" + b"x" * 60_000)
    yield Sent(path, b"code=" + b"y" * 60_000 + b"&next=" + b"z" * 5000)


def changed_part_names(world: World, path: str) -> Iterator[Sent]:
    """Names that are refused: a stream that is accepted has no end."""
    yield from page_of("?watch=job:0", "?watch=owner:another", f"?watch={'job:1+' * 1000}")(world, path)


def policy_forms(world: World, path: str) -> Iterator[Sent]:
    """Policies at their bound, which are tried only, and a form that is too large."""
    yield Sent(path, b"act=try&text=" + b"%23" * 1_000_000)
    groups = "".join(f"[groups.g{number}]\nshare = 1\n" for number in range(30_000))
    yield Sent(path, f"act=try&text={quote(groups)}".encode())
    yield Sent(path, b"act=apply&expect=1&text=x")
    yield Sent(path, b"text=" + b"x" * 5_000_000)


NAMES_OF_PAGES = ("?name=local", "?name=here", f"?name={'%F0%9F%98%80' * 255}", f"?name={'x' * 3000}")
NUMBERS_OF_PAGES = (0, 1, 2**63 - 1, 2**63, 10**30)

PAGE_ENTRIES: dict[str, Callable[[World, str], Iterable[Sent]]] = {
    "GET /": page_of("?before=1", f"?before={2**63}", "?before=-1"),
    "GET /health": page_of(),
    "GET /signin": page_of("?code=guess&next=//elsewhere", f"?next={'x' * 5000}"),
    "POST /signin": sign_in_forms,
    "GET /signin-at": page_of("?issuer=nobody", f"?issuer={'x' * 5000}"),
    "GET /signin-back": page_of("?state=guess&code=guess", f"?state={'x' * 5000}"),
    "POST /signout": page_of(),
    "GET /changes": changed_part_names,
    "GET /jobs": job_filters,
    "GET /jobs/all/{verb}": job_filters,
    "POST /jobs/all/{verb}": form_of_filters,
    "GET /jobs/{job:int}": page_of("?stream=stderr", "?stream=x"),
    "GET /jobs/{job:int}/log": page_of("?stream=stderr", "?stream=x"),
    "GET /jobs/{job:int}/file": page_of("?name=stdout", "?name=../../token", f"?name={'x' * 3000}"),
    "GET /jobs/{job:int}/change": page_of("?attribute=memory&value=1", f"?attribute={'x' * 3000}"),
    "POST /jobs/{job:int}/change": page_of(),
    "GET /submissions/{submission:int}": page_of(),
    "GET /submissions/{submission:int}/report": page_of(),
    "GET /ces": page_of("?csv=cost", "?csv=x"),
    "GET /ces/one": page_of(*NAMES_OF_PAGES, "?name=local&csv=pilots"),
    "GET /ces/{verb}": page_of(*NAMES_OF_PAGES),
    "POST /ces/{verb}": form_of_names,
    "GET /sites/{state}": page_of(*NAMES_OF_PAGES),
    "POST /sites/{state}": form_of_names,
    "GET /waiting": page_of("?csv=waiting", "?period=year&csv=reasons", "?period=x"),
    "GET /waiting/interval": page_of(
        "?begin=1&end=9999999999",
        f"?begin=1&end={2**62}",
        f"?begin=1&end=2&reason={'x' * 3000}&after={2**63}",
    ),
    "GET /waiting/queues": page_of("?reason=needs&after=1", f"?reason={'x' * 3000}", f"?after={2**63}"),
    "GET /queues/{queue:int}": page_of("?csv=history"),
    "GET /requests": page_of("?all=yes", "?before=1&csv=requests", f"?before={2**63}"),
    "GET /requests/{request:int}": page_of("?csv=funnel"),
    "GET /requests/{request:int}/report": page_of(),
    "GET /requests/{request:int}/{verb}": page_of(),
    "POST /requests/{request:int}/{verb}": form_of_names,
    "GET /shares": page_of("?period=week", "?period=x", "?csv=use"),
    "GET /shares/group": page_of("?name=home&period=hour", *NAMES_OF_PAGES),
    "GET /shares/interval": page_of(
        "?begin=1&end=9999999999&csv=values", f"?begin=1&end=2&name={'x' * 3000}"
    ),
    "GET /datasets": page_of("?contains=in&owner=x", f"?contains={'x' * 3000}", f"?after={2**63}"),
    "GET /datasets/one": page_of("?name=input", "?name=input&after=1&csv=bytes", *NAMES_OF_PAGES),
    "GET /administration": page_of("?after=1", f"?after={2**63}"),
    "GET /administration/policy": page_of(),
    "POST /administration/policy": policy_forms,
    "GET /administration/versions": page_of("?after=1"),
    "GET /administration/policy/{version:int}": page_of(),
    "GET /administration/ban": page_of(),
    "POST /administration/ban": form_of_names,
    "GET /administration/lift": page_of("?user=alice", f"?user={'x' * 3000}"),
    "POST /administration/lift": form_of_names,
    "GET /administration/revoke": page_of("?id=1", f"?id={2**63}"),
    "POST /administration/revoke": form_of_names,
}
"""For each address of a page. `{job:int}` and the like stand for what the world has, and for numbers at their edge."""


def page_requests(world: World, name: str) -> Iterator[Sent]:
    """The requests of an address, such as GET /jobs/{job:int}."""
    path = name.partition(" ")[2].replace("{state}", "drain")
    verb = {"ces": "enable", "requests": "priority"}.get(path.split("/")[1], "hold")
    path = path.replace("{verb}", verb)
    kind = re.search(r"\{(\w+):int\}", path)
    for number in (world.known[kind[1]], *NUMBERS_OF_PAGES) if kind else ("",):
        yield from PAGE_ENTRIES[name](world, re.sub(r"\{\w+:int\}", str(number), path))
