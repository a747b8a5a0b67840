"""What agents and pilots send in the common world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pilotage.wire.agents import (
    DRAIN_AGENT,
    ENABLE_AGENT,
    REMOVE_AGENT,
    AgentAction,
    ElementReference,
    ElementRelease,
)
from pilotage.wire.call import ApiCall
from pilotage.wire.pilot import Finish, Release
from tests.interleavings.kinds_of_people import Kind
from tests.interleavings.paper import PaperAgent, PaperPilot, finished, references
from tests.interleavings.server import Work, call
from tests.interleavings.world import World


def _turn(name: str, want: int = 0, **more: Any) -> Kind:
    return lambda world: world.agents[name].turn(want, **more)


def _give_back(name: str) -> Kind:
    def made(world: World) -> Work:
        agent = world.agents[name]
        releases = [ElementRelease(one.id, one.epoch, "drain") for one in agent.held]
        return agent.turn(holding=[], releases=releases)

    return made


def _confirm_some(world: World) -> Work:
    """It keeps one of its elements; the others go back."""
    agent = world.agents["one"]
    kept = agent.held[-1]
    return agent.turn(2, holding=[ElementReference(kept.id, kept.epoch)])


def _post(name: str, *, last: bool) -> Kind:
    def made(world: World) -> Work:
        agent = world.agents[name]
        masks = world.masks[name]
        return agent.post(agent.held[0], masks if last else masks[:1], last=last)

    return made


def _agent(api: ApiCall[Any, Any], name: str) -> Kind:
    return lambda world: call(api, AgentAction(name))


def _say(name: str, message: Callable[[PaperPilot], Mapping[str, Any]]) -> Kind:
    return lambda world: (pilot := world.pilots[name]).message(**message(pilot))


def _hold_all(pilot: PaperPilot) -> Mapping[str, Any]:
    return {"holding": references(*pilot.offers)}


def _finish(code: int, place: int = -1) -> Callable[[PaperPilot], Mapping[str, Any]]:
    def message(pilot: PaperPilot) -> Mapping[str, Any]:
        ended = pilot.offers[place]
        others = [offer for offer in pilot.offers if offer is not ended]
        return {"finishes": [finished(ended, code)], "holding": references(*others)}

    return message


def _leave(pilot: PaperPilot) -> Mapping[str, Any]:
    ends = [Finish(offer.job, offer.epoch, failure="killed") for offer in pilot.offers[:1]]
    given = [Release(offer.job, offer.epoch, "leaving") for offer in pilot.offers[1:]]
    return {"finishes": ends, "releases": given, "leaving": "test"}


def _take(name: str, count: int) -> Kind:
    return lambda world: world.pilots[name].taking(count, len(world.pilots[name].offers) + 1)


OF_AGENTS: Final[Mapping[str, Kind]] = {
    "an agent joins": lambda world: PaperAgent("three").joining(),
    "an agent starts again": lambda world: PaperAgent("one", nonce="second").joining(),
    "an agent confirms": _turn("one"),
    "an agent pulls": _turn("one", 5),
    "an agent confirms some": _confirm_some,
    "an agent gives back": _give_back("one"),
    "a silent agent pulls": _turn("two", 5),
    "a silent agent gives back": _give_back("two"),
    "an agent splits": _post("one", last=True),
    "an agent posts some masks": _post("one", last=False),
    "a silent agent splits": _post("two", last=True),
    "drain an agent": _agent(DRAIN_AGENT, "one"),
    "enable an agent": _agent(ENABLE_AGENT, "two"),
    "remove an agent": _agent(REMOVE_AGENT, "one"),
}
OF_PILOTS: Final[Mapping[str, Kind]] = {
    "a pilot enrols": lambda world: world.pilots["intended"].enrolment(),
    "a pilot starts again": lambda world: world.pilots["worker"].enrolment("second"),
    "a pilot asks": _take("idle", 5),
    "a pilot asks for one": _take("idle", 1),
    "a pilot confirms": _say(
        "worker", lambda pilot: {**_hold_all(pilot), "confirms": references(pilot.offers[-1])}
    ),
    "a pilot confirms late": _say(
        "sleeper", lambda pilot: {**_hold_all(pilot), "confirms": references(pilot.offers[-1])}
    ),
    "a pilot reports done": _say("worker", _finish(0, 0)),
    "a pilot reports failed": _say("worker", _finish(1, 0)),
    "a pilot reports a part": _say("ender", _finish(0)),
    "a pilot reports a failed part": _say("ender", _finish(1)),
    "a pilot reports the last part": _say("reporter", _finish(0)),
    "a pilot gives up the last part": _say("reporter", _finish(1)),
    "a pilot releases": _say(
        "worker", lambda pilot: {"releases": [Release(pilot.offers[-1].job, pilot.offers[-1].epoch, "test")],
                                 "holding": references(*pilot.offers[:-1])}
    ),
    "a pilot leaves": _say("worker", _leave),
    "a silent pilot is heard": _say("silent", _hold_all),
    "a lost pilot is heard": _say("lost", _hold_all),
    "a lost pilot reports": _say("lost", _finish(0)),
    "a pilot holds nothing": _say("worker", lambda pilot: {}),
}  # fmt: skip
