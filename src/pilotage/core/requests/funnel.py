"""The stages through which the elements and jobs of a step pass, from the plan to the result."""

from __future__ import annotations

from collections.abc import Mapping

_RUNNING = ("Running", "Stalled", "Completing")
JOB_STAGES = ("not made", "made", "pool waiting", "running", "cool-off", "done", "failed", "canceled")


def element_stages(elements: Mapping[str, int]) -> dict[str, int]:
    """Stage → elements, from their numbers by state."""
    return {
        "available": elements.get("Available", 0) + elements.get("Negotiating", 0),
        "acquired": elements.get("Acquired", 0),
        "running": elements.get("Running", 0),
        "done": elements.get("Done", 0),
        "failed": elements.get("Failed", 0),
        "cancelling": elements.get("CancelRequested", 0),
        "canceled": elements.get("Canceled", 0),
    }


def job_stages(not_made: int, jobs: Mapping[str, int], pool: Mapping[str, int]) -> dict[str, int]:
    """Stage → jobs. `jobs`: outside of the pool, by state; `pool`: in the pool, by state."""
    running = sum(pool.get(state, 0) for state in _RUNNING)
    numbers = (
        not_made,
        jobs.get("made", 0),
        sum(pool.values()) - running,
        running,
        jobs.get("cooloff", 0),
        jobs.get("done", 0),
        jobs.get("exhausted", 0),
        jobs.get("canceled", 0),
    )
    return dict(zip(JOB_STAGES, numbers, strict=True))
