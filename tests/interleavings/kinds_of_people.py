"""What people do with jobs, and administrators with sites, users, CEs and the policy, in the common world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pilotage.wire.bans import BAN_USER, LIFT_BAN, BanLift, BanRequest
from pilotage.wire.call import ApiCall
from pilotage.wire.ces import DISABLE_CE, ENABLE_CE, CeChange
from pilotage.wire.identity import (
    CREATE_TOKEN,
    REVOKE_TOKENS,
    ROTATE_KEY,
    RevokeRequest,
    RotateKeyRequest,
    TokenRequest,
)
from pilotage.wire.pilots import KILL_PILOTS, PilotKill
from pilotage.wire.policy import CHANGE_POLICY, ROLL_BACK, PolicyChange, PolicyRollback
from pilotage.wire.sites import SET_SITE_STATE, SiteStateRequest
from pilotage.wire.submission_progress import LIMIT_SUBMISSION, ParallelRequest
from pilotage.wire.submissions import (
    CLOSE_SUBMISSION,
    OPEN_SUBMISSION,
    PUT_CHUNK,
    SUBMIT,
    SUBMIT_GRAPH,
    CloseRequest,
    GraphRequest,
    NamedSubmission,
    OpenRequest,
)
from tests.interleavings.server import Work, call
from tests.interleavings.works import POLICY, Body, acting, submission
from tests.interleavings.world import World

Kind = Callable[[World], Work]


def _submit(count: int = 1, user: str = "alice", **fields: Any) -> Kind:
    return lambda world: call(SUBMIT, submission(count, **fields), user=user, group="physics")


def _submit_after(
    condition: str, parent: str, *, whole: bool = False, user: str = "alice", **fields: Any
) -> Kind:
    def made(world: World) -> Work:
        parents = [f"s:{world.submissions[parent]}" if whole else str(world.jobs[parent])]
        return call(SUBMIT, submission(1, **{condition: parents}, **fields), user=user, group="physics")

    return made


def _act(verb: str, *jobs: str, **more: Any) -> Kind:
    return lambda world: acting(verb, *(world.jobs[job] for job in jobs), **more)


def _all(verb: str, **more: Any) -> Kind:
    """All jobs of the world, so that all locks of jobs are met."""
    return lambda world: acting(verb, *sorted(world.jobs.values()), **more)


def _plain(api: ApiCall[Any, Any], body: object, *parts: object, **who: str) -> Kind:
    return lambda world: call(api, body, *parts, **who)


def _graph(world: World) -> Work:
    first = NamedSubmission({"executable": "/bin/true"}, name="one", group="physics", key="1")
    second = NamedSubmission(
        {"executable": "/bin/true"}, name="two", group="physics", key="2", after_ok=["one"]
    )
    return call(SUBMIT_GRAPH, GraphRequest([first, second]))


def _chunk(world: World) -> Work:
    return call(PUT_CHUNK, None, world.submissions["open"], 1, Body([[1], [2]]))


def _close(world: World) -> Work:
    return call(CLOSE_SUBMISSION, CloseRequest(1), world.submissions["open"])


def _limit(running: int) -> Kind:
    return lambda world: call(LIMIT_SUBMISSION, ParallelRequest(running), world.submissions["limited"])


def _kill_pilots(order: str) -> Kind:
    names = ("worker", "intended", "idle")
    return lambda world: call(KILL_PILOTS, PilotKill([world.pilots[name].id for name in names], order=order))


def _revoke_pilot(world: World) -> Work:
    return call(REVOKE_TOKENS, RevokeRequest(pilot=world.pilots["worker"].id))


def _site(state: str, **more: Any) -> Kind:
    return _plain(SET_SITE_STATE, SiteStateRequest("A", state, reason="test", **more))


OF_JOBS: Final[Mapping[str, Kind]] = {
    "submit": _submit(2),
    "submit as bob": _submit(2, user="bob"),
    "submit to an empty queue": _submit(1, user="bob", memory=9000),
    "submit after a job": _submit_after("after_ok", "parent"),
    "submit after a job to an empty queue": _submit_after("after", "of a rare kind", user="bob", memory=9000),
    "submit after a running job": _submit_after("after", "running"),
    "submit after a submission": _submit_after("after_ok", "parent", whole=True),
    "submit with a limit": _submit(3, parallel=2),
    "submit a graph": _graph,
    "open a submission": _plain(
        OPEN_SUBMISSION, OpenRequest({"executable": "/bin/true"}, ["x"], "later"), group="physics"
    ),
    "send a chunk": _chunk,
    "close a submission": _close,
    "limit a submission": _limit(2),
    "unlimit a submission": _limit(0),
    "kill": _act("kill", "parent", "running", "offered"),
    "kill all": _all("kill"),
    "hold": _act("hold", "parent", "limited"),
    "release": _act("release", "held", "limited too"),
    "reschedule": _act("reschedule", "failed", "killed", "mother", "of a rare kind"),
    "reschedule all": _all("reschedule"),
    "redo": _act("redo", "done", "failed"),
    "delete": _act("delete", "done", "failed", "killed"),
    "reprioritise": _act("priority", "parent", "offered", "running", priority=5),
    "reprioritise all": _all("priority", priority=7),
}
OF_ADMINISTRATORS: Final[Mapping[str, Kind]] = {
    "ban": _plain(BAN_USER, BanRequest("alice", reason="test")),
    "ban at a site": _plain(BAN_USER, BanRequest("alice", "A", reason="test")),
    "lift a ban": _plain(LIFT_BAN, BanLift("bob", "B", reason="test")),
    "site down": _site("down"),
    "site drains": _site("drain", until=1_800_000_000.0),
    "site normal": _plain(SET_SITE_STATE, SiteStateRequest("B", "normal", reason="test")),
    "apply a policy": _plain(CHANGE_POLICY, PolicyChange(POLICY.replace("running = 3", "running = 2"))),
    "apply a policy without a limit": _plain(
        CHANGE_POLICY, PolicyChange(POLICY.replace('"bob"\nrunning', '"carol"\nrunning'))
    ),
    "roll a policy back": _plain(ROLL_BACK, PolicyRollback(1)),
    "make a token": _plain(CREATE_TOKEN, TokenRequest("bob")),
    "revoke a token": lambda world: call(REVOKE_TOKENS, RevokeRequest(id=world.token)),
    "revoke tokens of a user": _plain(REVOKE_TOKENS, RevokeRequest(user="bob")),
    "revoke a pilot": _revoke_pilot,
    "rotate the key": _plain(ROTATE_KEY, RotateKeyRequest()),
    "disable a CE": _plain(DISABLE_CE, CeChange("a", "test")),
    "enable a CE": _plain(ENABLE_CE, CeChange("b", "test")),
    "kill pilots": _kill_pilots("cancel"),
    "drain pilots": _kill_pilots("drain"),
}
