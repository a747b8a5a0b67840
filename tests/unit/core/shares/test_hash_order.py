"""Draws and corrections are the same in every process: the order of a set of strings or objects decides nothing."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from pilotage.core.shares.correctors.half_life import HalfLifeInstance
from pilotage.core.shares.use import HOUR
from tests.unit.core.shares.simulated_pool import Flow, Pool

flows = {f"group{n}": Flow(length=HOUR * (1 + n % 5), queues=3) for n in range(25)}
shares = {name: 0.1 * (3 + n) for n, name in enumerate(flows)}
pool = Pool(flows, shares, "proportional", {"x": HalfLifeInstance(half_life=6 * HOUR)}, slots=40).run(0.5)
print(repr((pool.jobs, pool.factors)))
"""


def test_each_process_draws_the_same_jobs_and_computes_the_same_factors() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(told) == 1
    assert len(told.pop()) > 10_000
