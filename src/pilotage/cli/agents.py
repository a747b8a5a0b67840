"""`pilotage agent list|show|drain|enable|remove`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.agents import AgentSummary

NameArgument = Annotated[str, CommandArgument("An agent, as `agent list` names it", "NAME")]


def elements_text(agent: AgentSummary) -> str:
    """The numbers of its elements by state, unfinished states first."""
    order = ("Negotiating", "Acquired", "Running", "CancelRequested", "Done", "Failed", "Canceled")
    counts = [f"{agent.elements[state]:,} {state}" for state in order if agent.elements.get(state)]
    return ", ".join(counts)


def drain_facts(agent: AgentSummary, now: float, *, exact: bool) -> Iterator[tuple[str, str]]:
    """How far the drain of an agent is."""
    if agent.drain_since is None:
        return
    remaining = agent.waiting + agent.running
    jobs = max(agent.drain_jobs, remaining)
    since = format_instant(agent.drain_since, now, exact=exact)
    yield "drain", f"{jobs - remaining:,} of {plural(jobs, 'job')} ended since {since}"


@connected
def list_agents(
    session: Session,
    everything: Annotated[bool, CommandOption("Ended agents too", names="--all")] = False,
) -> None:
    """List the agents: where they run, when they last called, their elements and jobs."""
    with session.client() as client:
        agents = client.agents(everything=everything)
    session.screen.json({"agents": agents})
    columns: Columns[AgentSummary] = (
        (Column("agent"), lambda agent: agent.name),
        (Column("team"), lambda agent: agent.team),
        (Column("state"), lambda agent: agent.state),
        (Column("host", rank=2), lambda agent: agent.host),
        (Column("seen", rank=1), lambda agent: session.screen.instant(agent.seen)),
        (Column("elements"), lambda agent: elements_text(agent)),
        (Column("waiting", right=True), lambda agent: agent.waiting),
        (Column("running", right=True), lambda agent: agent.running),
    )
    session.screen.listing(columns, agents)


@connected
def show(session: Session, name: NameArgument) -> None:
    """Show one agent, also if it has ended: its lease, elements and jobs."""
    with session.client() as client:
        agent = client.agent(name)
    session.screen.json(agent)
    now, exact = time.time(), not session.screen.terminal
    session.screen.facts(
        (
            ("agent", agent.name),
            ("team", agent.team),
            ("state", agent.state),
            ("owner", agent.owner),
            ("host", agent.host),
            ("version", agent.version),
            ("joined", session.screen.instant(agent.joined)),
            ("last seen", session.screen.instant(agent.seen)),
            ("lease until", session.screen.instant(agent.lease_until)),
            ("elements", elements_text(agent)),
            ("waiting jobs", f"{agent.waiting:,}"),
            ("running jobs", f"{agent.running:,}"),
            *drain_facts(agent, now, exact=exact),
        )
    )


@connected
def drain(session: Session, name: NameArgument) -> None:
    """Let an agent take no more work. It gives back unsplit elements; its jobs go on."""
    with session.client() as client:
        agent = client.drain_agent(name)
    _report(session, agent, f"agent {name} takes no more work")


@connected
def enable(session: Session, name: NameArgument) -> None:
    """Let a drained agent take work again."""
    with session.client() as client:
        agent = client.enable_agent(name)
    _report(session, agent, f"agent {name} takes work again")


@connected
def remove(session: Session, name: NameArgument) -> None:
    """End an agent at once: unsplit elements go back to the queue, its jobs get another agent of the team.

    A process that still runs joins again by itself. Stop it first, or drain it instead.
    """
    with session.client() as client:
        agent = client.remove_agent(name)
    _report(session, agent, f"agent {name} has ended")


def _report(session: Session, agent: AgentSummary, line: str) -> None:
    session.screen.json(agent)
    session.screen.line(line)
