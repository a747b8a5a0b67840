"""Routes for agents, and for people who look after them."""

from __future__ import annotations

import asyncio
import json
from functools import partial

from pilotage.core.errors import NotFound, Superseded
from pilotage.core.policy import ADMINISTRATOR
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.loop_turns import in_turns
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.workqueue import membership, splitting
from pilotage.services.workqueue.custody import AgentUser
from pilotage.services.workqueue.loads import AgentLoad
from pilotage.services.workqueue.sync import sync
from pilotage.store.tables import agents, element_masks, elements
from pilotage.store.tables.agents import AgentRow
from pilotage.store.tables.elements import ElementRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire import limits
from pilotage.wire.agents import (
    DRAIN_AGENT,
    ENABLE_AGENT,
    JOIN,
    LIST_AGENTS,
    POST_MASKS,
    READ_FILES,
    READ_MASKS,
    REMOVE_AGENT,
    SYNC,
    AgentAction,
    AgentList,
    AgentSummary,
    CataloguedFile,
    FilesPage,
    HeldElementQuery,
    JoinRequest,
    JoinResponse,
    MasksPage,
    PostedMasks,
    PostMasks,
    SyncRequest,
    SyncResponse,
)
from pilotage.wire.call import ApiCall
from pilotage.wire.queries import EndedQuery

router = CallRouter("agents")

FILES_OF_PAGE = 2000
MASKS_OF_PAGE = 2000
AGENTS_SHOWN = 1000


def _user_of_agent(context: Context, caller: Caller) -> AgentUser:
    """The user whose agent calls, with the teams that it may serve."""
    if caller.administrator:
        return AgentUser(caller.user)
    return AgentUser(caller.user, context.pool.policy.teams(caller.group))


@router.call(JOIN)
async def join(body: JoinRequest, context: TheContext, caller: TheCaller) -> JoinResponse:
    """An agent is there. Another process of this name is superseded. Groups with AGENT, for their `teams`."""
    user = _user_of_agent(context, caller)
    work_queue, now = context.work.work_queue, context.clock()
    return await context.writer.acall(lambda tx: membership.join(work_queue, tx, body, user, now))


@router.call(SYNC)
async def sync_agent(
    agent: limits.Id, body: SyncRequest, context: TheContext, caller: TheCaller
) -> SyncResponse:
    """Renew an agent's lease, confirm and give back elements, pull new ones. Groups with AGENT, for their `teams`."""
    user = _user_of_agent(context, caller)
    work_queue, now = context.work.work_queue, context.clock()
    load = await _load(context, agent, now)
    return await context.writer.acall(
        lambda tx: sync(work_queue, tx, agent, user, body, load, now, context.pool.rng)
    )


async def _load(context: Context, agent: int, now: float) -> AgentLoad:
    """The unfinished jobs of an agent. The count reads many rows and returns few, so another thread makes it."""
    loads = context.work.work_queue.loads
    known = loads.known(agent, now, shared=context.pool.peers.shared)
    if known is not None:
        return known
    return await asyncio.to_thread(lambda: loads.count(context.readers.connection(), agent, now))


@router.call(READ_FILES)
def read_files(
    agent: limits.Id, element: limits.Id, asked: HeldElementQuery, context: TheContext, caller: TheCaller
) -> FilesPage:
    """The input files of an element that the agent has. Groups with AGENT, for their `teams`."""
    row = _held_element(context, caller, agent, element, asked.epoch)
    connection = context.readers.connection()
    files, following = splitting.files_page(connection, row, asked.after, FILES_OF_PAGE)
    return FilesPage(
        [
            CataloguedFile(
                file.id,
                file.name,
                file.size,
                file.events,
                [list(lumi) for lumi in file.lumis],
                file.block,
                file.parent,
            )
            for file in files
        ],
        following,
    )


@router.call(READ_MASKS)
def read_masks(
    agent: limits.Id, element: limits.Id, asked: HeldElementQuery, context: TheContext, caller: TheCaller
) -> MasksPage:
    """The masks of an element that exist already. Groups with AGENT, for their `teams`."""
    row = _held_element(context, caller, agent, element, asked.epoch)
    masks = element_masks.page(context.readers.connection(), row.id, asked.after, MASKS_OF_PAGE)
    following = masks[-1][0] if len(masks) == MASKS_OF_PAGE else 0
    return MasksPage([json.loads(mask) for _, mask in masks], following)


@router.call(POST_MASKS)
async def post_masks(
    agent: limits.Id, element: limits.Id, body: PostMasks, context: TheContext, caller: TheCaller
) -> PostedMasks:
    """Make jobs of an element, each of one mask. Groups with AGENT, for their `teams`."""
    user = _user_of_agent(context, caller)
    work_queue, now = context.work.work_queue, context.clock()
    masks = [splitting.read_mask(document) async for document in in_turns(body.masks, context.monotonic)]
    made = known = 0
    for message, part in splitting.parts_of(body, masks):
        posted = await context.writer.acall(
            partial(
                splitting.post_masks,
                work_queue,
                agent_id=agent,
                user=user,
                element=element,
                message=message,
                masks=part,
                now=now,
            )
        )
        if posted.superseded:
            return posted
        made, known = made + posted.made, known + posted.known
    context.wake.release.set()
    return PostedMasks(made, known)


def _held_element(context: Context, caller: Caller, agent: int, element: int, epoch: int) -> ElementRow:
    user, connection = _user_of_agent(context, caller), context.readers.connection()
    row = agents.by_id(connection, agent)
    if row is None or row.owner != user.name:
        raise NotFound(f"there is no agent {agent} of {user.name}", hint="join again")
    user.check_team(row.team)
    held = splitting.held_element(connection, row, element, epoch)
    if held is None:
        raise Superseded(f"element {element} is not this agent's any more")
    return held


@router.call(LIST_AGENTS)
def list_agents(asked: EndedQuery, context: TheContext, caller: TheCaller) -> AgentList:
    """The agents with their elements and jobs. Administrators see all, others their own."""
    connection, now = context.readers.connection(), context.clock()
    rows = agents.page(connection, everything=asked.all, limit=AGENTS_SHOWN)
    return AgentList(
        [_summary(context, row, now) for row in rows if caller.administrator or row.owner == caller.user]
    )


def _summary(context: Context, row: AgentRow, now: float) -> AgentSummary:
    connection = context.readers.connection()
    known = context.work.work_queue.loads.known(row.id, now, shared=context.pool.peers.shared)
    load = known or AgentLoad.read(connection, row.id, now)
    return AgentSummary(
        name=row.name,
        team=row.team,
        owner=row.owner,
        state=row.status(now),
        host=row.host,
        version=row.version,
        joined=row.joined,
        seen=row.seen,
        lease_until=row.lease_until,
        elements=elements.count_by_state(connection, row.id),
        waiting=sum(load.waiting.values()),
        running=sum(load.running.values()),
        id=row.id,
        drain_since=row.drain_since,
        drain_jobs=row.drain_jobs,
    )


@router.call(DRAIN_AGENT)
async def drain_agent(body: AgentAction, context: TheContext, caller: TheCaller) -> AgentSummary:
    """Let an agent take no more elements and give back unsplit ones. Administrators, and its user."""
    return await _set_draining(context, caller, DRAIN_AGENT, body.name, draining=True)


@router.call(ENABLE_AGENT)
async def enable_agent(body: AgentAction, context: TheContext, caller: TheCaller) -> AgentSummary:
    """Let an agent take elements again. Administrators, and its user."""
    return await _set_draining(context, caller, ENABLE_AGENT, body.name, draining=False)


async def _set_draining(
    context: Context,
    caller: Caller,
    call: ApiCall[type[AgentAction], AgentSummary],
    name: str,
    *,
    draining: bool,
) -> AgentSummary:
    agent = _need_authority(context, caller, name)
    work_queue, now = context.work.work_queue, context.clock()
    jobs = (await _load(context, agent.id, now)).jobs
    row = await context.writer.acall(
        audited(
            audited_call(context, caller, call, f"agent {name}"),
            lambda tx: membership.set_draining(
                work_queue, tx, name, jobs, draining=draining, by=caller.user, now=now
            ),
            state=lambda tx: _status(tx, name, now),
        )
    )
    return _summary(context, row, now)


@router.call(REMOVE_AGENT)
async def remove_agent(body: AgentAction, context: TheContext, caller: TheCaller) -> AgentSummary:
    """End an agent at once; its elements go back to the queue. Administrators, and its user."""
    _need_authority(context, caller, body.name)
    work_queue, now = context.work.work_queue, context.clock()
    row = await context.writer.acall(
        audited(
            audited_call(context, caller, REMOVE_AGENT, f"agent {body.name}"),
            lambda tx: membership.remove(work_queue, tx, body.name, by=caller.user, now=now),
            state=lambda tx: _status(tx, body.name, now),
        )
    )
    return _summary(context, row, now)


def _status(tx: Transaction, name: str, now: float) -> str:
    row = agents.by_name(tx.connection, name)
    return row.status(now) if row else ""


def _need_authority(context: Context, caller: Caller, name: str) -> AgentRow:
    """Agents of others are as if they were not there."""
    row = agents.by_name(context.readers.connection(), name)
    if row is None or not (caller.administrator or row.owner == caller.user):
        raise NotFound(
            f"there is no agent {name}", hint=f"see `pilotage agent list`; {ADMINISTRATOR}s see all agents"
        )
    return row
