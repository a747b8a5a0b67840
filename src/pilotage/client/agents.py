"""Methods of the client for people who look after agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests, verb
from pilotage.core.errors import NotFound
from pilotage.wire.queries import EndedQuery

if TYPE_CHECKING:
    from pilotage.wire.agents import AgentSummary


class AgentMethods(TypedRequests):
    """Methods of the client about agents. Administrators see all agents, others their own."""

    def agents(self, *, everything: bool = False) -> list[AgentSummary]:
        """Return the agents with their elements and jobs; with `everything` ended ones too."""
        return self.call(wire.agents.LIST_AGENTS, EndedQuery(everything)).agents

    def agent(self, name: str) -> AgentSummary:
        """Return one agent, also if it has ended. Raises NotFound."""
        for agent in self.agents(everything=True):
            if agent.name == name:
                return agent
        raise NotFound(f"there is no agent {name}", hint="see `pilotage agent list --all`")

    drain_agent = verb(lambda: wire.agents.DRAIN_AGENT)

    enable_agent = verb(lambda: wire.agents.ENABLE_AGENT)

    remove_agent = verb(lambda: wire.agents.REMOVE_AGENT)
