"""Each value of each option: the parser of Slurm and ours take the same, but for differences with a reason."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from pilotage.cli.slurm.options import Takes, Treatment
from pilotage.cli.slurm.query_options import SACCT_OPTIONS, SCANCEL_OPTIONS, SINFO_OPTIONS, SQUEUE_OPTIONS
from pilotage.cli.slurm.run import run
from pilotage.cli.slurm.sacct_columns import COLUMNS
from pilotage.cli.slurm.sbatch_options import SBATCH_OPTIONS
from tests import slurm
from tests.acceptance.test_slurm_commands import shared
from tests.acceptance.test_slurm_side_by_side import PARTITIONS
from tests.deadlines import PATIENCE
from tests.instance import running
from tests.slurm_values import QUERY_VALUES, SBATCH_VALUES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * PATIENCE)]

Line = tuple[str, ...]
TABLES: Final = {
    "sbatch": SBATCH_OPTIONS,
    "squeue": SQUEUE_OPTIONS,
    "sacct": SACCT_OPTIONS,
    "scancel": SCANCEL_OPTIONS,
    "sinfo": SINFO_OPTIONS,
}
VALUES: Final = {"sbatch": SBATCH_VALUES, **QUERY_VALUES}

REFUSED_HERE: Final[dict[str, set[Line]]] = {
    "a number of jobs that has two parts": {("sbatch", "array", "1-3%1%2")},
    "a condition on a job that is not known could never come true": {("sbatch", "dependency", "afterok:1")},
    "a pattern that is not known would give a file of an unexpected name": {
        ("sbatch", "error", "%"), ("sbatch", "output", "%"), ("sbatch", "output", "o-%q"), ("sbatch", "input", "in-%j"),
    },
    "it is no address": {("sbatch", "mail-user", "a b@c.example")},
    "a job has one node": {("sbatch", "nodes", "0"), ("sbatch", "nodes", "-1")},
    "there is no such signal": {("sbatch", "signal", "99"), ("scancel", "signal", "99"), ("scancel", "signal", "-1")},
    "there is no such day": {("sacct", "starttime", "2026-02-30")},
    "a running job cannot be signalled": {
        ("scancel", "signal", "USR1"), ("scancel", "signal", "SIGUSR1"), ("scancel", "signal", "usr1"),
    },
    "jobs are not found by it": {("sacct", "timelimit-min", "10"), ("scancel", "qos", "normal")},
}  # fmt: skip
TAKEN_HERE: Final[dict[str, set[Line]]] = {
    "users of a pool need no account on this machine": {
        ("squeue", "user", "nosuchuser"), ("squeue", "user", "99999"), ("sacct", "user", "nosuchuser"),
        ("scancel", "user", "nosuchuser"),
    },
    "a word that other options take": {("sacct", "starttime", word) for word in ("elevenses", "yesterday")},
    "a state that squeue takes": {
        ("sacct", "state", word) for word in ("all", "CG", "CF", "SO", "SE", "ST", "RH", "RD", "SI", "completing")
    },
    "the option is ignored": {("sacct", "units", "X")},
}  # fmt: skip


def lines() -> Iterator[Line]:
    for command, options in VALUES.items():
        for option, values in options.items():
            for value in values:
                yield command, option, value


def words_of(line: Line) -> list[str]:
    """The words of a command that changes nothing."""
    command, option, value = line
    words = [f"--{option}={value}"]
    if command == "sbatch":
        return ["--test-only", *words, *([] if option == "wrap" else ["--wrap=true"])]
    if command == "scancel" and option != "name":
        return [*words, "--name=nosuch"]
    return words


def taken(code: int, said: str) -> bool:
    # A few words of Slurm about a value come with code 0.
    return code == 0 and "error:" not in said and "Invalid" not in said


@pytest.fixture(scope="module")
def takes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Line, bool]]:
    """What the real Slurm takes. The fields of its sacct are among the values."""
    with slurm.cluster(nodes=1, processors=16, accounting=True) as cluster:

        def ask(line: Line) -> bool:
            done = subprocess.run(
                [line[0], *words_of(line)],
                env=cluster.environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
                cwd=cluster.folder,
            )
            return taken(done.returncode, done.stderr)

        fields = cluster.run("sacct", "--helpformat").split()
        assert len(fields) > 80
        asked = [*lines(), *(("sacct", "format", field) for field in fields)]
        with ThreadPoolExecutor(2) as pool:
            yield dict(zip(asked, pool.map(ask, asked), strict=True))


def test_the_same_values_are_taken_as_in_slurm(
    takes: dict[Line, bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(tmp_path, idle=60, processors=16) as instance:
        instance.policy += PARTITIONS
        shared(instance)
        monkeypatch.setenv("PILOTAGE_HOME", str(instance.home))
        here: dict[Line, bool] = {}
        for line in takes:
            capsys.readouterr()
            code = run(line[0], words_of(line))
            here[line] = taken(code, capsys.readouterr().err)
    refused = {line for line, there in takes.items() if there and not here[line]}
    more = {line for line, there in takes.items() if here[line] and not there}
    assert refused == set().union(*REFUSED_HERE.values())
    assert more == set().union(*TAKEN_HERE.values())


@pytest.mark.parametrize("command", TABLES)
def test_each_option_with_a_value_is_tried(command: str) -> None:
    understood = {
        option.name
        for option in TABLES[command].options
        if option.treatment is Treatment.UNDERSTOOD and option.takes in (Takes.VALUE, Takes.LIST)
    }
    assert understood <= VALUES[command].keys()


def test_each_field_of_sacct_has_one_column() -> None:
    names = [column.name for column in COLUMNS]
    assert len(names) == len(set(names))
