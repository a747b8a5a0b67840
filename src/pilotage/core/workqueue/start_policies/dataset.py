"""One element for a whole data set, which must be closed."""

from __future__ import annotations

from pilotage.core.workqueue.start_policy import (
    PlannedElement,
    Reads,
    StartPlan,
    StartPolicy,
    StepInput,
    excluded,
)


class DatasetPolicy(StartPolicy):
    name = "Dataset"
    meaning = "one element for the whole data set, as soon as it is closed"
    reads = Reads.DATASET

    def plan(self, step: StepInput) -> StartPlan:
        """`location_set` is that of the first block: the caller intersects the locations of all blocks."""
        reasons = {block.name: excluded(step, block) for block in step.blocks}
        rejected = {name: reason for name, reason in reasons.items() if reason}
        bad = {block.name: "the block has no files" for block in step.blocks if block.files < 1}
        taken = [block for block in step.blocks if block.name not in rejected and block.files > 0]
        if not taken:
            return StartPlan((), rejected, bad)
        counts = {
            "files": sum(block.files for block in taken),
            "events": sum(block.events for block in taken),
            "lumis": sum(block.lumis for block in taken),
            "runs": len(frozenset[int]().union(*(block.runs for block in taken))),
            "bytes": sum(block.size for block in taken),
        }
        element = PlannedElement(
            blocks=tuple(block.id for block in taken),
            names=tuple(block.name for block in taken),
            mask={},
            jobs=step.slices.jobs(counts),
            events=counts["events"],
            files=counts["files"],
            size=counts["bytes"],
            location_set=taken[0].location_set,
        )
        return StartPlan((element,), rejected, bad)
