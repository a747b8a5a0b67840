"""Programs for Slurm, unchanged, on Slurm's commands of Pilotage."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_slurm_commands import Shell, shared
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("clients"), idle=60) as one:
        shared(one)
        yield one


@pytest.fixture
def folder(instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the commands in PATH."""
    shell = Shell(instance, tmp_path)
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH"))]:
        monkeypatch.delenv(name)
    for name in ("PATH", "PILOTAGE_HOME", "PWD"):
        monkeypatch.setenv(name, shell.environment[name])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_submitit_runs_functions_and_arrays(folder: Path) -> None:
    submitit = pytest.importorskip(
        "submitit", reason="the group `clients` is not installed: submitit is not tested"
    )
    executor = submitit.AutoExecutor(folder=folder / "logs", cluster="slurm")
    executor.update_parameters(timeout_min=5, slurm_array_parallelism=2, mem_gb=0.2)
    single = executor.submit(divmod, 7, 2)
    array = executor.map_array(pow, [2, 3, 4], [2, 2, 2])
    failing = executor.submit(divmod, 1, 0)
    assert single.result() == (3, 1)
    assert [job.result() for job in array] == [4, 9, 16]
    with pytest.raises(submitit.core.utils.FailedJobError, match="ZeroDivisionError"):
        failing.result()
    until(lambda: single.watcher.get_state(single.job_id, mode="force") == "COMPLETED", what="the record")
    long = executor.submit(time.sleep, 1000)
    long.cancel()
    until(
        lambda: long.watcher.get_state(long.job_id, mode="force").startswith("CANCELLED"),
        what="the cancelled job",
    )


def test_parsl_starts_blocks_by_its_provider_and_cancels_them(folder: Path) -> None:
    reason = "the group `clients` is not installed: Parsl is not tested"
    JobState = pytest.importorskip("parsl.jobs.states", reason=reason).JobState
    SlurmProvider = pytest.importorskip("parsl.providers", reason=reason).SlurmProvider
    provider = SlurmProvider(exclusive=False, walltime="00:10:00", cores_per_node=1)
    provider.script_dir = str(folder)
    good = provider.submit("echo from parsl", 1)
    long = provider.submit("sleep 600", 1)

    def state(job: str) -> object:
        return provider.status([job])[0].state

    until(lambda: state(good) is JobState.COMPLETED, what="the good block")
    assert "from parsl" in Path(provider.resources[good]["job_stdout_path"]).read_text()
    until(lambda: state(long) is JobState.RUNNING, what="the long block")
    assert provider.cancel([long]) == [True]


DASK = """\
from dask_jobqueue import SLURMCluster
from distributed import Client

if __name__ == "__main__":
    with SLURMCluster(
        cores=1, memory="400MB", walltime="00:30:00", interface="lo", death_timeout=WAIT,
        scheduler_options={"dashboard_address": "127.0.0.1:0"}, worker_extra_args=["--no-dashboard"],
    ) as cluster, Client(cluster) as client:
        cluster.scale(2)
        client.wait_for_workers(2, timeout=WAIT)
        print(sum(client.gather(client.map(pow, range(10), [2] * 10))))
        numbers = [worker.job_id for worker in cluster.workers.values()]
        cluster.scale(0)
        client.sync(cluster._correct_state)
    print(*numbers)
"""


def test_dask_starts_workers_as_jobs_and_ends_them(folder: Path) -> None:
    pytest.importorskip(
        "dask_jobqueue", reason="the group `clients` is not installed: Dask-jobqueue is not tested"
    )
    (folder / "script.py").write_text(DASK.replace("WAIT", f"{PATIENCE:.0f}"))
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    total, numbers = done.stdout.splitlines()
    assert total == "285"
    assert len(numbers.split()) == 2

    def ended() -> bool:
        left = subprocess.run(["squeue", "-h", "-j", numbers.replace(" ", ",")], capture_output=True)
        return not left.stdout

    until(ended, what="the end of both workers")
