"""The same scripts on a real Slurm and on Slurm's commands of Pilotage: what users see is the same, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests import slurm
from tests.acceptance.test_slurm_commands import Shell, shared
from tests.deadlines import PATIENCE
from tests.instance import running
from tests.slurm_scripts import Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * PATIENCE)]

PARTITIONS: Final = """
[partitions.short]
ces = ["local"]
default = true
[partitions.long]
sites = ["*"]
"""
PAGE: Final = Path(__file__).parents[2] / "docs/how-to/slurm-scripts.md"
ABSENT: Final = "(nothing)"
SUBMITTED: Final = "code 0, no message, 'Submitted batch job <id>\\n'"
CANCELLED: Final = r"'slurmstepd-<host>: error: *** JOB <id> ON <host> CANCELLED AT <time> ***\n'"


def _said(code: int) -> str:
    return f"code {code}, a message, ''"


DIFFERENCES: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "a wrong option of `sbatch`": {
        f"{name}: sbatch": (_said(255), _said(1))
        for name in ("unknown-option", "no-value", "bad-time", "bad-memory", "line-unknown", "line-stray")
    },
    "an option that is ignored": {
        f"{name}: sbatch": (SUBMITTED, SUBMITTED.replace("no message", "a message"))
        for name in ("never-ok", "never-fail", "waits")
    },
    "`sbatch --dependency` on an unknown job": {"bad-dependency: sbatch": (SUBMITTED, _said(1))},
    "`sbatch --chdir` to a folder that does not exist": {"no-chdir: sbatch": (SUBMITTED, _said(1))},
    "`scancel` of an unknown job": {"scancel unknown": ("code 0, no message, ''", _said(1))},
    "`scontrol show partition` of an unknown partition": {
        "scontrol partition": ("code 1, no message, 'Partition nowhere not found\\n'", _said(1)),
    },
    "the name of a script on standard input": {
        "from-stdin: out.txt": (r"'from input:\n'", r"'from input: sbatch\n'"),
    },
    "a cancelled job": {
        f"{name}.out": (CANCELLED, "''")
        for name in ("running: slurm-<id>", "running-array: slurm-<id>_0", "running-array: slurm-<id>_1")
    },
    "an exit code above 127": {
        "code: sacct ExitCode": ("72:0", "200:0"),
        "child-killed: sacct ExitCode": ("9:0", "137:0"),
    },
    "a file that cannot be opened": {
        "no-folder: sacct ExitCode": ("0:53", "126:0"),
        "absent-input: sacct ExitCode": ("0:53", "1:0"),
        "absent-input: slurm-<id>.out": (ABSENT, "''"),
    },
    "names in variables": {"variables: SLURM_CLUSTER_NAME": ("test", "pilotage")},
    "variables about the cluster": {
        "variables: SLURM_CONF": ("<settings>", ABSENT),
        "variables: SLURM_JOB_ACCOUNT": ("root", ABSENT),
        "variables: SLURM_JOB_QOS": ("normal", ABSENT),
        "variables: SLURM_NODE_ALIASES": ("(null)", ABSENT),
        "variables: SLURM_PRIO_PROCESS": ("0", ABSENT),
        "variables: SLURM_WORKING_CLUSTER": ("<cluster>", ABSENT),
    },
}
"""What differs: by its name on the page, the parts of the records as (of Slurm, of Pilotage)."""


def of_slurm(folder: Path) -> dict[str, str]:
    folder.mkdir()
    with slurm.cluster(nodes=1, processors=16, accounting=True) as cluster:
        driver = Driver(folder, cluster.environment, of_pilotage=False)
        driver.run_all()
    return driver.record


def of_pilotage(folder: Path) -> dict[str, str]:
    scripts = folder / "scripts"
    scripts.mkdir(parents=True)
    with running(folder, idle=60, processors=16) as instance:
        instance.policy += PARTITIONS
        shared(instance)
        driver = Driver(scripts, Shell(instance, folder).environment, of_pilotage=True)
        driver.run_all()
    return driver.record


def test_the_same_scripts_on_slurm_and_here(tmp_path: Path) -> None:
    there, here = of_slurm(tmp_path / "slurm"), of_pilotage(tmp_path / "pilotage")
    differing = {
        what: (there.get(what, ABSENT), here.get(what, ABSENT))
        for what in sorted({*there, *here})
        if there.get(what) != here.get(what)
    }
    assert len(there) > 400
    known = {what: pair for parts in DIFFERENCES.values() for what, pair in parts.items()}
    whats = [what for what in sorted({*known, *differing}) if known.get(what) != differing.get(what)]
    found = [f"{what}: {differing.get(what)} instead of {known.get(what)}" for what in whats]
    assert not found, "\n".join(found)


def test_the_page_names_each_difference() -> None:
    lines = PAGE.read_text().splitlines()
    for name in DIFFERENCES:
        assert [line for line in lines if line.startswith(f"| {name} |")], name
