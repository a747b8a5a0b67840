"""`pilotage why`: the reason why a job or a task queue waits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import Column, CommandOutput
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.request_why import show_request
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_duration, format_instant
from pilotage.client.selections import parse_ids
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.jobs.states import JobState
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.why import CePilots, ClosedLimit, PlaceInQueue, Standing, Why

QUEUE, REQUEST, ELEMENT = "queue", "request", "element"
KINDS = (QUEUE, REQUEST, ELEMENT)
WAITING = [str(state) for state in (JobState.WAITING, JobState.RESCHEDULED, JobState.HELD, JobState.BLOCKED)]


@connected
def why(
    session: Session,
    target: Annotated[
        str | None,
        CommandArgument(
            "A job (12), a task queue from `queue list` (queue:3), a request (request:5), or one of its"
            " elements (element:9)",
            "[TARGET]",
        ),
    ] = None,
    submission: Annotated[
        int | None,
        CommandOption(
            "The first job of this submission that waits, or else its first job",
            "N",
            names="-s --submission",
            min=1,
        ),
    ] = None,
) -> None:
    """Explain why a job, a task queue, a request or an element waits.

    Shows the conditions that refuse it, the jobs and queues ahead of it, and changes that would start it.
    """
    if (target is None) == (submission is None):
        raise InvalidInput(
            "why asks about one thing", hint="name a job, as in `pilotage why 12`, or a submission: -s 4"
        )
    if target is None:
        with session.client() as client:
            answer = client.why(_job_of(client, submission))
        session.screen.json(answer)
        _show(session.screen, answer, time.time())
        return
    kind, colon, rest = target.rpartition(":")
    number = _number(rest if kind in ("", *KINDS) else target, target)
    with session.client() as client:
        if kind in (REQUEST, ELEMENT):
            waits = client.why_request(number) if kind == REQUEST else client.why_element(number)
            show_request(session, waits, time.time())
            return
        answer = client.why_queue(number) if colon else client.why(number)
    session.screen.json(answer)
    _show(session.screen, answer, time.time())


def _job_of(client: Client, submission: int | None) -> int:
    """The first job of a submission that waits, or else its first job."""
    for states in (WAITING, None):
        chosen = wire.jobs.Selection(submission=submission, states=states)
        if job := next(client.jobs(chosen, page=1), None):
            return job.id
    raise NotFound(
        f"there is no submission {submission} with jobs", hint="`pilotage submission list` shows all"
    )


def _number(text: str, whole: str) -> int:
    try:
        [number] = parse_ids([text])
    except (InvalidInput, ValueError):
        raise InvalidInput(
            f"{whole!r} is neither a job nor a queue",
            hint="write 12 for job 12, queue:3 for task queue 3, request:5 for request 5, element:9 for element 9",
        ) from None
    return number


def _show(screen: CommandOutput, answer: Why, now: float) -> None:
    screen.facts(_facts(answer))
    for title, columns, rows in _tables(screen, answer, now):
        if rows:
            screen.line()
            screen.line(title)
            screen.table(columns, rows)


def _facts(answer: Why) -> Iterator[tuple[str, object]]:
    yield "job", answer.job
    yield "queue", answer.queue
    yield "why", answer.summary
    yield "hint", answer.advice
    yield "reason", " ".join(part for part in (answer.reason, f"({answer.detail})") if part != "()")
    yield "asks for", "; ".join(f"{name} {value}" for name, value in answer.needs.items())
    if answer.reason:
        yield "waiting", f"{plural(answer.waiting, 'job')} in this queue"
    if answer.in_queue is not None:
        yield "before it", _jobs_ahead(answer.in_queue)
    for limit in answer.limits:
        yield "limit", _limit(limit)


def _limit(limit: ClosedLimit) -> str:
    """The limit, its running jobs, and the time until the next start."""
    if limit.most == 0:
        return f"{limit.text}; nothing starts until the policy is changed"
    state = f"{limit.running:,} of {limit.most:,} running" if limit.most is not None else ""
    delay = f"the next start in {format_duration(limit.wait)}" if limit.wait else ""
    return "; ".join(part for part in (limit.text, state, delay) if part)


Row = tuple[object, ...]
Table = tuple[str, tuple[Column, ...], list[Row]]


def _tables(screen: CommandOutput, answer: Why, now: float) -> Iterator[Table]:
    yield (
        "blocked by",
        (Column("condition"), Column("on"), Column("job", right=True), Column("state")),
        [(blocker.condition, blocker.parent, blocker.job, blocker.state) for blocker in answer.blockers],
    )
    yield from _refused(answer)
    yield from _drawn(answer)
    yield from _over_time(screen, answer, now)


def _refused(answer: Why) -> Iterator[Table]:
    yield (
        "single changes that would open slots",
        (Column("change"), Column("slots", right=True), Column("sites")),
        [(opening.text, opening.slots, _counts(opening.sites)) for opening in answer.openings],
    )
    yield (
        "Requirements by CE",
        (Column("ce"), Column("said no")),
        [(row.ce, refusal.text) for row in answer.requirements for refusal in row.refusals],
    )
    yield (
        "refusals by site",
        (Column("site"), Column("offers", right=True), Column("refused at")),
        [(refusal.site, refusal.offers, _counts(refusal.conditions)) for refusal in answer.refused],
    )


def _drawn(answer: Why) -> Iterator[Table]:
    yield _draws(answer.standings)
    first = answer.standings[0] if answer.standings else None
    yield (
        "drawn earlier in the first of these draws",
        (Column("CPU time"), Column("queues", right=True), Column("jobs", right=True)),
        [
            (f"{bucket.cpu_time} s", bucket.queues, bucket.jobs)
            for bucket in (first.higher_buckets if first else [])
        ],
    )
    yield (
        "competitors in the first of these draws",
        (
            *(Column("owner"), Column("group"), Column("priority", right=True)),
            *(Column("to ours", right=True), Column("waiting", right=True)),
        ),
        [
            (
                rival.owner or "(all)",
                rival.group,
                f"{rival.priority:.4g}",
                f"{rival.ratio:.3g}",
                rival.waiting,
            )
            for rival in (first.rivals if first else [])
        ],
    )


def _draws(standings: Sequence[Standing]) -> Table:
    """The table of draws, for 80 columns: the CE implies the site; `ahead` counts where no bucket goes first."""
    buckets = any(standing.higher_buckets for standing in standings)
    return (
        "draws on the offers that it fits" + (", after the queues with more CPU time" if buckets else ""),
        (
            *(Column("offer"), Column("serves"), Column("made", right=True), Column("queues", right=True)),
            *(Column("chance", right=True), Column("go first" if buckets else "ahead", right=True)),
        ),
        [_draw(standing, buckets) for standing in standings],
    )


def _over_time(screen: CommandOutput, answer: Why, now: float) -> Iterator[Table]:
    yield (
        "pilots at the CEs that it fits",
        (Column("ce"), Column("site"), Column("pilots"), Column("cores in use"), Column("director")),
        [_pilots(pilot, now, screen) for pilot in answer.pilots],
    )
    yield (
        "wait history of the queue",
        (Column("reason"), Column("detail"), Column("since"), Column("for", right=True)),
        [
            (
                entry.reason or "(nothing waited)",
                entry.detail,
                screen.instant(entry.since),
                format_duration(max(0.0, (entry.until or now) - entry.since)),
            )
            for entry in answer.history
        ],
    )


def _draw(standing: Standing, buckets: bool) -> Row:
    size = plural(standing.processors, "core") + (f", {standing.memory} MB" if standing.memory else "")
    made = "possible" if standing.possible else "once" if standing.takes == 1 else f"{standing.takes:,} times"
    before = sum(bucket.jobs for bucket in standing.higher_buckets) if buckets else standing.ahead
    return (
        f"{standing.ce}, {size}",
        standing.serves or "all",
        made,
        standing.queues,
        f"{standing.chance:.2%}",
        before,
    )


def _pilots(ce: CePilots, now: float, screen: CommandOutput) -> Row:
    live = ", ".join(f"{number} {state}" for state, number in sorted(ce.pilots.items())) or "none"
    if ce.giving_way:
        live += f" ({ce.giving_way} leaving: share)"
    did = f"asked for {ce.ordered} just now" if ce.ordered else ""
    if ce.switched_off:
        did = f"starts none before `ce enable {ce.ce}`"
    elif ce.not_before > now:
        again = f"in {format_duration(ce.not_before - now)}"
        did = f"tries again {again if screen.terminal else format_instant(ce.not_before, now, exact=True)}"
    if ce.budget:
        did = ce.budget
    return (ce.ce, ce.site, live, f"{ce.used} of {ce.cores}" if ce.cores else "", did)


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} {count:,}" for name, count in sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    )


def _jobs_ahead(place: PlaceInQueue) -> str:
    parts = [
        f"{_capped(number)} {what}"
        for number, what in ((place.higher, "of higher UserPriority"), (place.older, "older"))
        if number
    ]
    same = f"of the same queue {' and '.join(parts)}" if parts else "nothing of the same queue"
    if not place.others:
        return same
    return (
        f"{same}; {plural(place.others, 'job')} in {plural(place.queues, 'other queue')} for the same nodes"
    )


def _capped(number: int) -> str:
    return "10,000 or more" if number >= 10_000 else f"{number:,}"
