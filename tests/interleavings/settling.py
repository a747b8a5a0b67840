"""The duties of both servers after a case, until they find nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interleavings.duties import OF_EACH, WITH_LEASE, cycle

if TYPE_CHECKING:
    from tests.interleavings.server import PairServer
    from tests.interleavings.world import World

MOST_ROUNDS = 20


class NeverSettled(AssertionError):
    """The duties go on for ever."""


def settle(world: World) -> None:
    """Run the duties until a round changes nothing. The first server has the leases."""
    before = world.snapshot.state()
    for _ in range(MOST_ROUNDS):
        for server in world.servers:
            run_duties(server, leased=server is world.first)
        after = world.snapshot.state()
        if after == before:
            return
        before = after
    raise NeverSettled(f"the duties still change rows after {MOST_ROUNDS} rounds")


def run_duties(server: PairServer, *, leased: bool) -> None:
    for name in (*OF_EACH, *(WITH_LEASE if leased else ())):
        server.do(cycle(name))
    failing = list(server.context.duties.failing)
    assert not failing, failing
