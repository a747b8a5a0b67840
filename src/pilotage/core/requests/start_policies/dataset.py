"""One element for a whole data set, which must be closed."""

from __future__ import annotations

from pilotage.core.requests.start_policy import (
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
        files, events = sum(block.files for block in taken), sum(block.events for block in taken)
        lumis, size = sum(block.lumis for block in taken), sum(block.size for block in taken)
        element = PlannedElement(
            blocks=tuple(block.id for block in taken),
            names=tuple(block.name for block in taken),
            mask=None,
            jobs=step.job_count(files=files, events=events, lumis=lumis, size=size),
            events=events,
            files=files,
            size=size,
            location_set=taken[0].location_set,
        )
        return StartPlan((element,), rejected, bad)
