"""No text ends the process, keeps it busy for long, or is answered with anything but `InvalidInput`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.deadlines import PATIENCE
from tests.unit.jobs.hostile_texts import PARSERS


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_hostile_texts_are_refused_by_a_process_that_lives_on(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.jobs.hostile_texts", kind],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"{name}: refused" for name in PARSERS[kind][1]]
