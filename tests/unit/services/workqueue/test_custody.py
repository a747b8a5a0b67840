"""Who may speak of an element: only the agent that got its epoch, for a team that its user may serve."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotage.core.errors import Forbidden, InvalidInput
from pilotage.core.handover import Answer, Message
from pilotage.core.splitting.mask import Mask
from pilotage.core.workqueue.states import ElementState
from pilotage.services.workqueue.custody import AgentUser, decide_for
from pilotage.services.workqueue.splitting import held_element
from pilotage.store.tables import agents
from pilotage.store.tables.agents import AgentRow
from pilotage.wire.agents import ElementReference, ElementRelease, OfferedElement
from tests.unit.services.workqueue.queue_bench import PaperAgent, QueueBench

Try = Callable[[QueueBench, PaperAgent, OfferedElement, list[Mask]], bool]
"""Whether the message of a foreign agent had an effect, or got more than an answer of refusal."""


def row_of(queue: QueueBench, agent: PaperAgent) -> AgentRow:
    row = queue.bench.do(lambda tx: agents.by_id(tx.connection, agent.id))
    assert row is not None
    return row


def _posts(_: QueueBench, agent: PaperAgent, element: OfferedElement, masks: list[Mask]) -> bool:
    return not agent.post(element, masks).superseded


def _finishes(_: QueueBench, agent: PaperAgent, element: OfferedElement, masks: list[Mask]) -> bool:
    return not agent.post(element, masks, last=True).superseded


def _gives_up(_: QueueBench, agent: PaperAgent, element: OfferedElement, masks: list[Mask]) -> bool:
    return not agent.post(element, [], last=True, failure="it is too large").superseded


def _keeps(_: QueueBench, agent: PaperAgent, element: OfferedElement, masks: list[Mask]) -> bool:
    agent.held = {element.id: element}
    return element.id not in agent.sync(0).stop


def _releases(queue: QueueBench, agent: PaperAgent, element: OfferedElement, masks: list[Mask]) -> bool:
    before = queue.element(element.id)
    agent.sync(0, releases=[ElementRelease(element.id, element.epoch, "mine")])
    return queue.element(element.id) != before


def _reads(queue: QueueBench, agent: PaperAgent, element: OfferedElement, masks: list[Mask]) -> bool:
    """Its files, or its masks."""
    who = row_of(queue, agent)
    held = queue.bench.do(lambda tx: held_element(tx.connection, who, element.id, element.epoch))
    return held is not None


VERBS: dict[str, Try] = {
    "post masks": _posts,
    "finish": _finishes,
    "give up": _gives_up,
    "keep": _keeps,
    "release": _releases,
    "read": _reads,
}


def offered(queue: QueueBench) -> tuple[PaperAgent, OfferedElement, list[Mask]]:
    data = queue.dataset("data")
    queue.block(data, "b")
    queue.intake(queue.request(inputs=[data]))
    holder = queue.agent("holder")
    [element] = holder.sync().elements
    return holder, element, holder.masks_of(element)


@pytest.mark.parametrize("team", ["home", "other"])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_foreign_agent_that_knows_the_epoch_does_nothing(
    queue: QueueBench, verb: str, free: bool, team: str
) -> None:
    """Neither to an element that another agent has, nor to one that is free after it was offered to another."""
    holder, element, masks = offered(queue)
    if free:
        holder.give_back(element.id)
    before = queue.element(element.id)
    foreign = queue.agent("foreign", team=team)
    assert not VERBS[verb](queue, foreign, element, masks)
    assert queue.element(element.id) == before
    assert queue.masks(before.request_id) == []


@pytest.mark.parametrize("message", Message)
def test_no_message_of_a_foreign_agent_is_accepted(queue: QueueBench, message: Message) -> None:
    _, element, _ = offered(queue)
    foreign = row_of(queue, queue.agent("foreign"))
    row = queue.element(element.id)
    decision = queue.bench.do(lambda tx: decide_for(tx.connection, foreign, row, row.epoch, message))
    assert decision.answer is Answer.SUPERSEDED


def test_the_agent_that_gave_an_element_back_may_still_finish_it_while_it_is_free(queue: QueueBench) -> None:
    holder, element, masks = offered(queue)
    holder.give_back(element.id)
    assert holder.post(element, masks, last=True).made == len(masks)
    assert queue.element(element.id).state is ElementState.RUNNING


def test_an_agent_that_changed_its_team_finishes_nothing_of_the_old_one(queue: QueueBench) -> None:
    holder, element, masks = offered(queue)
    holder.team = "other"
    holder.join()
    assert holder.post(element, masks, last=True).superseded
    assert queue.element(element.id).state is ElementState.AVAILABLE


def test_a_request_that_changes_its_team_leaves_elements_with_their_agents(queue: QueueBench) -> None:
    holder, element, masks = offered(queue)
    queue.run("UPDATE requests SET team = 'other'")
    assert ElementReference(element.id, element.epoch) in holder.message().holding
    assert holder.sync(0).stop == []
    assert holder.post(element, masks, last=True).made == len(masks)


def test_agents_join_the_teams_of_their_users_only(queue: QueueBench) -> None:
    """The policy in force decides at each call."""
    user = AgentUser("alice", frozenset({"home"}))
    agent = queue.agent("one", user=user)
    with pytest.raises(Forbidden, match="team other") as refused:
        queue.agent("two", team="other", user=user)
    assert "teams" in refused.value.hint
    agent.user = AgentUser("alice", frozenset())
    with pytest.raises(Forbidden, match="team home"):
        agent.sync()
    _, element, masks = offered(queue)
    with pytest.raises((Forbidden, InvalidInput)):
        agent.post(element, masks)
