"""`pilotage.Executor` with real servers and pilots: outcomes, cancels, and deaths of client, server and pilots."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import pytest

from pilotage import Executor
from pilotage.client.executor.losses import CallLost
from pilotage.client.executor.outcomes import RemoteTraceback
from pilotage.client.executor.pickling import NotPicklable
from pilotage.core.errors import InvalidInput
from tests.deadlines import PATIENCE
from tests.faults.audit import audit
from tests.instance import Instance, alive, children, running, until


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("executor"), idle=60) as one:
        yield one


@pytest.fixture
def executor(instance: Instance) -> Iterator[Executor]:
    with Executor(client=instance.client()) as one:
        yield one


def counted(effects: Path) -> Callable[[int], int]:
    """A function whose runs are counted in a file."""

    def square(number: int) -> int:
        with effects.open("a") as file:
            file.write(f"{number}\n")
        return number * number

    return square


def runs(effects: Path) -> Counter[int]:
    return Counter(map(int, effects.read_text().split()))


def test_a_map_gives_all_results_in_few_jobs(executor: Executor, instance: Instance, tmp_path: Path) -> None:
    before = instance.client().counts().total
    square = counted(tmp_path / "effects")
    assert list(executor.map(square, range(2000))) == [number * number for number in range(2000)]
    assert runs(tmp_path / "effects") == Counter(range(2000))
    assert instance.client().counts().total - before < 50
    futures = [executor.submit(pow, 2, exponent) for exponent in range(5)]
    assert {future.result() for future in as_completed(futures, timeout=PATIENCE)} == {1, 2, 4, 8, 16}
    assert list(executor.map(lambda a, b: a + b, "ab", "cd", chunksize=2)) == ["ac", "bd"]


def test_an_exception_has_the_traceback_of_the_node(executor: Executor) -> None:
    def fail(key: str) -> None:
        {"present": 1}[key]

    error = executor.submit(fail, "absent").exception(PATIENCE)
    assert isinstance(error, KeyError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in fail" in str(error.__cause__)
    results = executor.map(lambda number: 1 // number, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_nothing_is_sent_if_something_cannot_be_pickled(executor: Executor, instance: Instance) -> None:
    before = instance.client().counts().total
    with pytest.raises(NotPicklable, match="argument 1 of len, a lock"):
        executor.map(len, ["one", threading.Lock()])
    assert instance.client().counts().total == before


def test_a_crash_takes_no_other_result_along(executor: Executor) -> None:
    def die(number: int) -> int:
        if number == 2:
            os.write(2, b"the detector is on fire\n")
            os._exit(5)
        return number

    futures = [executor.submit(die, 0)]
    results = executor.map(die, [1, 2, 3], chunksize=3)
    assert futures[0].result(PATIENCE) == 0
    assert next(results) == 1
    with pytest.raises(CallLost, match=r"is Failed: exit code 5; stderr ends with: the detector is on fire"):
        next(results)


def test_a_call_that_ends_its_process_is_told(executor: Executor) -> None:
    results = executor.map(lambda number: os._exit(0) if number == 1 else number, range(3), chunksize=3)
    assert next(results) == 0
    with pytest.raises(CallLost, match=r"the call ended its process without a result; job \d+ is Done"):
        next(results)
    job = executor.submit(os._exit, 0)
    assert "the call ended its process" in str(job.exception(PATIENCE))


def test_calls_have_their_folder_for_themselves(executor: Executor) -> None:
    """A call may write any name there, and remove all: the results of its job lie elsewhere."""

    def work(number: int) -> list[str]:
        before = os.listdir()
        for name in ("results", "functions", "calls", "program.zip"):
            os.makedirs(name)
        assert os.environ["PWD"] == os.getcwd()
        if number % 2:
            shutil.rmtree(os.getcwd())
        if number == 1:
            shutil.rmtree(os.path.dirname(os.environ["PWD"]))
        return before

    assert list(executor.map(work, range(4), chunksize=4)) == [[], [], [], []]


def test_a_call_does_not_wait_for_threads_that_it_leaves(executor: Executor) -> None:
    def leave() -> int:
        threading.Thread(target=threading.Event().wait).start()
        multiprocessing.get_context("fork").Process(target=threading.Event().wait).start()
        return 5

    assert executor.submit(leave).result(PATIENCE) == 5


def test_an_executor_in_a_call_finds_the_server(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTAGE_HOME", str(instance.home))

    def outer() -> list[int]:
        with Executor() as inner:
            return list(inner.map(abs, [-1, -2]))

    with Executor(description={"environment": {"A": "b"}}) as executor:
        assert executor.submit(outer).result(PATIENCE) == [1, 2]


def test_what_the_server_refuses_is_told_in_the_futures(instance: Instance) -> None:
    with Executor(client=instance.client(), requirements="(((") as executor:
        assert isinstance(executor.submit(abs, 1).exception(PATIENCE), InvalidInput)


def test_cancelled_calls_kill_their_job(instance: Instance) -> None:
    executor = Executor(client=instance.client(), tags=["nowhere"])
    futures = [executor.submit(abs, number) for number in range(3)]
    until(lambda: all(future.job for future in futures), what="the submission")
    assert "nowhere" in futures[0].why()
    assert futures[0].cancel()
    job = futures[0].job
    assert job is not None
    instance.reaches(job, "Killed")
    assert not futures[1].cancelled()
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    for future in futures:
        assert future.job is not None
        instance.reaches(future.job, "Killed")
    with pytest.raises(RuntimeError):
        executor.submit(abs, 1)


def test_a_running_call_is_cancelled(executor: Executor, instance: Instance, tmp_path: Path) -> None:
    def wait_for_ever() -> None:
        (tmp_path / "runs").touch()
        threading.Event().wait()

    future = executor.submit(wait_for_ever)
    until((tmp_path / "runs").exists, what="the call")
    until(future.running, what="news of its start")
    assert future.cancel()
    assert future.job is not None
    instance.reaches(future.job, "Killed")


NOTEBOOK = """
import os, signal, sys
from pilotage import Executor
from pilotage.client import Client
from pilotage.client.executor import courier, journal, payload

class Point:
    def __init__(self, number): self.number = number

FACTOR = 10
EFFECTS = sys.argv[2]

def scaled(point):
    with open(EFFECTS, "a") as file:
        file.write(f"{point.number}\\n")
    return Point(point.number * FACTOR)

deadly, passed = int(sys.argv[3]), 0

def step():
    global passed
    passed += 1
    if passed == deadly:
        os.kill(os.getpid(), signal.SIGKILL)

def deadly_at(place, name):
    whole = getattr(place, name)
    def both(*args, **more):
        step()
        answer = whole(*args, **more)
        step()
        return answer
    setattr(place, name, both)

for place, name in ((payload, "write_payload"), (journal.CallJournal, "sending"), (Client, "submit"),
                    (journal.CallJournal, "accepted"), (payload, "remove"), (Client, "download_many"),
                    (courier, "settle")):
    deadly_at(place, name)

with Executor(name=sys.argv[1], chunk=2) as executor:
    print(sorted(point.number for point in executor.map(scaled, [Point(n) for n in range(4)])), passed)
"""


def notebook(
    instance: Instance, folder: Path, name: str, deadly: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the notebook; its process kills itself at the step `deadly`."""
    program = folder / "notebook.py"
    program.write_text(NOTEBOOK)
    words = [sys.executable, str(program), name, str(folder / f"effects-{name}"), str(deadly)]
    environment = {**os.environ, "PILOTAGE_HOME": str(instance.home)}
    return subprocess.run(words, env=environment, text=True, capture_output=True, timeout=3 * PATIENCE)


def test_a_client_killed_at_any_step_finds_its_calls_again(instance: Instance, tmp_path: Path) -> None:
    whole = notebook(instance, tmp_path, "whole")
    assert whole.returncode == 0, whole.stderr
    results, steps = whole.stdout.rsplit(maxsplit=1)
    assert results == "[0, 10, 20, 30]"
    for deadly in range(1, int(steps) + 1):
        name = f"scan-{deadly}"
        first = notebook(instance, tmp_path, name, deadly)
        # Results that come together take fewer steps than results that come one by one.
        fewer = first.returncode == 0 and int(first.stdout.split()[-1]) < deadly
        assert fewer or first.returncode == -signal.SIGKILL, first
        again = notebook(instance, tmp_path, name)
        assert again.stdout.startswith("[0, 10, 20, 30]"), again.stderr
        assert runs(tmp_path / f"effects-{name}") == Counter(range(4)), f"killed at step {deadly}"


def test_calls_that_are_done_are_not_done_again(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTAGE_HOME", str(instance.home))
    square = counted(tmp_path / "effects")
    for _ in range(2):
        with Executor("repeated", client=instance.client()) as executor:
            assert list(executor.map(square, [1, 2, 2])) == [1, 4, 4]
    assert runs(tmp_path / "effects") == Counter([1, 2, 2])
    with Executor("repeated", client=instance.client()) as executor:
        assert list(executor.map(square, [2, 3])) == [4, 9]
    assert runs(tmp_path / "effects") == Counter([1, 2, 2, 3])


def slow(gate: Path, effects: Path) -> Callable[[int], int]:
    """A function that waits for a file, so that a fault comes while it runs."""

    def count(number: int) -> int:
        gate.with_name("begun").touch()
        while not gate.exists():
            time.sleep(0.05)
        with effects.open("a") as file:
            file.write(f"{number}\n")
        return number

    return count


def test_a_map_survives_the_death_of_the_server(tmp_path: Path) -> None:
    with (
        running(tmp_path, lease=60, idle=60) as instance,
        Executor(client=instance.client(), chunk=5) as executor,
    ):
        results = executor.map(slow(tmp_path / "gate", tmp_path / "effects"), range(40))
        until((tmp_path / "begun").exists, what="a running call")
        instance.kill_server()
        (tmp_path / "gate").touch()
        until(lambda: (tmp_path / "effects").exists(), what="a call while the server is away")
        instance.start()
        assert list(results) == list(range(40))
        assert runs(tmp_path / "effects") == Counter(range(40))


def test_an_error_leaves_the_block_at_once(instance: Instance, tmp_path: Path) -> None:
    calls: list[Any] = []

    def fail() -> None:
        with Executor(client=instance.client()) as executor:
            calls.append(executor.submit(slow(tmp_path / "gate", tmp_path / "effects"), 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not calls[0].done()
    (tmp_path / "gate").touch()
    assert calls[0].result(PATIENCE) == 1


def test_a_map_survives_the_death_of_its_pilots(tmp_path: Path) -> None:
    with running(tmp_path, lease=5, idle=60) as instance:
        applied: Counter[int] = Counter()

        def count(future: Any) -> None:
            applied[future.result()] += 1

        with Executor(client=instance.client(), chunk=5) as executor:
            function = slow(tmp_path / "gate", tmp_path / "effects")
            futures = [executor.submit(function, number) for number in range(20)]
            for future in futures:
                future.add_done_callback(count)
            until((tmp_path / "begun").exists, what="a running call")
            for guardian in instance.pilot_pids():
                for pilot in children(guardian):
                    os.kill(pilot, signal.SIGKILL)
            (tmp_path / "gate").touch()
            assert [future.result(3 * PATIENCE) for future in futures] == list(range(20))
        assert applied == Counter(range(20))
        assert set(runs(tmp_path / "effects")) == set(range(20))
        audit(instance.home)


SCAN = """
import collections, concurrent.futures, os, sys, time
from pathlib import Path
from pilotage import Executor

FOLDER = Path(sys.argv[1])
WAITING = range(8, 24)

def scan(number):
    if number in WAITING:
        with open(FOLDER / "begun", "a") as file:
            file.write(f"{number} {os.getpid()}\\n")
        while not (FOLDER / "gate").exists():
            time.sleep(0.05)
    with open(FOLDER / "effects", "a") as file:
        file.write(f"{number}\\n")
    return number * number

applied = collections.Counter()
with Executor("scan", chunk=1) as executor:
    futures = []
    for numbers in (range(WAITING.start), WAITING):
        for number in numbers:
            futures.append(executor.submit(scan, number))
            futures[-1].add_done_callback(lambda _, number=number: applied.update([number]))
        if numbers is not WAITING:
            concurrent.futures.wait(futures)
    print([future.result() for future in futures], sorted(applied.values()))
"""


def test_a_map_survives_notebook_server_and_half_of_the_pilots(tmp_path: Path) -> None:
    """All three are killed while calls are done, run and wait. The results are complete, each applied once."""
    (folder := tmp_path / "folder").mkdir()
    (script := tmp_path / "notebook.py").write_text(SCAN)
    words = [sys.executable, str(script), str(folder)]

    def begun() -> list[int]:
        """The processes of calls that wait for the gate."""
        begun = folder / "begun"
        return [int(line.split()[1]) for line in begun.read_text().splitlines()] if begun.exists() else []

    with running(tmp_path, idle=60, processors=4) as instance:
        environment = {**os.environ, "PILOTAGE_HOME": str(instance.home)}
        notebook = subprocess.Popen(words, env=environment)
        try:
            until(lambda: instance.client().counts().states.get("Done") == 8, what="the first results")
            until(lambda: len(begun()) == 4, what="four calls that run")
            guardians = instance.pilot_pids()
        finally:
            notebook.kill()
            notebook.wait()
        instance.kill_server()
        assert len(guardians) == 4
        for pilot in [pilot for guardian in guardians[:2] for pilot in children(guardian)]:
            os.kill(pilot, signal.SIGKILL)
        until(lambda: sum(map(alive, begun())) == 2, what="the end of the calls of two pilots")
        assert runs(folder / "effects") == Counter(range(8))
        (folder / "gate").touch()
        instance.start()
        again = subprocess.run(words, env=environment, text=True, capture_output=True, timeout=6 * PATIENCE)
        assert again.stdout == f"{[number**2 for number in range(24)]} {[1] * 24}\n", again.stderr
        ran = runs(folder / "effects")
        assert set(ran) == set(range(24))
        assert [ran[number] for number in range(8)] == [1] * 8
        assert instance.client().counts().total == 24
        audit(instance.home, expect={"Done"})
