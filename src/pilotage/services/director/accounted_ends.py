"""Batch jobs that a listing does not explain, as the accounting of the batch system tells them.

A controller forgets ended batch jobs after minutes. Its accounting still knows their end, and who cancelled them.
A batch job that runs by the accounting contradicts a listing that lacks it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.services.director.listing_comparison import ListingComparison, Observation


def unexplained(comparison: ListingComparison) -> dict[str, float]:
    """Released submissions with a pilot that is not listed or listed as ended: stamp → time of submission."""
    return {
        observation.row.stamp: observation.row.submitted
        for observation in comparison.observations
        if _was_released(observation) and _without_live_task(observation)
    }


def _was_released(observation: Observation) -> bool:
    """Whether its batch jobs may have run: a listing or an acknowledged call says so."""
    return observation.row.phase is SubmissionPhase.RELEASED or observation.row.releases > 0


def _without_live_task(observation: Observation) -> list[int]:
    """The pilots to observe without a batch job that waits or runs."""
    live = {task.index for task in observation.tasks if task.state is not NativeState.ENDED}
    if None in live:
        return []
    indexes = range(observation.row.pilots) if observation.indexes is None else sorted(observation.indexes)
    return [index for index in indexes if index not in live]


def with_accounted(comparison: ListingComparison, told: Sequence[ListedTask]) -> ListingComparison:
    """The comparison with the ends of `told` in the place of missing and ended batch jobs, and with the running ones.

    A batch job that the listing shows as alive stays so. Another batch job of the same stamp says nothing.
    """
    if not told:
        return comparison
    by_stamp: dict[str, list[ListedTask]] = defaultdict(list)
    for task in told:
        by_stamp[task.stamp].append(task)
    return replace(
        comparison,
        observations=[_explained(each, by_stamp.get(each.row.stamp, ())) for each in comparison.observations],
    )


def _explained(observation: Observation, told: Sequence[ListedTask]) -> Observation:
    if not _was_released(observation):
        return observation
    of_index = {task.index: task for task in told if task.array == observation.row.batch_id}
    explained = {
        index: replace(task, index=index)
        for index in _without_live_task(observation)
        if (task := of_index.get(index, of_index.get(None))) is not None
    }
    if not explained:
        return observation
    ended = {index: task for index, task in explained.items() if task.state is NativeState.ENDED}
    kept = [task for task in observation.tasks if task.index not in ended]
    return replace(
        observation, tasks=[*kept, *ended.values()], accounted=frozenset(explained.keys() - ended.keys())
    )
