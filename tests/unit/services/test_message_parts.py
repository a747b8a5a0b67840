"""A long message of a pilot is carried out in parts, with the answers of the whole."""

from __future__ import annotations

from pilotage.services.pilots.message_parts import HELD_AT_ONCE, REPORTS_AT_ONCE, joined, parts_of
from pilotage.wire.pilot import (
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Node,
    Reference,
    Release,
    Take,
    Verdict,
)


def test_a_short_message_is_one_part() -> None:
    request = ExchangeRequest(1, confirms=[Reference(1, 1)] * REPORTS_AT_ONCE)
    assert parts_of(request) == [request]


def test_the_parts_have_every_entry_once_and_in_order_and_the_rest_is_in_the_last() -> None:
    request = ExchangeRequest(
        1,
        finishes=[Finish(job, 1) for job in range(1, 251)],
        releases=[Release(job, 1) for job in range(1, 12)],
        confirms=[Reference(job, 1) for job in range(1, 2049)],
        holding=[Reference(job, 1) for job in range(1, 2049)],
        take=Take(1, 1, Node()),
        leaving="idle",
        log="x",
    )
    parts = parts_of(request)
    for name in ("finishes", "releases", "confirms", "holding"):
        assert [entry for part in parts for entry in getattr(part, name)] == getattr(request, name)
        most = HELD_AT_ONCE if name == "holding" else REPORTS_AT_ONCE
        assert max(len(getattr(part, name)) for part in parts) <= most
    order = [
        "".join(name[0] for name in ("finishes", "releases", "confirms", "holding") if getattr(part, name))
        for part in parts
    ]
    assert sorted(order[:-1], key="frch".index) == order[:-1]
    assert all((part.take, part.leaving, part.log) == (None, "", "") for part in parts[:-1])
    assert (parts[-1].take, parts[-1].leaving, parts[-1].log) == (request.take, "idle", "x")


def test_the_answers_are_joined() -> None:
    first = ExchangeResponse(
        1, finishes=[Verdict(1, 1, "accepted")], stop=[Verdict(7, 1, "unknown")], lease=9.0
    )
    last = ExchangeResponse(1, confirms=[Verdict(2, 1, "superseded")], follow=[3], lease=5.0, leave="drain")
    assert joined([first, last]) == ExchangeResponse(
        1,
        finishes=first.finishes,
        confirms=last.confirms,
        stop=first.stop,
        follow=[3],
        lease=5.0,
        leave="drain",
    )
