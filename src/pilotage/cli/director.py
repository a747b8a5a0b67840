"""`pilotage director`: the last iteration of the director, or the next one as a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column, CommandOutput
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.director import DirectorCe, DirectorPool, DirectorReport, QueueReport


@connected
def director(
    session: Session,
    explain: Annotated[bool, CommandOption("Explain the last iteration (default)")] = False,
    dry_run: Annotated[bool, CommandOption("Compute the next iteration and submit nothing")] = False,
    seed: Annotated[
        int | None, CommandOption("Seed of the dry run; default: the next one", "N", min=0)
    ] = None,
    queue: Annotated[int | None, CommandOption("Only this queue, with each CE", "ID", min=0)] = None,
    limit: Annotated[int, CommandOption("Queues at most", "N", min=1)] = 100,
) -> None:
    """Explain the director's pilots: each term, cap and result for every queue, its submit pool and its CEs.

    --explain shows the last iteration, which submitted pilots. --dry-run computes the next one with the shown seed.
    """
    if explain and dry_run:
        raise InvalidInput("choose one of --explain and --dry-run")
    if seed is not None and not dry_run:
        raise InvalidInput("--seed goes with --dry-run", hint="the last iteration has its own seed")
    with session.client() as client:
        report = client.director(dry_run=dry_run, seed=seed, queue=queue, limit=limit)
    if session.as_json:
        session.screen.json(report)
        return
    _show(session.screen, report)
    if queue is not None:
        _show_ces(session.screen, report.queues[0])
    return


TERMS = ("cpu", "jobs", "priority", "by priority", "by jobs", "boost", "mean", "drawn", "waiting", "cap")
MATCHED_TERMS = ("cpu", "jobs", "covered", "waiting")


def _show(screen: CommandOutput, report: DirectorReport) -> None:
    when = screen.instant(report.at)
    done = f"iteration {report.number}" if report.acted else "dry run: nothing is submitted"
    pools = "; ".join(_pool_text(pool) for pool in report.pools)
    ces = "; ".join(_ce_text(ce) for ce in report.ces)
    screen.facts(
        (
            ("director", f"{done}, {when}, seed {report.seed}"),
            ("demand", report.demand),
            *((name, f"{value:g}") for name, value in report.parameters.items()),
            ("pools", pools),
            ("CEs", ces),
            ("pilots", f"{report.pilots} for {plural(report.queue_count, 'queue')}"),
        )
    )
    screen.line()
    terms = MATCHED_TERMS if report.demand == "matched" else TERMS
    screen.table(_columns(terms), (_row(queue, terms) for queue in report.queues))
    if len(report.queues) < report.queue_count and len(report.queues) > 1:
        screen.note(
            f"{plural(report.queue_count - len(report.queues), 'more queue')}: raise --limit,"
            " or choose one with --queue"
        )


def _columns(terms: Sequence[str]) -> list[Column]:
    columns = [Column("queue", right=True), Column("owner"), Column("group", rank=1)]
    columns += [Column(name, right=True, rank=2) for name in terms]
    columns += [Column("demand", right=True), Column("pilots", right=True)]
    columns += [Column("type", rank=1), Column("pool", rank=1)]
    return [*columns, Column("CEs", text=True), Column("reason", text=True)]


def _pool_text(pool: DirectorPool) -> str:
    parts = [pool.verdict]
    if pool.verdict in ("takes", "full"):
        parts.append(
            f"{pool.submissions} of {plural(pool.total, 'submission')}, {pool.max_threads} at the same time"
        )
    if pool.rank:
        parts.append(f"Rank {pool.rank}")
    return f"{pool.name}: {', '.join(parts)}"


def _ce_text(ce: DirectorCe) -> str:
    parts = [f"{ce.ordered} ordered", f"closed ({ce.closed})" if ce.closed else f"room for {ce.room}"]
    if not ce.closed:
        parts.append(f"{ce.cpu_time:.0f} s CPU time at speed {ce.cpu_power:g}")
    if ce.rank is not None:
        parts.append(f"Rank {ce.rank:g}")
    return f"{ce.name}: {', '.join(parts)}"


def _row(queue: QueueReport, terms: tuple[str, ...]) -> tuple[object, ...]:
    values: dict[str, float | None] = {
        "cpu": queue.cpu_time,
        "jobs": queue.jobs,
        "priority": queue.priority,
        "by priority": queue.by_priority,
        "by jobs": queue.by_jobs,
        "boost": queue.boost,
        "mean": queue.mean,
        "drawn": queue.drawn,
        "waiting": queue.waiting,
        "cap": queue.cap,
        "covered": queue.covered,
    }
    shown = (_number(values[term]) for term in terms)
    ces = ", ".join(f"{order.pilots} at {order.ce} ({order.pilot_type})" for order in queue.orders)
    pools = queue.pool or ", ".join(f"{name}: {verdict}" for name, verdict in queue.pools_tried.items())
    return (
        *(queue.queue, queue.owner, queue.group, *shown, queue.demand, queue.submitted),
        *(queue.pilot_type, pools, ces, queue.shortfall),
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _show_ces(screen: CommandOutput, queue: QueueReport) -> None:
    screen.line()
    ordered = {order.ce: order.pilots for order in queue.orders}
    screen.table(
        (Column("ce"), Column("pilots", right=True), Column("why not", text=True)),
        ((name, ordered.get(name, 0), reason) for name, reason in queue.ces.items()),
    )
