"""examples/slurm/run, as somebody who tries Slurm for the first time calls it, with fewer jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import slurm
from tests.acceptance.example_frame import ExampleWords, run_example
from tests.deadlines import PATIENCE

RUN = Path(__file__).parents[2] / "examples/slurm/run"

pytestmark = pytest.mark.timeout(4 * PATIENCE)


def test_jobs_end_in_slurm_and_their_core_seconds_are_told(short_folder: Path) -> None:
    slurm.require()
    tried = run_example("slurm", short_folder, "--jobs", "24")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "CE slurm works" in tried.stdout
    assert "24 Done" in tried.stdout
    table = next(line for line in tried.stdout.splitlines() if line.startswith("Table:")).split()[-1]
    assert "json/decoder" in Path(table).read_text()
    header, costs = tried.stdout.partition("ce\tpayload\t")[2].splitlines()[:2]
    values = dict(zip(header.split("\t"), costs.split("\t")[2:], strict=True))
    assert float(values["total"]) > 0
    folder = Path(table).parent
    assert not list(folder.glob("slurm/*.pid")), "all daemons have ended"


class TestWords(ExampleWords):
    example = "slurm"
