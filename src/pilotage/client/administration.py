"""Methods of the client for administrators: batch systems, tokens of others, the policy, the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.answers import decode
from pilotage.client.typed_requests import TypedRequests, verb, verb_on
from pilotage.core.errors import NotFound
from pilotage.wire.queries import EndedQuery, PageQuery

if TYPE_CHECKING:
    from pilotage.wire.agents import AgentSummary
    from pilotage.wire.bans import BanSummary
    from pilotage.wire.ces import BatchSystem
    from pilotage.wire.history import EndedJobsPage
    from pilotage.wire.identity import TokenSummary
    from pilotage.wire.issuers import IssuerSummary
    from pilotage.wire.policy import PolicyVersion


class AdministrationMethods(TypedRequests):
    """Methods of the client for administrators, and for people who look after agents."""

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

    enable_ce = verb(lambda: wire.ces.ENABLE_CE)

    disable_ce = verb(lambda: wire.ces.DISABLE_CE)

    probe_ce = verb(lambda: wire.ces.PROBE_CE)

    ce_probe = verb(lambda: wire.ces.SHOW_PROBE)

    ce_jobs = verb(lambda: wire.ces.LIST_CE_JOBS)

    trace = verb(lambda: wire.trace.TRACE)

    ban_user = verb(lambda: wire.bans.BAN_USER)

    lift_ban = verb(lambda: wire.bans.LIFT_BAN)

    def issuers(self) -> list[IssuerSummary]:
        """Return the trusted issuers of the policy, and how they answer. It needs no token."""
        answer = self._transport.send(wire.issuers.LIST_ISSUERS, token="")
        return decode(answer.content, wire.issuers.LIST_ISSUERS.answer)

    def test_issuer(self, name: str) -> IssuerSummary:
        """Let the server read the keys of an issuer now. The answer has the problem, if there is one."""
        return self.call(wire.issuers.TEST_ISSUER, issuer=name)

    def bans(self, *, everything: bool = False) -> list[BanSummary]:
        """Return the bans in force that you may see; with `everything` ended ones too."""
        return self.call(wire.bans.LIST_BANS, EndedQuery(everything)).bans

    set_site_state = verb(lambda: wire.sites.SET_SITE_STATE)

    director = verb(lambda: wire.director.EXPLAIN_DIRECTOR)

    def describe_batch_system(
        self, kind: str, options: Mapping[str, str] | None = None, reach: str = ""
    ) -> BatchSystem:
        """Return the partitions and accounts of a batch system, such as "slurm". Administrators only.

        `options`: keys of `[ces.NAME.TYPE]` that choose the cluster, such as conf. `reach`: "ssh HOST", if its
        commands run on another machine, whose connection `pilotage ce login` has opened.
        Raises Unreachable if its commands are not installed on the server's machine or do not answer.
        """
        asked = wire.ces.BatchSystemQuery([f"{key}={value}" for key, value in (options or {}).items()], reach)
        return self.call(wire.ces.DESCRIBE_BATCH_SYSTEM, asked, name=kind)

    def ended_jobs(self, since: float) -> Iterator[EndedJobsPage]:
        """Iterate over the pages of jobs that ended at the instant `since` or later, in the order of their end."""
        asked = wire.history.EndedJobsQuery(since)
        while True:
            page = self.call(wire.history.LIST_ENDED_JOBS, asked)
            yield page
            if page.next is None:
                return
            asked = wire.history.EndedJobsQuery(page.next.since, page.next.after)

    record_ce = verb(lambda: wire.ces.RECORD_CE)

    check_ce = verb(lambda: wire.ces.CHECK_CE)

    create_token = verb(lambda: wire.identity.CREATE_TOKEN)

    def tokens(self) -> Iterator[TokenSummary]:
        """Iterate over the tokens that administrators have made, newest first. Other users see their own."""
        return self._pages(wire.identity.LIST_TOKENS, PageQuery(), lambda answer: answer.tokens)

    def revoke_token(self, number: int) -> None:
        """Revoke one token: yours, or any for administrators. Raises NotFound."""
        self.call(wire.identity.REVOKE_TOKENS, wire.identity.RevokeRequest(id=number))

    def revoke_tokens_of(self, user: str) -> int:
        """Revoke all tokens of a user that were issued until now; returns how many of them were listed."""
        return self.call(wire.identity.REVOKE_TOKENS, wire.identity.RevokeRequest(user=user)).tokens

    def revoke_pilot(self, pilot: int) -> None:
        """Revoke the token of a pilot: it ends, and its jobs wait again. Administrators only."""
        self.call(wire.identity.REVOKE_TOKENS, wire.identity.RevokeRequest(pilot=pilot))

    rotate_token_key = verb(lambda: wire.identity.ROTATE_KEY)

    policy = verb(lambda: wire.policy.SHOW_POLICY)

    apply_policy = verb(lambda: wire.policy.CHANGE_POLICY)

    def policy_versions(self) -> Iterator[PolicyVersion]:
        """Iterate over the versions of the policy, newest first. Administrators only."""
        return self._pages(wire.policy.LIST_VERSIONS, PageQuery(), lambda answer: answer.versions)

    policy_version = verb_on(lambda: wire.policy.SHOW_VERSION)

    roll_back_policy = verb(lambda: wire.policy.ROLL_BACK)

    shutdown = verb(lambda: wire.shutdown.SHUTDOWN)
