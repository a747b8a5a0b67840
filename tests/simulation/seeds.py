"""The seeds of histories that each commit draws anew. The header of a run of the tests tells them."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

COUNT = int(os.environ.get("PILOTAGE_INTERLEAVED_SEEDS", "3"))


@cache
def commit() -> str:
    """The id of the commit; empty: there is none."""
    command = ["git", "rev-parse", "HEAD"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return told.stdout.strip()


def drawn_seeds() -> range:
    """Seeds that follow from the id of the commit."""
    first = int(commit()[:6] or "0", 16)
    return range(first, first + COUNT)


def header() -> str:
    seeds = drawn_seeds()
    return f"interleaved histories: python -m tests.simulation --interleaved --seeds {seeds[0]}-{seeds[-1]}"
