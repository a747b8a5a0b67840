"""The statements of every two kinds of transactions interleave: the state is that of a serial order, or a right one.

`./test` takes some pairs, drawn afresh for each commit. `./test --all` takes all of them (`PILOTAGE_ALL_PAIRS=1`).
`./test --long` draws for longer (`PILOTAGE_PAIRS_SECONDS=600`). It also draws three kinds that interleave
(`PILOTAGE_TRIPLES=2000`).
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from tests.interleavings.footprints import Footprint, together
from tests.interleavings.kinds import KINDS
from tests.interleavings.pairs import Finding, Pairs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
ALL = bool(os.environ.get("PILOTAGE_ALL_PAIRS"))
TRIPLES = int(os.environ.get("PILOTAGE_TRIPLES", "0"))
PROCESSOR_TIME = float(os.environ.get("PILOTAGE_PAIRS_SECONDS", "20"))
"""Seconds of this process for the pairs of a run. The database needs about as much."""
HOUR = 3600


def _seed() -> str:
    """The commit: each one draws other pairs, and draws them again."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def _told(findings: list[Finding]) -> str:
    return "\n".join(
        f"{finding.second!r} before trip {finding.trip} of {finding.first!r}, answers {finding.words}:"
        f" {'; '.join(finding.complaints)} ({finding.difference})"
        for finding in findings
    )


def _weight(mine: Footprint, theirs: Footprint) -> int:
    """Pairs that share more tables are drawn more often."""
    return 3 * len(mine.written & theirs.written) + len(mine.read & theirs.written)


@pytest.mark.timeout(HOUR + 3 * PROCESSOR_TIME)
def test_some_pairs(pairs: Pairs) -> None:
    seed, begin = _seed(), time.process_time()
    print(f"pairs drawn by {seed}")
    rng, names = Random(seed), list(KINDS)
    total = {name: together(pairs.footprints(name)) for name in names}
    possible = [(one, other) for one in names for other in names if pairs.trips(one, other)]
    weights = [1 + _weight(total[one], total[other]) for one, other in possible]
    while time.process_time() - begin < PROCESSOR_TIME:
        [(first, second)] = rng.choices(possible, weights)
        trips = pairs.trips(first, second)
        findings = pairs.check(first, second, sorted(rng.sample(trips, min(3, len(trips)))))
        assert not findings, _told(findings)
    assert pairs.cases
    print(f"{pairs.cases} cases")


@pytest.mark.skipif(not ALL, reason="./test --all takes all pairs")
@pytest.mark.timeout(HOUR)
@pytest.mark.parametrize("first", KINDS)
def test_all_pairs(pairs: Pairs, first: str) -> None:
    findings = [finding for second in KINDS for finding in pairs.check(first, second)]
    assert not findings, _told(findings)


@pytest.mark.skipif(not TRIPLES, reason="./test --long draws triples")
@pytest.mark.timeout(8 * HOUR)
def test_random_triples(pairs: Pairs) -> None:
    seed = _seed()
    print(f"triples drawn by {seed}")
    rng, names = Random(f"triples {seed}"), list(KINDS)
    for _ in range(TRIPLES):
        first, second, third = rng.choices(names, k=3)
        trips = (rng.choice(pairs.trips(first, second) or [1]), rng.choice(pairs.trips(second, third) or [1]))
        finding = pairs.check_three((first, second, third), trips)
        assert finding is None, _told([finding])
