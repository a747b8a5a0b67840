"""Pages: why jobs wait, now and over time; the queues of a reason or a time; and one queue with its history."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.responses import Response

from pilotage.core.jobs.durations import format_hours
from pilotage.core.queues.wait_reason import Reason
from pilotage.server.web.charts import TONES, Chart, ChartBar, ChartPart
from pilotage.server.web.page import PageRouter
from pilotage.server.web.periods import PERIODS, interval_of, part_label, period_name, utc_words
from pilotage.server.web.visit import Visit
from pilotage.wire.intervals import (
    PAST_QUEUES,
    WAITING_HISTORY,
    PastQueuesQuery,
    WaitingHistory,
    WaitingHistoryQuery,
)
from pilotage.wire.pool import COUNT_WAITING, LIST_QUEUES, QueuesQuery, WaitingJobs
from pilotage.wire.why import WHY_QUEUE, Waited, Why

pages = PageRouter(menu="Waiting", order=3)

ROWS = 100
UNKNOWN = ""
WORDS = {
    Reason.MEMBERSHIP: ("not in the policy", "the policy does not know the group, or the owner in it"),
    Reason.DRAINING: ("the server drains", "the server gives out no new work"),
    Reason.NO_OFFER: ("no place is known", "no pilot asked lately, and no CE of known size is there"),
    Reason.NEEDS: ("fits nowhere", "every known place refuses the requirements"),
    Reason.LIMIT: ("limits", "limits or start delays close all places that fit"),
    Reason.POOL: ("no submit pool", "no submit pool takes the pilots"),
    Reason.BACKGROUND: ("in the background", "other jobs of the same owner go first"),
    Reason.CPU_BUCKET: ("longer jobs first", "queues with more CPU time go first"),
    Reason.SHARE: ("others' turn", "places that fit went to others, by their shares"),
    Reason.PILOT: ("a pilot comes", "a pilot was submitted and has not started yet"),
    Reason.CE: ("CEs are closed", "no CE that fits gets new pilots now"),
    Reason.SLOTS: ("no free slot", "it fits, and no place was free"),
    UNKNOWN: ("not known yet", "the reason is recorded within a minute"),
}
"""For each reason: its words on a page, and its meaning."""
_TONES = {reason: TONES[place % len(TONES)] for place, reason in enumerate(reversed(WORDS))}
"""The colours of the last nine differ: the first reasons are rare."""
OTHERS = "other groups"


@pages.get("/waiting")
async def show(visit: Visit) -> Response:
    """All waiting jobs by reason and group, and by reason over time. Each reason and time leads to its queues."""
    period, rows = period_name(visit), await visit.ask(COUNT_WAITING)
    history = await visit.ask(
        WAITING_HISTORY, WaitingHistoryQuery(since=PERIODS[period].seconds, points=PERIODS[period].parts)
    )
    reasons = [reason for reason in WORDS if any(row.reason == reason for row in rows)]
    return await visit.render_charts(
        "waiting.html",
        waiting_chart(rows),
        history_of_reasons(history),
        reasons=[(reason, *WORDS[reason], _sum(rows, reason), address_of(reason)) for reason in reasons],
        period=period,
        periods=list(PERIODS),
    )


@pages.get("/waiting/interval")
async def show_interval(visit: Visit) -> Response:
    """The jobs that waited in one part of a period, by reason and group, and their queues."""
    begin, end = interval_of(visit)
    reason, after = visit.query.get("reason", ""), visit.number("after")
    asked = WaitingHistoryQuery(since=float(end - begin), end=float(end), points=1)
    history = await visit.ask(WAITING_HISTORY, asked)
    page = await visit.ask(
        PAST_QUEUES, PastQueuesQuery(after, ROWS, begin=history.begin, end=history.end, reason=reason)
    )
    return await visit.render_charts(
        "waiting_interval.html",
        interval_chart(history),
        begin=utc_words(history.begin),
        end=utc_words(history.end),
        interval={"begin": begin, "end": end},
        reason=reason,
        words=WORDS.get(reason, WORDS[UNKNOWN])[0] if reason else "",
        all_words=WORDS,
        queues=page.queues,
        next=page.next,
    )


@pages.get("/waiting/queues")
async def show_queues(visit: Visit) -> Response:
    """The queues that wait for one reason, or all."""
    reason, after = visit.query.get("reason", ""), visit.number("after")
    page = await visit.ask(LIST_QUEUES, QueuesQuery(reason=reason, after=after, limit=ROWS))
    return await visit.render(
        "waiting_queues.html",
        reason=reason,
        words=WORDS.get(reason, WORDS[UNKNOWN]) if reason else None,
        all_words=WORDS,
        queues=page.queues,
        next=page.next,
    )


@pages.get("/queues/{queue:int}")
async def show_queue(visit: Visit, queue: int) -> Response:
    """Why the jobs of one queue wait, and for how long it waited for which reason."""
    why: Why = await visit.ask(WHY_QUEUE, queue=queue)
    now = visit.context.clock()
    return await visit.render_charts("queue.html", history_chart(why.history, now), why=why, words=WORDS)


def waiting_chart(rows: Sequence[WaitingJobs]) -> Chart:
    """Waiting jobs: a bar for each group, a part for each reason."""
    reasons = [reason for reason in WORDS if any(row.reason == reason for row in rows)]
    parts = [ChartPart(WORDS[reason][0], _TONES[reason], address_of(reason)) for reason in reasons]
    jobs = {(row.group, row.reason): row.jobs for row in rows}
    groups = sorted({row.group for row in rows})
    bars = [ChartBar(group, [jobs.get((group, reason), 0) for reason in reasons]) for group in groups]
    return Chart("waiting", "Waiting jobs by group and reason", "Group", "waiting job", parts, bars)


def history_of_reasons(history: WaitingHistory) -> Chart:
    """Waiting jobs over time: a bar for each recorded part of a period, a part for each reason."""
    reasons, jobs = _reasons_of(history), dict[tuple[float, str], float]()
    for point in history.points:
        key = (point.begin, point.reason)
        jobs[key] = jobs.get(key, 0.0) + point.jobs
    whole, bars = history.end - history.begin, list[ChartBar]()
    for place, seconds in enumerate(history.recorded):
        begin = history.begin + place * history.span
        if seconds:
            address = interval_address(begin, begin + history.span)
            values = [jobs.get((begin, reason), 0.0) for reason in reasons]
            bars.append(ChartBar(part_label(begin, history.span, whole), values, address))
    return Chart(
        "reasons",
        "Waiting jobs over time, by reason",
        "From (UTC)",
        "waiting job",
        _parts_of(reasons, history),
        bars,
        amount=_average,
        note="Averages. Times in which no server ran have no row.",
        summed=False,
    )


def interval_chart(history: WaitingHistory) -> Chart:
    """The jobs that waited in one part of a period: a bar for each group, a part for each reason."""
    reasons, groups = _reasons_of(history), sorted({point.group for point in history.points})
    jobs = {(point.group, point.reason): point.jobs for point in history.points}
    return Chart(
        "interval",
        "Waiting jobs by group and reason",
        "Group",
        "waiting job",
        _parts_of(reasons, history),
        [
            ChartBar(group or OTHERS, [jobs.get((group, reason), 0.0) for reason in reasons])
            for group in groups
        ],
        amount=_average,
        note="Averages over this time.",
    )


def _reasons_of(history: WaitingHistory) -> list[str]:
    """The reasons of a history, in the order of all."""
    named = {point.reason for point in history.points}
    return [*(reason for reason in WORDS if reason in named), *sorted(named - WORDS.keys())]


def _parts_of(reasons: Sequence[str], history: WaitingHistory) -> list[ChartPart]:
    return [
        ChartPart(
            WORDS[reason][0] if reason in WORDS else reason,
            _TONES.get(reason, "dim"),
            interval_address(history.begin, history.end, reason),
        )
        for reason in reasons
    ]


def _average(number: float) -> str:
    return f"{number:,.1f}"


def history_chart(history: Sequence[Waited], now: float) -> Chart:
    """The hours for which a queue waited, by reason."""
    spent = dict[str, float]()
    for waited in history:
        if waited.reason:
            end = now if waited.until is None else waited.until
            spent[waited.reason] = spent.get(waited.reason, 0.0) + max(0.0, end - waited.since)
    bars = [
        ChartBar(WORDS[reason][0] if reason in WORDS else reason, [seconds])
        for reason, seconds in spent.items()
    ]
    return Chart(
        "history",
        "Hours of waiting, by reason",
        "Reason",
        "hour",
        [ChartPart("hours", "busy")],
        bars,
        amount=format_hours,
        note="The CSV file has seconds.",
    )


def interval_address(begin: float, end: float, reason: str = "") -> str:
    """The page with the queues that waited in some time, for a reason or all."""
    asked = {"begin": f"{begin:.0f}", "end": f"{end:.0f}"}
    return f"waiting/interval?{urlencode({**asked, 'reason': reason} if reason else asked)}"


def address_of(reason: str) -> str:
    """The page with the queues of a reason. Queues without a recorded one are among all."""
    return f"waiting/queues?{urlencode({'reason': reason})}" if reason else "waiting/queues"


def _sum(rows: Sequence[WaitingJobs], reason: str) -> WaitingJobs:
    """The rows of one reason as one."""
    own = [row for row in rows if row.reason == reason]
    since = [row.since for row in own if row.since is not None]
    queues, jobs = sum(row.queues for row in own), sum(row.jobs for row in own)
    return WaitingJobs(reason, "", queues, jobs, min(since, default=None))
