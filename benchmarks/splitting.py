"""Masks for each second by algorithm, with their JSON form, from files of the catalogue."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.figure import Figure, figure, told
from pilotage.core.splitting.mask import FileRecord, LumiRange, Mask
from pilotage.core.splitting.parser import parse_splitting
from pilotage.core.splitting.split import split

SUMMARY = "splitting: masks a second from 10 million events or 100,000 files"
EVENTS, FILES, LUMIS = 10_000_000, 100_000, 10
"""Lumis of each file."""


@dataclass(frozen=True)
class Case:
    algorithm: str
    parameters: dict[str, Any]
    generates: bool = False

    def masks(self, files: Iterable[FileRecord], existing: list[Mask]) -> Iterable[Mask]:
        mask = Mask((), 1, EVENTS, 1, 0) if self.generates else None
        return split(files, parse_splitting(self.algorithm, self.parameters), mask, existing=existing)


CASES = {
    "generator": Case("EventBased", {"events_per_job": 100, "events_per_lumi": 50}, generates=True),
    "EventBased": Case("EventBased", {"events_per_job": 50}),
    "FileBased": Case("FileBased", {"files_per_job": 1}),
    "FileBased, 10 files": Case("FileBased", {"files_per_job": 10}),
    "SizeBased": Case("SizeBased", {"size_per_job": 2_500_000_000}),
    "LumiBased": Case("LumiBased", {"lumis_per_job": 5}),
    "LumiBased, no correction": Case("LumiBased", {"lumis_per_job": 5, "lumi_correction": False}),
    "EventAwareLumiBased": Case("EventAwareLumiBased", {"events_per_job": 55}),
    "EventAwareLumiByWork": Case("EventAwareLumiByWork", {"events_per_job": 55}),
    "MergeBySize": Case("MergeBySize", {"min_size": 2_000_000_000, "max_size": 4_000_000_000}),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="runs of each algorithm; the median counts")


def run(chosen: argparse.Namespace) -> Figure:
    """The slowest algorithm with a job for each file or more is the figure. CPU time: splitting waits for nothing."""
    files = [
        FileRecord(
            number,
            f"/data/run/file-{number:06d}.root",
            900_000_000,
            EVENTS // FILES,
            (LumiRange(1 + number // 1000, LUMIS * number, LUMIS * number + LUMIS - 1),),
            number // 500,
            number,
        )
        for number in range(1, FILES + 1)
    ]
    rates: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for name, case in CASES.items():
        rates[name] = []
        for _ in range(chosen.runs):
            begun = time.process_time()
            made = sum(1 for mask in case.masks(files, []) if mask.to_json())
            rates[name].append(made / (time.process_time() - begun))
            counts[name] = made
    posted = list(CASES["FileBased"].masks(files, []))[::2]
    begun = time.process_time()
    rest = sum(1 for mask in CASES["FileBased"].masks(files, posted) if mask.to_json())
    adopted = (rest + len(posted)) / (time.process_time() - begun)
    ordered = {name: sorted(runs)[len(runs) // 2] for name, runs in rates.items()}
    slowest = min((name for name in ordered if counts[name] >= FILES), key=lambda name: ordered[name])
    notes = {
        name: f"{told(rate)} masks/s, {told(rate * FILES / counts[name])} files/s ({counts[name]:,} masks)"
        for name, rate in ordered.items()
    }
    notes["FileBased, half adopted"] = f"{told(adopted)} masks/s, existing ones included"
    notes["figure"] = f"the slowest algorithm with {FILES:,} masks or more: {slowest}"
    return figure("splitting", "masks/s", rates[slowest], {"goal": 50_000.0}, notes, against="goal")
