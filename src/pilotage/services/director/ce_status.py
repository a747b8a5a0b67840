"""The state of each CE, explained from the store and the policy alone, so every server gives the same answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil, floor

from pilotage.core.brokering.ce_ad import FUTURE_TOLERANCE
from pilotage.core.brokering.match import closed_reason, full_reason
from pilotage.core.brokering.published import PublishedHosts, is_usable, publish
from pilotage.core.glue.information import CeInformation, ad_of
from pilotage.core.jobs.durations import format_duration
from pilotage.core.pilots import clocks
from pilotage.core.pilots.blame import blame
from pilotage.core.pilots.cost import HOUR, CoreSeconds
from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.pilots.waits import WaitAction, WaitClass, deadline_of, has_deadline
from pilotage.core.policy import Ce, Policy
from pilotage.core.policy.budget import BudgetStatus
from pilotage.core.policy.parser import short_wall
from pilotage.core.sites import SiteState
from pilotage.services.director.budgets import exhausted, status_of
from pilotage.services.director.ce_record import NO_ROOM
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import absent_pilots, ce_information, ces, costs, node_clocks, site_states
from pilotage.store.tables.ce_information import InformationRow
from pilotage.store.tables.ces import CeProgress, CeRow, CeSwitch, FailedPilot, OpenSubmissions
from pilotage.store.tables.site_states import SiteStateRow
from pilotage.wire.ces import CeBudget, CeFailure, CeSummary, CeWait, NodeClock

IN_DOUBT = (SubmissionPhase.PREPARING, SubmissionPhase.IN_DOUBT)

USE_WINDOW = 86400.0
"""Seconds: how far back a CE's efficiency looks."""

CLOCKS_SHOWN = 10

ENABLE = "`pilotage ce enable {name}`"


def summaries(
    policy: Policy,
    connection: Connection,
    now: float,
    problems: Mapping[str, Sequence[str]] | None = None,
    *,
    names: Collection[str] | None = None,
) -> list[CeSummary]:
    """These CEs of the policy, by name. None: all. `problems`: of the values of hosts that the policy reads, by CE."""
    rows, switched = ces.all_rows(connection), site_states.load(connection)
    counts, informed = ces.pilot_counts(connection), ce_information.load_facts(connection)
    answers = {
        name: _summary(
            name,
            ce,
            policy,
            rows.get(name) or ces.new_row(name),
            status_of(connection, name, ce, now),
            now,
            switched.get(ce.site),
            informed.get(name),
        )
        for name, ce in sorted(policy.ces.items())
        if names is None or name in names
    }
    for name, answer in answers.items():
        answer.information, answer.information_at = _information(
            informed.get(name), (problems or {}).get(name, ()), now
        )
    for name, (waiting, running) in counts.items():
        if name in answers:
            answers[name].waiting, answers[name].running = waiting, running
    for name, count in absent_pilots.counts(connection).items():
        if name in answers:
            answers[name].unlisted = count
    for name, known in rows.items():
        if name in answers:
            answers[name].orphans, answers[name].orphans_since = (
                known.progress.orphans,
                known.progress.orphans_since,
            )
    for row in sorted(ces.open_submissions(connection), key=lambda row: -row.number):
        if row.ce not in answers:
            continue
        if row.phase in IN_DOUBT:
            answers[row.ce].in_doubt += row.number
        elif row.reason:
            answers[row.ce].waits.append(_wait(row, policy.ces[row.ce].settle))
    return list(answers.values())


def _wait(row: OpenSubmissions, settle: float) -> CeWait:
    wait = CeWait(row.reason, row.wait_class, row.number, row.submitted, row.since)
    if row.wait_class and row.since is not None and has_deadline(WaitClass(row.wait_class)):
        wait.action = WaitAction.CANCEL
        wait.deadline = deadline_of(WaitClass(row.wait_class), row.since, settle)
    return wait


def _summary(
    name: str,
    ce: Ce,
    policy: Policy,
    row: CeRow,
    budget: BudgetStatus | None,
    now: float,
    switched: SiteStateRow | None,
    informed: InformationRow | None,
) -> CeSummary:
    progress = row.progress
    state, reason, advice = _state(name, ce, policy, row, now, switched)
    if state == "active":
        of_system = _state_of_batch_system(name, policy, informed, now)
        state, reason, advice = of_system if of_system[0] != "active" else (state, reason, advice)
    if state == "active" and (spent := exhausted(budget)):
        advice = f"use leaves the window as time goes on; or raise ces.{name}.budget and apply the policy"
        state, reason = "spent", spent
    batch = ce.type != "local"
    return CeSummary(
        name=name,
        type=ce.type,
        site=ce.site,
        owners="any" if ce.serves_everybody else "home",
        state=state,
        reason=reason,
        advice=advice,
        by=row.switched_by,
        since=row.switched,
        until=_until(state, progress, now),
        max_waiting=ce.max_waiting if batch else None,
        max_running=ce.max_running if batch else None,
        listed=progress.listed,
        alike=progress.alike,
        failure=progress.failure,
        isolation=ce.isolation,
        budget=None if budget is None else _budget(budget),
    )


def _until(state: str, progress: CeProgress, now: float) -> float | None:
    """The end of the pause that the state tells."""
    ends = {"active": [progress.queues_until], "full": [progress.not_before]}
    later = [end for end in ends.get(state, [progress.not_before, progress.queues_until]) if now < end]
    return min(later, default=None) if state in ("active", "paused", "full") else None


def _information(row: InformationRow | None, problems: Sequence[str], now: float) -> tuple[str, float | None]:
    """(problems of the facts about a CE, their instant). Empty: no problem. None: there are no facts."""
    if row is None:
        return "; ".join(problems), None
    reasons = [row.problem] if row.problem else []
    facts = row.information
    if facts is not None and facts.updated > now + FUTURE_TOLERANCE:
        reasons.append("the last answer is from the future, since the clock was set back")
    elif facts is not None and not facts.is_current(now):
        reasons.append("the last answer has expired, so the state of the batch system is unknown")
    return "; ".join([*reasons, *problems]), None if facts is None else facts.updated


def _budget(status: BudgetStatus) -> CeBudget:
    budget = status.budget
    return CeBudget(
        budget.core_seconds, budget.window, status.used, status.committed, status.pilot, status.room
    )


def _state(
    name: str, ce: Ce, policy: Policy, row: CeRow, now: float, switched: SiteStateRow | None
) -> tuple[str, str, str]:
    """(state, reason, advice); the reason that holds longest comes first."""
    enable, progress = ENABLE.format(name=name), row.progress
    if policy.sites[ce.site].banned:
        advice = f"remove `banned` from [sites.{ce.site}] and apply the policy"
        return "banned", f"the policy bans site {ce.site}", advice
    if switched is not None and switched.state is SiteState.DOWN:
        return "down", switched.text, f"`pilotage site enable {ce.site}`"
    if row.switch is CeSwitch.DISABLED:
        return "disabled", row.switch_reason or "no reason was given", enable
    if row.switch is CeSwitch.STOPPED:
        advice = f"see `pilotage ce show {name}`; mend the cause, then {enable}, or change the CE's section"
        return "stopped", row.switch_reason, advice
    if too_short := short_wall(policy, ce):
        return "unusable", too_short, f"raise ces.{name}.wall and apply the policy"
    if progress.unreachable:
        advice = "the next listing tries again; running pilots and their jobs go on"
        return "unreachable", progress.unreachable + _asked(progress.unreachable_at, now), advice
    if now < progress.not_before and progress.trouble.startswith(NO_ROOM):
        advice = "it ends by itself when the batch system accepts a pilot again; running pilots go on"
        return "full", progress.trouble.removeprefix(NO_ROOM), advice
    if now < progress.not_before:
        advice = f"see `pilotage ce show {name}`; it ends by itself, or at once with {enable}"
        return "paused", progress.trouble, advice
    if now < progress.queues_until:
        return _pause_of_queues(progress, enable)
    return "active", "", ""


def _asked(at: float | None, now: float) -> str:
    """The age of an answer, as an appendix to it."""
    return "" if at is None else f" (asked {format_duration(max(0.0, now - at))} ago)"


def _pause_of_queues(progress: CeProgress, enable: str) -> tuple[str, str, str]:
    """(state, reason, advice) while no pilot is submitted for some queues, or for any."""
    queues = progress.queues_paused
    whom = f"{queues} task queue{'' if queues == 1 else 's'}" if queues else "all task queues"
    reason = f"no pilots for {whom}: the last ones ended before they had a job"
    return ("active" if queues else "paused"), reason, f"it ends by itself, or at once with {enable}"


def _state_of_batch_system(
    name: str, policy: Policy, row: InformationRow | None, now: float
) -> tuple[str, str, str]:
    """A state like that of `_state`, by the facts of the batch system and the policy: the director obeys them."""
    live = (row.information if row is not None else None) or CeInformation()
    hosts, current = PublishedHosts((), {}), is_usable(live, now)
    facts = publish(policy, name, live, hosts, current=current, home_owner="").information.attributes
    ad = ad_of(facts)
    advice = f"`pilotage ce ad {name}` shows the facts; [ces.{name}.attributes] of the policy replaces them"
    if closed := closed_reason(ad):
        return "closed", f"{closed}: its batch system starts no jobs for these pilots", advice
    if full := full_reason(ad):
        return "full", full, advice
    return "active", "", ""


def clocks_off(connection: Connection, ce: str) -> list[NodeClock]:
    """The nodes of a CE whose clock is off, the worst first."""
    nodes = [row for row in node_clocks.last_offsets(connection, ce) if clocks.is_off(row.offset)]
    nodes.sort(key=lambda row: -abs(row.offset))
    return [NodeClock(*row, clocks.describe(row.offset)) for row in nodes[:CLOCKS_SHOWN]]


def recent_use(connection: Connection, ce: str, now: float) -> CoreSeconds:
    """The core-seconds of a CE that are booked for the last `USE_WINDOW` seconds, in whole hours."""
    begin = floor((now - USE_WINDOW) / HOUR) * HOUR
    total = CoreSeconds()
    for seconds in costs.sums(connection, begin, ceil(now) + 1, ce=ce).values():
        total.add(seconds)
    return total


def closed_ces(policy: Policy, connection: Connection, now: float) -> dict[str, str]:
    """CE → its state and the reason, for the CEs of the policy that get no new pilots now."""
    rows, switched = ces.all_rows(connection), site_states.load(connection)
    informed = ce_information.load_facts(connection)
    closed = {}
    for name, ce in policy.ces.items():
        state, reason = "active", ""
        if (row := rows.get(name)) is not None:
            state, reason, _ = _state(name, ce, policy, row, now, switched.get(ce.site))
        if state == "active":
            state, reason, _ = _state_of_batch_system(name, policy, informed.get(name), now)
            # The numbers change all the time, and the history of a wait has a row for each change.
            reason = "its batch system takes no further job" if state == "full" else reason
        if state == "active" and exhausted(status_of(connection, name, ce, now)):
            state, reason = "spent", "its budget allows no further pilot"
        if state != "active":
            closed[name] = f"{state}: {reason}" if reason else state
    return closed


def failure(pilot: FailedPilot, log: str, *, everything: bool) -> CeFailure:
    """A failed pilot as its viewer may see it. The end of a reason names jobs, owners and groups."""
    culprit = blame(log, pilot.reason, had_jobs=pilot.had_jobs)
    reason = pilot.reason if everything else pilot.reason.partition(":")[0]
    return CeFailure(pilot.id, pilot.ended, pilot.hostname, reason, culprit, log if everything else "")
