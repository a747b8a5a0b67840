"""Long work in the loop: others run between its turns, and it takes no more than its fraction of the time."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from pilotage.server.loop_turns import TURN, in_turns, rest, run_turn


def test_a_pause_leaves_the_others_their_fraction_of_the_time() -> None:
    assert 0.004 / (0.004 + rest(0.004, 0.1)) == pytest.approx(0.1)
    assert rest(0.004, 1.0) == 0.0


@pytest.mark.parametrize(("seconds", "turns"), [(TURN / 4, 3), (2 * TURN, 12), (0.0, 0)])
def test_others_run_after_each_turn_and_only_then(
    seconds: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve steps of the same length. The caller's work on a step belongs to the turn."""
    now, seen, rests = [0.0], list[int](), list[float]()

    async def sleep(length: float) -> None:
        rests.append(length)

    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def work() -> None:
        async for step in in_turns(range(12), lambda: now[0], 0.25):
            seen.append(step)
            now[0] += seconds

    asyncio.run(work())
    assert seen == list(range(12))
    assert rests == pytest.approx([rest(max(seconds, TURN), 0.25)] * turns)


def test_a_turn_in_the_writer_ends_after_its_time_or_with_a_result() -> None:
    ticks = count(0.0, TURN * 0.6)
    steps = iter([None, None, None, "result", None])
    assert run_turn(steps, lambda: next(ticks)) is None
    assert run_turn(steps, lambda: 0.0) == "result"
    with pytest.raises(AssertionError, match="the last step has the result"):
        run_turn(steps, lambda: 0.0)
