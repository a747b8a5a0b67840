"""The shortest history of a seed that still fails: faults are left out by halves, then one by one."""

from __future__ import annotations

from tests.simulation.world import History, simulate

MOST_TRIES = 60


def shrunk(
    history: History, most: int = MOST_TRIES, *, store: str = "sqlite", interleaved: bool = False
) -> History:
    """A history of the same seed with fewer faults that fails too. `most`: histories to try."""
    best, kept = history, [fault.number for _, fault in history.happened]
    size = max(1, len(kept) // 2)
    while most > 0:
        place = 0
        while place < len(kept) and most > 0:
            fewer = kept[:place] + kept[place + size :]
            most -= 1
            tried = simulate(history.seed, set(fewer), store=store, interleaved=interleaved)
            if tried.failure:
                best, kept = tried, fewer
            else:
                place += size
        if size == 1:
            break
        size //= 2
    return best
