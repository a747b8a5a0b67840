"""Methods of the client for people who look after agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests
from pilotage.core.errors import NotFound

if TYPE_CHECKING:
    from pilotage.wire.agents import AgentSummary


class AgentMethods(TypedRequests):
    """Methods of the client about agents. Administrators see all agents, others their own."""

    def agents(self, *, everything: bool = False) -> list[AgentSummary]:
        """Return the agents with their elements and jobs; with `everything` ended ones too."""
        query = {"all": "true"} if everything else {}
        return self._get("/v1/agents", wire.agents.AgentList, query).agents

    def agent(self, name: str) -> AgentSummary:
        """Return one agent, also if it has ended. Raises NotFound."""
        for agent in self.agents(everything=True):
            if agent.name == name:
                return agent
        raise NotFound(f"there is no agent {name}", hint="see `pilotage agent list --all`")

    def drain_agent(self, name: str) -> AgentSummary:
        """Let an agent take no more elements, and give back unsplit ones. Raises NotFound."""
        return self._post("/v1/agents/drain", wire.agents.AgentAction(name), wire.agents.AgentSummary)

    def enable_agent(self, name: str) -> AgentSummary:
        """Let an agent take elements again. Raises NotFound."""
        return self._post("/v1/agents/enable", wire.agents.AgentAction(name), wire.agents.AgentSummary)

    def remove_agent(self, name: str) -> AgentSummary:
        """End an agent at once; its elements go back to the queue. Raises NotFound, and Conflict if it has ended."""
        return self._post("/v1/agents/remove", wire.agents.AgentAction(name), wire.agents.AgentSummary)
