"""Scripts at random get the same variables, arguments, input and signals on a real Slurm and here.

`PILOTAGE_SLURM_SEED=N` tries the script of a seed again.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests import slurm
from tests.acceptance.test_slurm_commands import Shell, shared
from tests.deadlines import PATIENCE
from tests.instance import running
from tests.slurm_random_scripts import RandomDriver, RandomScript, random_script

COUNT = int(os.environ.get("PILOTAGE_SLURM_SCRIPTS", "10"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout((8 + COUNT) * PATIENCE)]


def drawn() -> list[RandomScript]:
    if named := os.environ.get("PILOTAGE_SLURM_SEED"):
        return [random_script(int(seed)) for seed in named.split(",")]
    first = secrets.randbelow(10**9)
    print(f"seeds {first} to {first + COUNT - 1}")
    return [random_script(first + number) for number in range(COUNT)]


def test_scripts_at_random_on_slurm_and_here(tmp_path: Path) -> None:
    scripts = drawn()
    for name in ("slurm", "here"):
        (tmp_path / name / "scripts").mkdir(parents=True)
    with slurm.cluster(nodes=1, processors=16) as cluster:
        there = RandomDriver(tmp_path / "slurm/scripts", cluster.environment, of_pilotage=False).run_all(
            scripts
        )
    with running(tmp_path / "here", idle=60, processors=16) as instance:
        shared(instance)
        shell = Shell(instance, tmp_path / "here")
        kept = {name: shell.environment[name] for name in ("PATH", "HOME", "PILOTAGE_HOME")}
        here = RandomDriver(tmp_path / "here/scripts", kept, of_pilotage=True).run_all(scripts)
    found = [
        f"PILOTAGE_SLURM_SEED={script.seed} {script}\n  Slurm: {there[script.seed]}\n  here:  {here[script.seed]}"
        for script in scripts
        if there[script.seed] != here[script.seed]
    ]
    assert not found, "\n".join(found)
