"""The loop of decisions: a replay of the inputs repeats the order of all events, however they fell between timers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.recording.lines import Input, Inputs, ReceivedMessage, RecordBegin, ServerAt, read_record
from pilotage.server.recording.loop import DecisionLoop
from pilotage.server.recording.recorder import Recorder, RecordFile
from pilotage.server.recording.redaction import Redaction
from pilotage.server.recording.tape import Tape
from pilotage.twin.replay import Player
from tests.deadlines import PATIENCE

BEGIN = 1_000.0
BEGIN_LINE = RecordBegin(1, "0", BEGIN, "seed", ServerAt("", "", "", "", {}, "", "", 0, "sqlite"), "")


class JumpingClock:
    """A real clock that goes on by a given step each time that it is read."""

    def __init__(self, steps: Sequence[float]) -> None:
        self._steps = list(steps)
        self._now = BEGIN

    def __call__(self) -> float:
        self._now += self._steps.pop() if self._steps else 0.05
        return self._now


class ImpatientRecorder(Recorder):
    """It waits for no input: the clock jumps."""

    def _waiting(self, seconds: float | None) -> list[Input]:
        return super()._waiting(0.0)


def message(number: int) -> ReceivedMessage:
    return ReceivedMessage(number, "GET", f"/{number}", b"", b"", [], None, b"")


def decide(tape: Tape, periods: Sequence[float], count: int) -> list[tuple[float, str]]:
    """Timers of several periods, which wake one another, and messages: all events with their instants."""
    loop = DecisionLoop(BEGIN, tape)
    tape.clock = loop.time
    seen: list[tuple[float, str]] = []
    served = asyncio.Event()

    def note(what: str) -> None:
        seen.append((loop.time(), what))

    def serve(given: ReceivedMessage) -> None:
        note(f"message {given.number}")
        loop.call_later(0.01, note, f"answer {given.number}")
        served.set()

    async def duty(period: float) -> None:
        while len([what for _, what in seen if what.startswith("answer")]) < count:
            note(f"duty {period}")
            await asyncio.wait([asyncio.ensure_future(served.wait())], timeout=period)
            served.clear()
            await asyncio.sleep(0)

    async def run() -> None:
        await asyncio.gather(*map(duty, periods))

    tape.serve = serve
    try:
        loop.run_until_complete(run())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    return seen


def record(
    path: Path,
    steps: Sequence[float],
    work: Callable[[Recorder], Any],
    kind: type[Recorder] = ImpatientRecorder,
) -> Any:
    path.unlink(missing_ok=True)
    file = RecordFile(path, 10_000_000)
    file.write(BEGIN_LINE)
    recorder = kind(file, Redaction(b""), JumpingClock(steps))
    try:
        return work(recorder)
    finally:
        file.close()


@given(
    st.lists(st.floats(0.0, 0.3), max_size=60),
    st.lists(st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.25]), min_size=1, max_size=4),
    st.integers(1, 12),
)
def test_any_interleaving_of_inputs_and_timers_is_repeated(
    tmp_path_factory: pytest.TempPathFactory, steps: list[float], periods: list[float], count: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "loop.record"

    def live(recorder: Recorder) -> list[tuple[float, str]]:
        for number in range(count):
            recorder.post(message(number))
        return decide(recorder, periods, count)

    seen = record(path, steps, live)
    _, lines = read_record(path)
    player = Player(lines, BEGIN)
    again: list[tuple[float, str]] = []
    again = decide_to_the_end(player, periods, count)
    assert again == seen
    assert len([what for _, what in seen if what.startswith("message")]) == count


def decide_to_the_end(player: Player, periods: Sequence[float], count: int) -> list[tuple[float, str]]:
    """As `decide`, beyond the last line of the record: timers alone go on."""
    end = player.next_inputs

    def go_on(now: float, due: float | None) -> tuple[float, Sequence[Callable[[], object]]]:
        if player.at_end:
            assert due is not None
            return due, ()
        return end(now, due)

    player.next_inputs = go_on  # type: ignore[method-assign]
    return decide(player, periods, count)


def test_inputs_come_only_when_nothing_else_is_to_do(tmp_path: Path) -> None:
    """A message that waits is served after the callbacks that are ready, at one instant with others that wait."""
    seen: list[str] = []

    def work(recorder: Recorder) -> None:
        loop = DecisionLoop(BEGIN, recorder)
        recorder.clock = loop.time
        recorder.serve = lambda given: seen.append(given.path)
        recorder.post(message(1))
        recorder.post(message(2))

        async def run() -> None:
            for number in range(3):
                seen.append(f"step {number}")
                await asyncio.sleep(0)
            await asyncio.sleep(1.0)

        loop.run_until_complete(run())
        loop.close()

    record(tmp_path / "record", [], work)
    assert seen == ["step 0", "step 1", "step 2", "/1", "/2"]
    _, lines = read_record(tmp_path / "record")
    [both] = [line for line in lines if isinstance(line, Inputs)]
    assert [given.number for given in both.inputs if isinstance(given, ReceivedMessage)] == [1, 2]


@pytest.mark.parametrize("make_executor", [lambda: ThreadPoolExecutor(1), lambda: DaemonThreads("asked")])
def test_decisions_go_on_while_a_call_is_outside(tmp_path: Path, make_executor: Callable[[], Any]) -> None:
    """A thread reads only in its turns: before and after the call, at instants that the replay repeats."""
    answered = threading.Event()

    def run(tape: Tape) -> list[tuple[float, str]]:
        loop = DecisionLoop(BEGIN, tape)
        tape.clock = loop.time
        seen: list[tuple[float, str]] = []
        executor = make_executor()

        def blocking() -> str:
            seen.append((loop.time(), "before"))
            value = tape.ask("batch system", str, lambda: str(answered.wait(PATIENCE)))
            seen.append((loop.time(), f"after {value}"))
            return value

        async def others() -> None:
            for _ in range(3):
                await asyncio.sleep(0.1)
                seen.append((loop.time(), "other"))
            answered.set()

        async def both() -> None:
            asked = loop.run_in_executor(executor, blocking)
            await others()
            seen.append((loop.time(), await asked))

        try:
            loop.run_until_complete(both())
        finally:
            loop.close()
        return seen

    seen = record(tmp_path / "record", [], run, Recorder)
    assert [what for _, what in seen] == ["before", "other", "other", "other", "after True", "True"]
    _, lines = read_record(tmp_path / "record")
    assert run(Player(lines, BEGIN)) == seen
