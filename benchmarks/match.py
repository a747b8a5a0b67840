"""Matches per second, durable: a match is a committed `offered` with its event.

In process: pilots ask through the writer; each has a free node again as soon as it is answered. With `--http`: a server
process and separate client processes, as pilots of a farm ask.

The raw limit is the rate of the same store without matching: a claim by id for each job, and one event per batch.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks import asked as in_process
from benchmarks import own_network
from benchmarks.figure import Figure, part
from benchmarks.filled import Store, fill_apart, store_at
from benchmarks.processes import forget_most, memory
from benchmarks.shapes import Shape, shape_of

SUMMARY = "matches/s, each committed with its event: in process, or with --http of a server"

TURNS = 6
"""Turns in which two pools are measured."""


def store_options(parser: argparse.ArgumentParser) -> None:
    """Options for the waiting jobs and their store."""
    parser.add_argument("--jobs", type=int, help="waiting jobs; 1,000,000, or as many as the shape has")
    parser.add_argument("--queues", type=int, default=5_000, help="of the synthetic shape")
    parser.add_argument("--shape", choices=("synthetic", "lhcb"), default="synthetic")
    parser.add_argument("--interleaved", action="store_true", help="no two jobs of a queue on one page")
    parser.add_argument("--rule", choices=("dirac", "proportional"), default="dirac")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")


def options(parser: argparse.ArgumentParser) -> None:
    store_options(parser)
    parser.add_argument("--clients", type=int, default=64, help="pilots that ask at the same time")
    parser.add_argument("--http", action="store_true", help="ask a server over HTTP, from other processes")
    parser.add_argument("--ask", type=int, help="jobs asked for in one call: 1; 16 with --http")
    parser.add_argument("--processes", type=int, default=2, help="of clients, with --http")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument(
        "--no-sync",
        action="store_true",
        help="wait for no disk, neither here nor in the limit: what is left is the program's own (in process)",
    )

    parser.add_argument(
        "--against",
        type=int,
        metavar="JOBS",
        help="measure in turns with a pool of so many jobs: the ratio is that of the two",
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        help="with --http: measure a server over TLS in turns with one without: the ratio is that of the two",
    )


def run(asked: argparse.Namespace) -> Figure:
    if asked.tls:
        if not asked.http or asked.against or asked.store != "sqlite":
            raise SystemExit("--tls is for --http, without --against, on SQLite")
        own_network.enter()
    shape = shape_of(asked)
    with (
        tempfile.TemporaryDirectory(prefix="bench-match-") as folder,
        store_at(Path(folder), asked.store) as store,
    ):
        if asked.http and asked.no_sync:
            raise SystemExit("--no-sync is for pilots in process: a server makes everything durable")
        if asked.against or asked.tls:
            return _in_turns(asked, Path(folder), store, shape)
        if asked.http:
            from benchmarks.over_http import measured

            return measured(asked, Path(folder), store, shape)
        return _in_process(asked, store, shape)


def _in_process(asked: argparse.Namespace, store: Store, shape: Shape) -> Figure:
    ask = asked.ask or 1
    tokens = [f"token {number}" for number in range(asked.clients)]
    filled = fill_apart(store, shape, asked.rule, tokens, interleaved=asked.interleaved)
    forget_most()
    before = memory("self")
    with in_process.opened(store, shape, tokens, sync=not asked.no_sync) as site:
        found = site.measured(ask, asked.seconds)
        most, times, groups = memory("self", "VmHWM"), site.writer.times, site.writer.groups
        raw = site.raw_limit(asked.seconds / 4)
    rate = round(found.matched / found.seconds, 1)
    notes = {
        "pool": pool_told(asked, store, shape),
        "asking": f"{asked.clients} pilots in process, {ask} at a time; {len(found.latencies):,} answers,"
        f" {found.matched / max(1, len(found.latencies)):.1f} jobs in each, {found.empty} without",
        "latency": latency_told(found.latencies),
        "transactions": f"{groups:,}, the longest {times.longest_work * 1000:.1f} ms,"
        f" {times.longest * 1000:.1f} ms with its commit and checkpoint",
        "index": f"rebuilt in {site.rebuilt:.2f} s",
        "memory": f"{most} MB at most, {before} MB before the index was built",
        "filling": f"{filled:.1f} s",
    }
    if found.logged:
        size, pages = (amount / max(1, found.matched) for amount in found.logged)
        notes["log"] = (
            f"{size:,.0f} bytes for each match, with {pages:.2f} whole pages: the first change since a checkpoint"
        )
    return Figure(
        "match", rate, "matches/s", {"raw claims": round(raw, 1)}, round(rate / raw, 3), [rate], notes
    )


def _in_turns(asked: argparse.Namespace, folder: Path, store: Store, shape: Shape) -> Figure:
    """The machine may be twice as fast a minute later: so neither pool has a minute of its own."""
    other = shape_of(argparse.Namespace(**{**vars(asked), "jobs": asked.against or asked.jobs}))
    with store_at(folder / "other", asked.store) as second:
        pools = ((folder, store, shape), (folder / "other", second, other))
        notes = {"pool": pool_told(asked, store, shape)}
        if asked.http:
            from benchmarks.over_http import in_turns

            listen = (own_network.ADDRESS, "") if asked.tls else ("", "")
            (ours, beside), costs = in_turns(asked, pools, TURNS, listen)
            notes["server"] = "{:.1f} and {:.1f} µs of processor time for a job".format(*costs)
        else:
            ours, beside = _turns_in_process(asked, pools)
            notes["memory"] = f"{memory('self', 'VmHWM')} MB at most, of both pools"
    if not all(beside):
        raise SystemExit(f"{other.jobs:,} jobs do not last for all turns: take more, or fewer --seconds")
    turns = list(zip(ours, beside, strict=True))
    notes["in turns"] = ", ".join(f"{rate:,.0f} and {rate_beside:,.0f}" for rate, rate_beside in turns)
    ratio = round(median(rate / rate_beside for rate, rate_beside in turns), 3)
    peers = {"without TLS" if asked.tls else f"with {asked.against:,} jobs": median(beside)}
    name = "match --http --tls" if asked.tls else "match"
    return Figure(name, median(ours), "matches/s", peers, ratio, ours, notes)


def _turns_in_process(
    asked: argparse.Namespace, pools: Sequence[tuple[Path, Store, Shape]]
) -> list[list[float]]:
    tokens = [f"token {number}" for number in range(asked.clients)]
    rates: list[list[float]] = [[] for _ in pools]
    with ExitStack() as stack:
        sites = []
        for _, store, shape in pools:
            fill_apart(store, shape, asked.rule, tokens, interleaved=asked.interleaved)
            sites.append(stack.enter_context(in_process.opened(store, shape, tokens, sync=not asked.no_sync)))
        for _ in range(TURNS):
            for site, found in zip(sites, rates, strict=True):
                one = site.measured(asked.ask or 1, asked.seconds / TURNS)
                found.append(round(one.matched / one.seconds, 1))
    return rates


def pool_told(asked: argparse.Namespace, store: Store, shape: Shape) -> str:
    """`asked` may be without the option `no_sync`: then everything is durable."""
    lie = ", interleaved" if asked.interleaved else ""
    durable = ", NOTHING DURABLE" if getattr(asked, "no_sync", False) else ""
    return f"{shape.told}{lie}, rule {asked.rule}; {store.name}{durable}"


def latency_told(latencies: Sequence[float]) -> str:
    """Of seconds."""
    ordered = sorted(latencies)
    names = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "the worst": 1.0}
    return ", ".join(f"{name} {part(ordered, place) * 1000:.2f} ms" for name, place in names.items())
