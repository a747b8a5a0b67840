"""coffea, unchanged, with its chunks as jobs: the page of docs/how-to as it stands, and chunks that fail."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.installed_environment import environment_with_client
from tests.instance import Instance, running

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "coffea.md"
PACKAGES = ("coffea==2026.9.0",)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * PATIENCE)]

AFTERWARDS = """
import threading
import uproot.exceptions
from pilotage.client import Client

client = Client.connect()

def made(executor, instance, **options):
    return processor.Runner(executor=executor, schema=BaseSchema, chunksize=250, **options)(files, instance)

alone = made(processor.IterativeExecutor(status=False), Spectrum())
assert alone == result, (alone, result)

class Failing(Spectrum):
    def process(self, events):
        if events.metadata["entrystart"] == 250 and events.metadata["dataset"] == "signal":
            raise OSError("no calibration for run 17")
        return super().process(events)

class Locked(Spectrum):
    def __init__(self):
        self.lock = threading.Lock()

with Executor(chunk=4) as pool:
    futures = processor.FuturesExecutor(pool=pool, status=False, retries=0)
    before = client.counts().total
    try:
        made(futures, Locked())
    except TypeError as error:
        print("locked:", error, client.counts().total - before)
    try:
        pool.submit(len, threading.Lock())
    except Exception as error:
        print("argument:", error, client.counts().total - before)
    try:
        made(futures, Failing())
    except Exception as error:
        print("failing:", error)
    merging = processor.FuturesExecutor(pool=pool, status=False, retries=0, merging=(1, 8, 8))
    merged = made(merging, Failing(), skipbadfiles=True)
    print("skipped:", merged["signal"]["entries"], merged["background"]["entries"])
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    environment_with_client("coffea", *PACKAGES)
    with running(tmp_path_factory.mktemp("coffea"), idle=60) as one:
        yield one


def test_the_page_runs_and_failing_chunks_are_told(instance: Instance, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [printed] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "analysis.py").write_text(example + AFTERWARDS)
    done = subprocess.run(
        [str(environment_with_client("coffea", *PACKAGES) / "bin" / "python"), "analysis.py"],
        cwd=tmp_path,
        env=os.environ | {"PILOTAGE_HOME": str(instance.home), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert "locked: cannot pickle '_thread.lock' object 0\n" in done.stdout
    assert "argument: argument 1 of len, a lock, cannot be pickled" in done.stdout
    assert re.search(r"failing: Failed processing file: .*no calibration for run 17", done.stdout)
    assert "RemoteTraceback" in done.stderr
    assert "skipped: 750 1000\n" in done.stdout
