"""Who may speak of an element: the agent that got its present epoch, for a team that its user may serve.

Each message of an agent that names an element is decided by `decide_for`. The epoch alone would not do: epochs are
small numbers, so any agent could name the epoch of another one.
"""

from __future__ import annotations

from typing import NamedTuple

from pilotage.core.errors import Forbidden
from pilotage.core.handover import Answer, Decision, Fence, Message, decide
from pilotage.core.workqueue.states import custody_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import queued_requests
from pilotage.store.tables.agents import AgentRow
from pilotage.store.tables.elements import ElementRow

ALL_TEAMS = "*"


class AgentUser(NamedTuple):
    """The user of an agent's token."""

    name: str
    teams: frozenset[str] = frozenset({ALL_TEAMS})
    """The teams whose requests the user's agents may split, by the policy in force."""

    def check_team(self, team: str) -> None:
        """Raise `Forbidden` unless the user's agents may split requests of `team`."""
        if ALL_TEAMS not in self.teams and team not in self.teams:
            known = f"; its teams are {', '.join(sorted(self.teams))}" if self.teams else ""
            raise Forbidden(
                f"{self.name} may run no agent of team {team}",
                hint=f"an administrator adds {team} to the key `teams` of the group in the policy{known}",
            )


def decide_for(
    connection: Connection, agent: AgentRow, row: ElementRow, epoch: int, said: Message, digest: str = ""
) -> Decision:
    """The answer of the hand-over's table to a message of this agent."""
    if epoch == row.epoch and not _is_holder(connection, agent, row):
        return Decision(Answer.SUPERSEDED)
    fence = Fence(row.epoch, row.finished_epoch, row.finished_digest)
    return decide(custody_of(row.state), said, fence.relation(epoch, digest))


def _is_holder(connection: Connection, agent: AgentRow, row: ElementRow) -> bool:
    """Whether the agent got the present epoch of the element.

    An agent keeps its elements, also when the request gets another team. Once the element is free, or split and
    given to another agent, only an agent of the request's team may still finish it.
    """
    if row.offered_to != agent.id:
        return False
    if row.agent_id == agent.id:
        return True
    request = queued_requests.by_ids(connection, [row.request_id]).get(row.request_id)
    return request is not None and request.team == agent.team
