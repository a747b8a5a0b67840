"""One element for each closed block."""

from __future__ import annotations

from pilotage.core.requests.start_policy import (
    InputBlock,
    PlannedElement,
    Reads,
    StartPlan,
    StartPolicy,
    StepInput,
    excluded,
)


class BlockPolicy(StartPolicy):
    name = "Block"
    meaning = "one element for each closed block; blocks that come later make further elements"
    reads = Reads.BLOCKS

    def plan(self, step: StepInput) -> StartPlan:
        elements: list[PlannedElement] = []
        rejected: dict[str, str] = {}
        bad: dict[str, str] = {}
        for block in step.blocks:
            reason = excluded(step, block)
            if reason:
                rejected[block.name] = reason
            elif block.files < 1:
                bad[block.name] = "the block has no files"
            else:
                elements.append(_element_of(step, block))
        return StartPlan(tuple(elements), rejected, bad)


def _element_of(step: StepInput, block: InputBlock) -> PlannedElement:
    jobs = step.job_count(files=block.files, events=block.events, lumis=block.lumis, size=block.size)
    return PlannedElement(
        blocks=(block.id,),
        names=(block.name,),
        mask=None,
        jobs=jobs,
        events=block.events,
        files=block.files,
        size=block.size,
        location_set=block.location_set,
    )
