"""The executor's parts that need no server: pickles and their names, digests, chunks, journal, outcomes."""

from __future__ import annotations

import builtins
import importlib
import json
import subprocess
import sys
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import as_completed
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from pilotage.client.executor import node_program, payload
from pilotage.client.executor.calls import CallFuture, PendingCall
from pilotage.client.executor.chunking import HOLD, LONGEST, MAX_CALLS, PROBES, STARTING, ChunkRule
from pilotage.client.executor.journal import CallJournal, SentChunks
from pilotage.client.executor.outcomes import (
    RemoteTraceback,
    ResultNotPicklable,
    settle,
)
from pilotage.client.executor.pickling import (
    NotPicklable,
    PickledFunction,
    digest,
    pickle_arguments,
    pickle_function,
)
from pilotage.client.executor.result_files import ResultFile, ResultFrame
from pilotage.core.errors import Conflict, InvalidInput
from tests.deadlines import PATIENCE

LOCK = threading.Lock()


def future() -> CallFuture[Any]:
    return CallFuture(lambda job: f"job {job} waits", lambda cancelled: None)


def calls(count: int, *, chunk: int = 0, name: str = "f", digest: str = "") -> deque[PendingCall]:
    function = PickledFunction(name, b"", digest)
    return deque(PendingCall(function, b"", "", chunk, future()) for _ in range(count))


def sizes(rule: ChunkRule, waiting: deque[PendingCall], now: float = 0.0) -> list[int]:
    return [len(chunk) for chunk in rule.take(waiting, now)]


def test_what_cannot_be_pickled_is_named() -> None:
    local = threading.Lock()
    with pytest.raises(NotPicklable, match="uses 'local', a lock"):
        pickle_function(lambda: local)
    with pytest.raises(NotPicklable, match="argument 2 of f, a lock"):
        pickle_arguments("f", (1, LOCK), {})
    with pytest.raises(NotPicklable, match="argument 'key' of f"):
        pickle_arguments("f", (), {"key": LOCK})


DIGESTS = """
import functools, sys
from pilotage.client.executor.pickling import digest
LIMIT = {limit}
class Point:
    def __init__(self, x): self.x = x
def helper(x): return x in {{"a", "b", "c"}} or x > LIMIT
def scan(x, *, deep=False):
    return [helper(y) for y in x] and Point(scan)
print(digest(scan, (1, "text", [2.5, None]), {{"b": 1}}), digest(functools.partial(scan, deep=True), Point(3)))
"""


def test_digests_are_the_same_in_each_process_and_follow_the_code() -> None:
    def told(limit: int, seed: str) -> str:
        words = [sys.executable, "-c", DIGESTS.format(limit=limit)]
        environment = {"PYTHONHASHSEED": seed}
        return subprocess.run(words, env=environment, text=True, capture_output=True, check=True).stdout

    assert told(1, "1") == told(1, "2")
    assert not set(told(1, "1").split()) & set(told(2, "1").split())


def test_equal_values_have_one_digest() -> None:
    text = "".join(["sha", "red"])
    assert digest((text, text)) == digest(("shared", "shared"))
    assert digest((1,)) != digest((True,))


def test_a_few_calls_go_alone_until_their_duration_is_known() -> None:
    rule, waiting = ChunkRule(), calls(1000)
    assert sizes(rule, waiting) == [1] * PROBES
    assert sizes(rule, waiting, HOLD / 2) == []
    assert len(waiting) == 1000 - PROBES
    rule.measured("f", 0.01)
    assert sizes(rule, waiting, HOLD / 2) == [100] * 9 + [92]
    assert not waiting


@pytest.mark.parametrize(("seconds", "size"), [(60.0, 1), (1.0, 5), (0.1, 50), (1e-9, MAX_CALLS)])
def test_a_job_lasts_seconds(seconds: float, size: int) -> None:
    rule = ChunkRule()
    rule.measured("f", seconds)
    assert max(sizes(rule, calls(20_000))) == size


def test_a_duration_that_does_not_come_holds_nothing_for_ever() -> None:
    rule, waiting = ChunkRule(), calls(5000)
    rule.take(waiting, 0.0)
    assert sum(sizes(rule, waiting, HOLD)) == 5000 - PROBES


def test_long_calls_go_alone_once_that_is_seen() -> None:
    rule, waiting = ChunkRule(), calls(100)
    rule.take(waiting, 0.0)
    rule.started("f", 1.0)
    assert sizes(rule, waiting, 1.0 + STARTING + LONGEST) == []
    assert sizes(rule, waiting, 1.1 + STARTING + LONGEST) == [1] * (100 - PROBES)


def test_each_function_has_its_own_duration_and_a_given_size_holds() -> None:
    rule = ChunkRule()
    rule.measured("fast", 0.001)
    both = calls(50, name="fast") + calls(3, name="slow") + calls(7, chunk=3)
    assert sizes(rule, both) == [50, 1, 1, 1, 3, 3, 1]


def test_functions_of_one_name_have_their_own_durations() -> None:
    rule, quick = ChunkRule(), calls(2, digest="quick")
    assert sizes(rule, quick) == [1, 1]
    rule.measured("fquick", 0.001)
    both = calls(50, digest="quick") + calls(3, digest="slow")
    assert sizes(rule, both) == [50, 1, 1, 1]


def test_functions_of_one_call_share_the_duration_of_their_name() -> None:
    rule = ChunkRule()
    rule.measured("f", 0.001)
    each: deque[PendingCall] = deque()
    for number in range(50):
        each += calls(1, digest=str(number))
    assert sizes(rule, each) == [50]


def test_cancelled_calls_are_not_sent() -> None:
    waiting = calls(3)
    assert waiting[1].future.cancel()
    assert sizes(ChunkRule(), waiting) == [1, 1]


def test_a_future_tells_its_cancellation_once_and_takes_the_first_outcome() -> None:
    told: list[CallFuture[Any]] = []
    one: CallFuture[Any] = CallFuture(lambda job: f"job {job} waits", told.append)
    assert one.why() == "its job was not submitted yet"
    one.job = 7
    assert one.why() == "job 7 waits"
    assert one.cancel()
    assert one.cancel()
    assert told == [one]
    assert list(as_completed([one], timeout=PATIENCE)) == [one]
    one.settle(1)
    assert one.cancelled()
    other = future()
    other.settle(1)
    other.settle(2)
    other.settle(error=ValueError())
    assert other.result() == 1
    assert not other.cancel()


def test_a_journal_is_found_again_without_its_torn_line(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path, "scan-7")
    for key in ("one", "two", "refused"):
        journal.sending(SentChunks(key, {"executable": "sh"}, "lab", [["a", "b"], ["c"]]))
    journal.accepted("one", 4, 11)
    journal.refused("refused")
    with pytest.raises(Conflict, match="another process uses the executor 'scan-7'"):
        CallJournal(tmp_path, "scan-7")
    journal.close()
    with (tmp_path / "scan-7" / "journal.jsonl").open("a") as file:
        file.write(json.dumps({"key": "three"})[:-1])
    again = CallJournal(tmp_path, "scan-7")
    assert {key: (one.submission, one.first) for key, one in again.sent.items()} == {
        "one": (4, 11),
        "two": (0, 0),
    }
    again.accepted("two", 5, 20)
    again.close()
    last = CallJournal(tmp_path, "scan-7")
    assert last.sent["two"].first == 20
    last.close()


@pytest.mark.parametrize("name", ["", "../other", "a/b", ".hidden", "x" * 200])
def test_names_of_executors_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        CallJournal(tmp_path, name)


def ran(
    folder: Path, *functions: Callable[[], Any], python: str = payload.PYTHON
) -> subprocess.CompletedProcess[str]:
    """Run functions as a node does, with a Python that has no library."""
    chunk = [
        PendingCall(pickle_function(one), pickle_arguments("f", (), {}), "", 0, future()) for one in functions
    ]
    payload.write_payload(folder, [[], chunk], {}, data=False)
    words = [sys.executable, "-I", "-S", payload.PROGRAM, python, "1"]
    return subprocess.run(words, cwd=folder, text=True, capture_output=True)


def settled(folder: Path) -> list[CallFuture[Any]]:
    futures = []
    for outcome in ResultFile(folder / payload.RESULTS).frames():
        futures.append(future())
        settle(futures[-1], outcome, data=False)
    return futures


def test_the_program_runs_calls_and_tells_each_outcome(tmp_path: Path) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("odd")

    def divide() -> float:
        return 1 / 0

    def odd() -> None:
        raise Odd(1, 2)

    done = ran(
        tmp_path / "p",
        lambda: 42,
        divide,
        lambda: (one for one in "ab"),
        odd,
        lambda: sys.exit(3),
        lambda: {"a"},
    )
    assert done.returncode == 0, done.stderr
    good, divided, generator, strange, left, last = settled(tmp_path / "p")
    assert (good.result(), last.result()) == (42, {"a"})
    error = divided.exception()
    assert isinstance(error, ZeroDivisionError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in divide" in str(error.__cause__)
    assert isinstance(generator.exception(), ResultNotPicklable)
    assert "of type generator, cannot be pickled" in str(generator.exception())
    assert "Odd('odd') was raised" in str(strange.exception())
    assert isinstance(left.exception(), SystemExit)


def test_a_program_that_dies_leaves_the_outcomes_before(tmp_path: Path) -> None:
    import os

    assert ran(tmp_path / "p", lambda: 1, lambda: os._exit(9)).returncode == 9
    [first] = settled(tmp_path / "p")
    assert first.result() == 1
    results = tmp_path / "p" / payload.RESULTS
    whole = results.read_bytes()
    for cut in range(len(whole)):
        results.write_bytes(whole[:cut])
        assert not ResultFile(results).frames()


def test_the_duration_of_a_call_is_without_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = [0.0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setitem(sys.modules, "of_the_test", SimpleNamespace(spent=spent))
    monkeypatch.setattr(time, "perf_counter", lambda: sum(spent))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("slow_inner", "slow_outer", "slow_other"):
        further = "import slow_inner\n" if name == "slow_outer" else ""
        text = f"{further}import of_the_test\nof_the_test.spent.append(100.0)\n"
        (tmp_path / f"{name}.py").write_text(text)

    def work() -> int:
        import importlib

        importlib.import_module("slow_outer")
        __import__("slow_other")
        spent = sys.modules["of_the_test"].spent
        spent.append(1.0)
        return len(spent)

    functions: dict[int, Any] = {}
    folder = node_program._WorkFolder(str(tmp_path / "work"))
    importing, results = (builtins.__import__, importlib.import_module), BytesIO()
    for _ in range(2):
        node_program._run(
            functions, [cloudpickle.dumps(work)], 0, cloudpickle.dumps(((), {})), results, False, folder
        )
    assert (builtins.__import__, importlib.import_module) == importing
    (tmp_path / "results").write_bytes(results.getvalue())
    first, second = ResultFile(tmp_path / "results").frames()
    assert (first.kind, first.seconds) == (node_program.RETURNED, 1.0)
    assert (second.kind, second.seconds) == (node_program.RETURNED, 1.0)
    assert sum(spent) == 302.0


def test_another_python_is_refused_by_its_version(tmp_path: Path) -> None:
    done = ran(tmp_path / "p", lambda: 1, python="3.4")
    assert done.returncode == node_program.WRONG_PYTHON
    assert done.stderr == f"this node has Python {payload.PYTHON}, and the calls need Python 3.4\n"


def test_an_outcome_that_cannot_be_read_here_is_an_error() -> None:
    one = future()
    settle(
        one, ResultFrame(node_program.RETURNED, 0.1, lambda: b"\x80\x04cmissing_module\nname\n."), data=False
    )
    assert isinstance(one.exception(), ResultNotPicklable)


def test_the_zip_is_the_same_each_time_and_has_cloudpickle() -> None:
    assert payload.program() == payload.program()
    names = zipfile.ZipFile(BytesIO(payload.program())).namelist()
    assert {"__main__.py", "cloudpickle/__init__.py", "cloudpickle/cloudpickle.py"} <= set(names)


def test_large_arguments_are_a_file_for_each_job(tmp_path: Path) -> None:
    big = cloudpickle.dumps(((b"x" * payload.SHARED_BYTES,), {}))
    chunk = [PendingCall(pickle_function(len), big, "", 0, future())]
    described = payload.write_payload(tmp_path / "p", [chunk, chunk], {"memory": 5}, data=False)
    assert described["input_sandbox"][2] == {"path": "calls-%s", "name": "calls"}
    assert described["arguments"][-1] == "0"
    assert described["memory"] == 5
    assert (tmp_path / "p" / "calls-1").exists()


def test_the_package_imports_the_executor_when_it_is_used() -> None:
    program = (
        "import sys, pilotage; assert 'pilotage.client' not in sys.modules; from pilotage import Executor"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    import pilotage

    with pytest.raises(AttributeError):
        pilotage.Nothing  # type: ignore[attr-defined]  # noqa: B018
