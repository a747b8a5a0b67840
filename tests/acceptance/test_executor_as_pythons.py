"""The cases of CPython's tests of executors: `pilotage.Executor` passes them with real pilots, as Python's own does.

Each case runs on ThreadPoolExecutor first, so that it says the truth about Python. DEVIATIONS names each case in which
ours differs on purpose, with the reason; a deviation that has gone is an error.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pilotage import Executor
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

DEVIATIONS = {
    "test_the_number_of_workers_is_given": "the pool has the workers, and each user has a share of them",
    "test_threads_have_a_given_name_and_begin_with_a_function": "calls run in other processes",
    "test_a_running_call_cannot_be_cancelled": "its job is killed",
    "test_cancelled_futures_are_waiting_ones": "`shutdown(cancel_futures=True)` cancels running calls too",
    "test_an_argument_needs_no_pickle": "it travels to another machine; nothing is sent, and NotPicklable names it",
}
Make = Callable[[], futures.Executor]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("pythons"), idle=60, processors=4) as one:
        yield one


@pytest.fixture(params=["python", "pilotage"])
def kind(request: pytest.FixtureRequest) -> str:
    reason = DEVIATIONS.get(request.function.__name__)
    if request.param == "pilotage" and reason:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    return str(request.param)


@pytest.fixture
def make(kind: str, request: pytest.FixtureRequest, gate: Path) -> Iterator[Make]:
    """Makes an executor; all are shut down at the end."""
    made: weakref.WeakSet[futures.Executor] = weakref.WeakSet()

    def one(**options: Any) -> futures.Executor:
        if kind == "python":
            pool: futures.Executor = ThreadPoolExecutor(**{"max_workers": 4} | options)
        else:
            pool = Executor(client=request.getfixturevalue("instance").client(), **options)
        made.add(pool)
        return pool

    yield one
    gate.touch()
    for pool in list(made):
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def executor(make: Make) -> futures.Executor:
    return make()


def test_deviations_are_cases() -> None:
    assert {name for name in DEVIATIONS if name not in globals()} == set()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that calls of `waiting` wait for. It is there at the end, so that each of them ends."""
    return tmp_path / "gate"


def waiting(gate: Path, result: object = None) -> Callable[[], Any]:
    """A call that runs until the gate is there, and returns, or raises, the result."""

    def wait() -> Any:
        gate.with_name("runs").touch()
        while not gate.exists():
            time.sleep(0.02)
        if isinstance(result, BaseException):
            raise result
        return result

    return wait


def done(result: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def failed() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(OSError())
    return future


def cancelled(*, told: bool) -> Future[Any]:
    """`told`: its executor has noticed it."""
    future: Future[Any] = Future()
    future.cancel()
    if told:
        future.set_running_or_notify_cancel()
    return future


# --- submit and map


def test_submit(executor: futures.Executor) -> None:
    assert executor.submit(pow, 2, 8).result(PATIENCE) == 256


def test_arguments_may_have_any_name(executor: futures.Executor) -> None:
    def given(*positional: int, **named: int) -> tuple[tuple[int, ...], dict[str, int]]:
        return positional, named

    assert executor.submit(given, 1, self=2, fn=3).result(PATIENCE) == ((1,), {"self": 2, "fn": 3})
    with pytest.raises(TypeError):
        executor.submit(fn=given, arg=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        executor.submit(arg=1)  # type: ignore[call-arg]


def test_map_is_in_order(executor: futures.Executor) -> None:
    expected = list(map(pow, range(10), range(12)))
    assert list(executor.map(pow, range(10), range(12))) == expected
    assert list(executor.map(pow, range(10), range(12), chunksize=3)) == expected
    assert list(executor.map(pow, [], [])) == []


def test_an_exception_of_a_map_comes_in_its_turn(executor: futures.Executor) -> None:
    results = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
    assert [next(results), next(results)] == [(0, 1), (0, 1)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_a_map_runs_without_iteration(executor: futures.Executor, tmp_path: Path) -> None:
    executor.map(lambda number: (tmp_path / str(number)).touch(), range(5))
    executor.shutdown()
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")


def test_a_map_ends_at_its_time(executor: futures.Executor, gate: Path) -> None:
    wait = waiting(gate)
    results = executor.map(lambda number: wait() if number else number, [0, 1], timeout=0)
    with pytest.raises(TimeoutError):
        list(results)


def test_a_map_that_nobody_reads_does_not_hold_the_shutdown(executor: futures.Executor) -> None:
    executor.map(str, [2] * 5)
    executor.shutdown()


def test_arguments_are_not_kept(executor: futures.Executor) -> None:
    class Held:
        def method(self) -> None:
            pass

    collected, held = threading.Event(), Held()
    reference = weakref.ref(held, lambda _: collected.set())
    executor.submit(held.method)
    del held
    assert collected.wait(PATIENCE)
    assert reference() is None


def test_results_of_a_map_are_not_kept(executor: futures.Executor) -> None:
    class Made:
        pass

    for made in executor.map(lambda _: Made(), range(5)):
        reference = weakref.ref(made)
        del made
        gc.collect()
        assert reference() is None


def test_the_number_of_workers_is_given(make: Callable[..., futures.Executor]) -> None:
    with pytest.raises(ValueError, match="max_workers"):
        make(max_workers=0)


def test_threads_have_a_given_name_and_begin_with_a_function(make: Callable[..., futures.Executor]) -> None:
    begun = threading.Event()
    pool = make(thread_name_prefix="worker", initializer=begun.set)
    pool.submit(int).result(PATIENCE)
    assert begun.is_set()


def test_an_argument_needs_no_pickle(executor: futures.Executor) -> None:
    lock = threading.Lock()
    assert executor.submit(lambda given: given is not None, lock).result(PATIENCE)


# --- the end of an executor


def test_no_call_after_the_shutdown(executor: futures.Executor) -> None:
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(pow, 2, 5)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.map(abs, [1])


def test_a_shutdown_waits_for_all_calls(executor: futures.Executor) -> None:
    given = [executor.submit(abs, number) for number in range(50)]
    executor.shutdown()
    assert all(future.done() for future in given)
    assert [future.result() for future in given] == list(range(50))


def test_the_block_waits_for_all_calls(make: Make) -> None:
    before = set(threading.enumerate())
    with make() as executor:
        results = executor.map(abs, range(-5, 5))
    assert list(results) == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]
    assert set(threading.enumerate()) <= before


def test_results_come_after_a_shutdown_that_does_not_wait(make: Make, gate: Path) -> None:
    before = set(threading.enumerate())
    executor = make()
    given = [executor.submit(waiting(gate, 7)), executor.submit(abs, -8)]
    executor.shutdown(wait=False)
    gate.touch()
    assert [future.result(PATIENCE) for future in given] == [7, 8]
    until(lambda: set(threading.enumerate()) <= before, what="the end of its threads")


def test_a_forgotten_executor_runs_its_calls_and_ends(make: Make) -> None:
    before = set(threading.enumerate())
    given = make().map(abs, range(-5, 5))
    gc.collect()
    assert list(given) == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]
    until(lambda: set(threading.enumerate()) <= before, what="the end of its threads")


@pytest.mark.parametrize("wait", [True, False])
def test_a_shutdown_cancels_waiting_calls(make: Make, gate: Path, wait: bool) -> None:
    executor = make()
    first = executor.submit(waiting(gate))
    until(gate.with_name("runs").exists, what="the first call")
    others = [executor.submit(waiting(gate)) for _ in range(20)]
    opener = threading.Thread(target=lambda: (until(others[-1].cancelled), gate.touch()))
    opener.start()
    executor.shutdown(wait=wait, cancel_futures=True)
    opener.join()
    assert sum(future.cancelled() for future in others) >= 17
    until(lambda: all(future.done() for future in [first, *others]), what="the end of all calls")


def test_cancelled_futures_are_waiting_ones(make: Make, gate: Path) -> None:
    executor = make()
    first = executor.submit(waiting(gate, 3))
    until(gate.with_name("runs").exists, what="the call")
    executor.shutdown(wait=False, cancel_futures=True)
    gate.touch()
    assert first.result(PATIENCE) == 3


def test_a_call_that_is_cancelled_at_once_does_not_hold_the_shutdown(executor: futures.Executor) -> None:
    executor.submit(int).result(PATIENCE)
    executor.submit(int).cancel()
    executor.shutdown()


# --- the end of the interpreter

POOLS = {
    "python": "from concurrent.futures import ThreadPoolExecutor as Executor",
    "pilotage": "from pilotage import Executor",
}


def interpreter(
    kind: str, request: pytest.FixtureRequest, script: str, folder: Path
) -> subprocess.Popen[str]:
    """A Python that runs the script with an executor of this kind. `effect(n)` leaves a trace in the folder."""
    effect = f"import pathlib\ndef effect(n): pathlib.Path({str(folder)!r}, str(n)).touch()\n"
    (program := folder / "script.py").write_text(f"{POOLS[kind]}\n{effect}{script}")
    home = request.getfixturevalue("instance").home if kind == "pilotage" else folder
    return subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, "PILOTAGE_HOME": str(home)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def effects(folder: Path) -> int:
    return len([path for path in folder.iterdir() if path.name.isdecimal()])


@pytest.mark.parametrize(
    "end",
    [
        "",
        "executor.shutdown(wait=False)",
        "del executor",
        "import sys; sys.exit()",
        "import threading; threading.Thread(target=executor.shutdown).start()",
    ],
)
def test_the_interpreter_waits_for_calls(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, end: str
) -> None:
    submit = "executor = Executor()\nfor n in range(100): executor.submit(effect, n)\n"
    ended = interpreter(kind, request, submit + end, tmp_path)
    out, err = ended.communicate(timeout=PATIENCE)
    assert (out, ended.returncode) == ("", 0)
    # A wait of seconds is told.
    assert not err or (err.count("\n") == 1 and "the program waits" in err)
    assert effects(tmp_path) == 100


def test_no_call_after_the_end_of_the_interpreter(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    script = "import atexit\n@atexit.register\ndef last(): executor.submit(int)\nexecutor = Executor()\n"
    ended = interpreter(kind, request, script + "print(executor.submit(int).result())", tmp_path)
    out, err = ended.communicate(timeout=PATIENCE)
    assert out == "0\n"
    assert "RuntimeError: cannot schedule new futures after" in err


def test_an_interrupt_ends_the_wait(
    instance: Instance, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of the interpreter for a job that no pilot takes. A line has said what to do."""
    script = "executor = Executor(tags=['nowhere'])\nexecutor.submit(effect, 1)\nprint('ends', flush=True)\n"
    ended = interpreter("pilotage", request, script, tmp_path)
    assert ended.stdout is not None
    assert ended.stderr is not None
    assert ended.stdout.readline() == "ends\n"
    assert "a call has not ended, and the program waits. Ctrl-C ends it now" in ended.stderr.readline()
    until(lambda: instance.client().counts().states.get("Waiting"), what="the submission")
    ended.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in ended.communicate(timeout=PATIENCE)[1]


# --- wait


def test_wait_for_one_future_twice(executor: futures.Executor) -> None:
    future = executor.submit(abs, 1)
    assert futures.wait([future, future], timeout=PATIENCE) == ({future}, set())


def test_wait_for_the_first(executor: futures.Executor, gate: Path) -> None:
    first, other = executor.submit(abs, 1), executor.submit(waiting(gate))
    untold = cancelled(told=False)
    found = futures.wait([untold, first, other], return_when=futures.FIRST_COMPLETED, timeout=PATIENCE)
    assert found == ({first}, {untold, other})
    ended = {done(1), cancelled(told=True)}
    assert futures.wait({*ended, other}, return_when=futures.FIRST_COMPLETED) == (ended, {other})


def test_wait_for_the_first_exception(executor: futures.Executor, gate: Path, tmp_path: Path) -> None:
    good, other = executor.submit(abs, 1), executor.submit(waiting(gate))
    good.result(PATIENCE)
    bad, untold, ended = executor.submit(divmod, 1, 0), cancelled(told=False), done(1)
    asked: list[Future[Any]] = [good, bad, other, untold, ended]
    found = futures.wait(asked, return_when=futures.FIRST_EXCEPTION, timeout=PATIENCE)
    assert found == ({good, bad, ended}, {other, untold})
    known = failed()
    assert futures.wait([known, other], return_when=futures.FIRST_EXCEPTION) == ({known}, {other})


def test_wait_for_all(executor: futures.Executor) -> None:
    given: set[Future[Any]] = {
        executor.submit(divmod, 1, 0),
        executor.submit(abs, 1),
        done(1),
        failed(),
        cancelled(told=True),
    }
    assert futures.wait(given, timeout=PATIENCE) == (given, set())


def test_wait_for_a_time(executor: futures.Executor, gate: Path) -> None:
    other, ended = executor.submit(waiting(gate)), {done(1), failed(), cancelled(told=True)}
    assert futures.wait({*ended, other}, timeout=0) == (ended, {other})


def test_wait_for_calls_that_end_together(executor: futures.Executor, gate: Path) -> None:
    given = {executor.submit(waiting(gate)) for _ in range(30)}
    gate.touch()
    assert futures.wait(given, timeout=PATIENCE) == (given, set())


# --- as_completed


def test_all_are_completed(executor: futures.Executor) -> None:
    given = {executor.submit(abs, 1), executor.submit(abs, 2), done(1), failed(), cancelled(told=True)}
    assert set(futures.as_completed(given, timeout=PATIENCE)) == given


def test_some_are_not_completed_in_time(executor: futures.Executor, gate: Path) -> None:
    ended, found = {done(1), failed(), cancelled(told=True)}, set()
    given = {*ended, executor.submit(waiting(gate))}

    def look() -> None:
        for future in futures.as_completed(given, timeout=0):
            found.add(future)

    with pytest.raises(TimeoutError, match=r"1 \(of 4\) futures unfinished"):
        look()
    assert found == ended


def test_a_future_is_completed_once(executor: futures.Executor) -> None:
    future = executor.submit(abs, 1)
    assert list(futures.as_completed([future, future, future], timeout=PATIENCE)) == [future]


def test_completed_futures_are_not_kept(executor: futures.Executor) -> None:
    given = [executor.submit(abs, number) for number in range(5)]
    for future in futures.as_completed(given, timeout=PATIENCE):
        given.remove(future)
        reference = weakref.ref(future)
        del future
        until(lambda reference=reference: reference() is None, what="the end of a future")


# --- futures


def test_callbacks_are_called_once_each_in_order(
    executor: futures.Executor, gate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []
    future = executor.submit(waiting(gate, 5))

    def fails(_: object) -> None:
        called.append("fails")
        raise ArithmeticError("of a callback")

    future.add_done_callback(fails)
    future.add_done_callback(lambda it: called.append(it.result()))
    gate.touch()
    until(lambda: len(called) == 2, what="the callbacks")
    future.add_done_callback(lambda _: called.append("late"))
    assert called == ["fails", 5, "late"]
    assert "of a callback" in caplog.text


@pytest.mark.parametrize("outcome", ["exception", "cancel"])
def test_a_callback_is_told_of_each_end(executor: futures.Executor, gate: Path, outcome: str) -> None:
    blocked = [executor.submit(waiting(gate, ValueError("of the call"))) for _ in range(8)]
    future, told = blocked[-1], threading.Event()
    future.add_done_callback(lambda _: told.set())
    if outcome == "cancel":
        assert future.cancel()
        assert future.cancel()
        assert told.is_set()
        for ask in (future.result, future.exception):
            with pytest.raises(futures.CancelledError):
                ask(0)
    gate.touch()
    assert told.wait(PATIENCE)
    assert future.done()
    assert future.cancelled() == (outcome == "cancel")
    if outcome == "exception":
        assert isinstance(future.exception(), ValueError)
        with pytest.raises(ValueError, match="of the call"):
            future.result()


def test_a_running_call(executor: futures.Executor, gate: Path) -> None:
    future = executor.submit(waiting(gate, 4))
    until(future.running, what="news of its start")
    assert not future.done()
    for ask in (future.result, future.exception):
        with pytest.raises(TimeoutError):
            ask(timeout=0)
    gate.touch()
    assert future.result(PATIENCE) == 4
    assert future.exception(PATIENCE) is None
    assert not future.running()
    assert not future.cancel()
    assert not future.cancelled()
    with pytest.raises(futures.InvalidStateError):
        future.set_result(1)
    with pytest.raises(futures.InvalidStateError):
        future.set_exception(OSError())


def test_a_running_call_cannot_be_cancelled(executor: futures.Executor, gate: Path) -> None:
    future = executor.submit(waiting(gate, 4))
    until(future.running, what="news of its start")
    assert not future.cancel()
