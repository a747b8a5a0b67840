"""Pages: sites and CEs, with their pilots, room, failures and costs, and the verbs of their administrators."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.responses import Response

from pilotage.core.errors import NotFound
from pilotage.core.jobs.durations import format_hours
from pilotage.core.plurals import plural
from pilotage.server.web.change_form import ChangeForm, ask_first
from pilotage.server.web.charts import Chart, ChartBar, ChartPart
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.ces import DISABLE_CE, ENABLE_CE, LIST_CES, REPORT_CE, CeChange, CeQuery, CeSummary
from pilotage.wire.costs import COSTS, CostQuery, CostReport, CostRow
from pilotage.wire.sites import LIST_SITES, SET_SITE_STATE, SiteStateRequest, SiteSummary

pages = PageRouter(menu="CEs", order=5)

WEEK = 7 * 86400.0
NOBODY = "(nobody)"
_COST_PARTS = (
    ChartPart("payload", "good"),
    ChartPart("start-up", "busy"),
    ChartPart("idle", "stopped"),
    ChartPart("lost", "bad"),
)
_PILOT_PARTS = (ChartPart("running", "busy"), ChartPart("waiting to start", "stopped"))
_SITE_STATES = {
    "drain": (
        "Drain",
        "Pilots are submitted there only for jobs that can run nowhere else, and requests send it no more work."
        " Running jobs go on.",
    ),
    "down": ("Take down", "No pilot is submitted there, and no job starts. Running jobs go on."),
    "normal": ("Make normal", "Pilots are submitted there and jobs start again."),
}
_SWITCHES = {
    "enable": ("Enable", "Pilots are submitted there again, and a pause after failures ends."),
    "disable": ("Disable", "No more pilots are submitted there until it is enabled. Its pilots go on."),
}


@pages.get("/ces")
async def show(visit: Visit) -> Response:
    """All sites and CEs, the room for pilots, and where the core-seconds of a week went."""
    sites, ces = await visit.ask(LIST_SITES), await visit.ask(LIST_CES)
    costs = await visit.ask(COSTS, CostQuery(by="ce", since=WEEK))
    policy, caller = visit.context.pool.policy, visit.caller
    assert caller is not None
    return await visit.render_charts(
        "ces.html",
        _pilots_chart(ces),
        cost_chart(costs, "CE", ce_pages=True),
        sites=[(site, caller.administers(policy, site.name)) for site in sites],
        ces=sorted(ces, key=lambda ce: (ce.site, ce.name)),
    )


@pages.get("/ces/one")
async def show_ce(visit: Visit) -> Response:
    """One CE: its last failures and whose fault they look like, why pilots wait, and its costs."""
    name = visit.query.get("name", "")
    report = await visit.ask(REPORT_CE, CeQuery(name))
    owners = await visit.ask(COSTS, CostQuery(by="owner", ce=name, since=WEEK))
    return await visit.render_charts(
        "ce.html",
        _pilots_chart([report.ce]),
        cost_chart(owners, "Owner"),
        ce=report.ce,
        report=report,
        verbs=_verbs(visit, report.ce),
        words=_SWITCHES,
    )


@pages.get("/ces/{verb}")
async def ask_to_switch(visit: Visit, verb: str) -> Response:
    """The effect of enabling or disabling a CE."""
    words = _words(_SWITCHES, verb)
    name = visit.query.get("name", "")
    ce = (await visit.ask(REPORT_CE, CeQuery(name))).ce
    effects = [
        words[1],
        f"It has {plural(ce.running, 'running pilot')} and {ce.waiting:,} that have not started.",
    ]
    form = ChangeForm(
        f"{words[0]} {name}?",
        effects,
        words[0],
        f"ces/{verb}",
        back=f"ces/one?{urlencode({'name': name})}",
        fields={"name": name},
        danger=verb == "disable",
        needs_reason=verb == "disable",
    )
    return await ask_first(visit, form)


@pages.post("/ces/{verb}")
async def switch(visit: Visit, verb: str) -> Response:
    """Enable or disable a CE."""
    _words(_SWITCHES, verb)
    name = visit.form.get("name", "")
    change = CeChange(name, visit.form.get("reason", "").strip())
    await visit.ask(ENABLE_CE if verb == "enable" else DISABLE_CE, change)
    return visit.redirect(f"ces/one?{urlencode({'name': name})}")


@pages.get("/sites/{state}")
async def ask_for_state(visit: Visit, state: str) -> Response:
    """The effect of draining a site, taking it down, or making it normal."""
    words = _words(_SITE_STATES, state)
    site = await _site(visit, visit.query.get("name", ""))
    live = sum(site.pilots.values())
    form = ChangeForm(
        f"{words[0]} site {site.name}?",
        [words[1], f"It has {plural(site.running, 'running job')} and {plural(live, 'pilot')} now."],
        words[0],
        f"sites/{state}",
        back="ces",
        fields={"name": site.name},
        danger=state == "down",
        needs_reason=state != "normal",
    )
    return await ask_first(visit, form)


@pages.post("/sites/{state}")
async def set_state(visit: Visit, state: str) -> Response:
    """Drain a site, take it down, or make it normal."""
    _words(_SITE_STATES, state)
    reason = visit.form.get("reason", "").strip()
    await visit.ask(SET_SITE_STATE, SiteStateRequest(visit.form.get("name", ""), state, reason=reason))
    return visit.redirect("ces")


def cost_chart(report: CostReport, of: str, *, ce_pages: bool = False) -> Chart:
    """Where core-seconds went: each is payload, start-up, idle or lost."""
    rows = sorted(report.rows, key=lambda row: -row.total)
    return Chart(
        "cost",
        "Core-hours of the last week",
        of,
        "core-hour",
        _COST_PARTS,
        [_cost_bar(row, ce_pages=ce_pages) for row in rows],
        amount=format_hours,
        note="The CSV file has core-seconds.",
    )


def _cost_bar(row: CostRow, *, ce_pages: bool) -> ChartBar:
    address = f"ces/one?{urlencode({'name': row.name})}" if ce_pages and row.name else ""
    note = "" if row.efficiency is None else f"{row.efficiency:.0%} payload"
    return ChartBar(row.name or NOBODY, (row.payload, row.startup, row.idle, row.lost), address, note)


def _pilots_chart(ces: Sequence[CeSummary]) -> Chart:
    bars = [
        ChartBar(ce.name, (ce.running, ce.waiting), f"ces/one?{urlencode({'name': ce.name})}", limits_of(ce))
        for ce in ces
    ]
    return Chart("pilots", "Pilots, and their limits", "CE", "pilot", _PILOT_PARTS, bars)


def limits_of(ce: CeSummary) -> str:
    """The most pilots that may run and wait there; a local CE starts as many as its cores take."""
    if ce.max_running is None or ce.max_waiting is None:
        return ""
    return f"at most {ce.max_running:,} running, {ce.max_waiting:,} waiting"


def _verbs(visit: Visit, ce: CeSummary) -> list[str]:
    """The verbs that the user may send and that change something."""
    if visit.caller is None or not visit.caller.administrator:
        return []
    return {"active": ["disable"], "disabled": ["enable"]}.get(ce.state, ["enable", "disable"])


def _words(table: dict[str, tuple[str, str]], verb: str) -> tuple[str, str]:
    if verb not in table:
        raise NotFound(f"there is no verb {verb[:20]}")
    return table[verb]


async def _site(visit: Visit, name: str) -> SiteSummary:
    for site in await visit.ask(LIST_SITES):
        if site.name == name:
            return site
    raise NotFound(f"the policy has no site {name[:40]}")
