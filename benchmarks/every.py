"""All that docs/reference/benchmarks.md lists, one after another, each in a process of its own; then the table."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.figure import Figure, told

POSTGRES, LHCB, HTTP = "--store postgres", "--shape lhcb", "--http"
TEN, AGAINST = "--jobs 10000000", "--against 1000000"
SUMMARY = "everything that docs/reference/benchmarks.md lists, and the table of aims and figures"

LATENCY = re.compile(r"p99 ([\d.]+) ms")
SPEED = re.compile(r"[\d.]+")
MEGABYTES = re.compile(r"(\d+) MB at most")
IN_LOOP = re.compile(r"(\d+) ms of processor time")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    command: str
    aim: str = ""
    least: float | None = None
    """Lower bound of the figure."""
    most: float | None = None
    """Upper bound of the figure."""
    ratio: float | None = None
    """Lower bound of the ratio."""
    p99: float | None = None
    """ms."""
    memory: float | None = None
    """MB, of the server at most."""
    loop: float | None = None
    """ms of the event loop at most."""


IN_PROCESS: dict[str, Any] = {
    "aim": "≥ 20,000/s, ≥ 0.5 of the raw claims, p99 < 10 ms",
    "least": 20_000,
    "ratio": 0.5,
    "p99": 10,
}
ONE: dict[str, Any] = {"aim": "≥ 5,000/s", "least": 5_000}
SIXTEEN: dict[str, Any] = {"aim": "≥ 12,000/s, server < 500 MB", "least": 12_000, "memory": 500}
MANY: dict[str, Any] = {"aim": "within 20 % of 1M; < 2 GB", "memory": 2_000}

LINES = (
    Line("match", **IN_PROCESS),
    Line(f"match {TEN} {AGAINST}", ratio=0.8, **MANY),
    Line(f"match {POSTGRES}", **IN_PROCESS),
    Line(f"match {TEN} {AGAINST} {POSTGRES}", ratio=0.8, **MANY),
    Line(f"match {LHCB}", **IN_PROCESS),
    Line(f"match {LHCB} {POSTGRES}", **IN_PROCESS),
    Line("match --ask 16"),
    Line(f"match --ask 16 {POSTGRES}"),
    Line("match --interleaved"),
    Line("match --no-sync"),
    Line(f"match --no-sync {POSTGRES}"),
    Line(f"match {HTTP} --ask 1", **ONE),
    Line(f"match {HTTP} --ask 1 {POSTGRES}", **ONE),
    Line(f"match {HTTP}", **SIXTEEN),
    Line(f"match {HTTP} {TEN}", "< 2 GB", memory=2_000),
    Line(f"match {HTTP} {TEN} {AGAINST}", "within 20 % of 1M", ratio=0.8),
    Line(f"match {HTTP} {POSTGRES}", **SIXTEEN),
    Line(f"match {HTTP} --tls", "≥ 0.7 of the same without TLS", ratio=0.7),
    Line("plot", "flat against jobs, sub-linear against queues"),
    Line("restart", "< 3 s", most=3.0),
    Line(f"restart {POSTGRES}", "< 3 s", most=3.0),
    Line(f"restart {TEN} --runs 1", "< 15 s", most=15.0),
    Line(f"restart {TEN} --runs 1 {POSTGRES}", "< 15 s", most=15.0),
    Line("submit", "≥ 50,000/s", least=50_000),
    Line(f"submit {POSTGRES}", "≥ 50,000/s", least=50_000),
    Line("life", "≥ 1,500/s", least=1_500),
    Line("history"),
    Line("shares", "< 50 ms", most=50.0),
    Line("pilots", "< 5 ms", most=5.0),
    Line("lists", aim="< 10 ms", most=10),
    Line("why", "< 100 ms", most=100.0),
    Line("slurm", "< 1 s for 1,000 pilots", most=1.0),
    Line("htcondor", "< 2 s for 1,000 pilots", most=2.0),
    Line("trial", "> 80 %, ratio .75 within .05", least=80.0),
    Line("demand"),
    Line("watch", "< 2,000 ms, < 100 ms of it in the event loop", most=2_000.0, loop=100.0),
    Line("director", "< 300 ms", most=300.0),
    Line("director --information", "< 300 ms", most=300.0),
    Line("director --demand matched", "< 300 ms", most=300.0),
    Line("broker", "< 20 ms", most=20.0),
    Line("workqueue", "< 50 ms", most=50.0),
    Line("splitting", "≥ 50,000/s", least=50_000),
    Line("release", "≥ 20,000/s", least=20_000),
    Line("catalogue"),
    Line("servers"),
)

QUICK = {
    "match": "--jobs 20000 --queues 200 --seconds 1",
    "plot": "--most-jobs 30000 --jobs 30000 --most-queues 1000 --seconds 1 --runs 1 --file",
    "restart": "--jobs 20000 --queues 200 --runs 1",
    "submit": "--jobs 20000 --runs 1",
    "life": "--jobs 200 --runs 1",
    "history": "--jobs 60000",
    "shares": "--queues 200 --owners 50 --running 100 --runs 3",
    "lists": "--jobs 1000",
    "why": "--jobs 20000 --queues 200 --answers 20",
    "demand": "--jobs 100 --runs 1",
    "watch": "--pilots 2000 --listings 1",
    "pilots": "--pilots 2000 --cut 100 --seconds 20",
    "director": "--queues 100 --ces 10 --pilots 500 --runs 1",
    "broker": "--ces 20 --jobs 50 --sets 5 --runs 1",
    "workqueue": "--elements 20000 --requests 20 --agents 2 --jobs 200 --pulls 2 --large 2000",
    "splitting": "--runs 1",
    "release": "--jobs 2000 --requests 10 --runs 1",
    "catalogue": "--files 1000 --elements 100 --runs 1",
    "servers": "--jobs 5000 --most 2 --turns 1 --seconds 1",
}
"""To see that everything runs: the figures say nothing."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="see that everything runs; the figures say nothing"
    )
    parser.add_argument("--only", default="", help="the commands that begin so")


def run(asked: argparse.Namespace) -> Figure:
    begun, rows = time.perf_counter(), []
    for line in LINES:
        if line.command.startswith(asked.only):
            rows.append(_row(line, _measured(line.command, asked.quick)))
            print(rows[-1], file=sys.stderr, flush=True)
    print("| command | ours | in the same call | ratio | p99 | speed | aim |\n|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    missed = sum(row.endswith("not reached |") for row in rows)
    notes = {"time": f"{time.perf_counter() - begun:.0f} s", "aims not reached": str(missed)}
    return Figure("all", float(len(rows)), "lines", {}, 0.0, [], notes)


def _measured(command: str, quick: bool) -> dict[str, Any]:
    """The figure as plain values; of one that fails, `failed`."""
    words = command.split()
    if quick:
        words += QUICK[words[0]].split()
        words += [os.devnull] if words[-1] == "--file" else []
        words += ["--against", "300000"] if "--against" in words else []
        words += ["--jobs", "300000"] if "--tls" in words else []
    arguments = [sys.executable, "-m", "benchmarks", *words, "--json"]
    answer = subprocess.run(arguments, capture_output=True, text=True)
    if answer.returncode:
        sys.stderr.write(answer.stderr)
        return {"failed": f"exit code {answer.returncode}"}
    found: dict[str, Any] = json.loads(answer.stdout.strip().rpartition("\n")[2])
    return found


def _row(line: Line, one: dict[str, Any]) -> str:
    command = f"`./bench {line.command}`"
    if "ours" not in one:
        return f"| {command} | {one.get('failed') or one['skipped']} | | | | | {line.aim} |"
    beside = ", ".join(f"{name} {told(value)}" for name, value in one["peers"].items())
    text = str(one["notes"].get("latency", ""))
    latency = float(match[1]) if (match := LATENCY.search(text)) else None
    aim = line.aim
    if aim and not _reached(line, one, latency):
        aim += ": not reached"
    p99 = f"{latency:.1f} ms" if latency is not None else ""
    speed = "–".join(SPEED.findall(str(one["notes"].get("speed", "")).partition(" million")[0]))
    ours = f"{told(one['ours'])} {one['unit']}"
    return f"| {command} | {ours} | {beside} | {one['ratio']:.2f} | {p99} | {speed} | {aim} |"


def _reached(line: Line, one: dict[str, Any], p99: float | None) -> bool:
    text = str(one["notes"].get("server's memory", one["notes"].get("memory", "")))
    memory = float(match[1]) if (match := MEGABYTES.search(text)) else 0.0
    in_loop = IN_LOOP.search(str(one["notes"].get("event loop", "")))
    return (
        (line.least is None or one["ours"] >= line.least)
        and (line.most is None or one["ours"] <= line.most)
        and (line.ratio is None or one["ratio"] >= line.ratio)
        and (line.p99 is None or p99 is None or p99 < line.p99)
        and (line.memory is None or memory < line.memory)
        and (line.loop is None or in_loop is None or float(in_loop[1]) < line.loop)
    )
