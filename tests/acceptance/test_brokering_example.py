"""examples/brokering/run, as an administrator who tries matchmaking for the first time calls it, with fewer jobs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import sge, slurm
from tests.acceptance.example_frame import ExampleWords, free_ports, run_example
from tests.deadlines import PATIENCE
from tests.ports import free_port

RUN = Path(__file__).parents[2] / "examples/brokering/run"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]


def test_pilots_go_to_the_fast_nodes_of_two_batch_systems(short_folder: Path) -> None:
    slurm.require()
    sge.require()
    tried = run_example("brokering", short_folder, "--jobs", "8", SGE_PORTS=free_ports(2))
    assert tried.returncode == 0, tried.stdout + tried.stderr
    matched = tried.stdout.partition("== 4.")[2].partition("== 5.")[0]
    assert "flags\t--constraint=si00_600" in matched
    assert "flags\t-l si00=501" in matched
    assert "GlueCEPolicyMaxCPUTime > 2000 is false (GlueCEPolicyMaxCPUTime = 500)" in matched
    assert "1 impossible" in matched
    assert "warning" not in tried.stderr
    flags = tried.stdout.partition("== 6.")[2].partition("== 7.")[0]
    assert set(re.findall(r"Features=(\S*)", flags)) == {"si00_600"}
    assert set(re.findall(r"si00=\d+", flags)) == {"si00=501"}
    assert "8 Done" in tried.stdout
    nodes = tried.stdout.partition("== 8.")[2]
    assert "slurm-short" not in nodes
    assert not re.search(r"\tn1\t", nodes), "a slow node of Slurm"
    assert "slow.q" not in nodes
    assert not list(short_folder.glob("*/*/*.pid")), "all daemons have ended"


class TestWords(ExampleWords):
    example = "brokering"


def test_a_grid_engine_is_ended_without_naming_its_ports_again(short_folder: Path) -> None:
    sge.require()
    ports = " ".join(str(free_port()) for _ in range(2))
    environment = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": str(short_folder)}

    def call(command: str, **variables: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            env={**environment, **variables},
            cwd=short_folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        return done.stdout

    script = RUN.with_name("grid-engine")
    call(f"{script} up {short_folder}/sge", SGE_PORTS=ports)
    (short_folder / "payload").write_text(f"echo $$ > {short_folder}/id\nexec sleep 600\n")
    call(". sge/settings; qsub -terse -S /bin/sh -o /dev/null -j y payload")
    call("until [ -s id ]; do sleep 0.1; done")
    call(f"{script} down {short_folder}/sge")
    process = int((short_folder / "id").read_text())
    with pytest.raises(ProcessLookupError):  # the master has cancelled its job
        os.kill(process, 0)
