"""What the pilot asks for: as much as fits, and while payloads are very short some more."""

from __future__ import annotations

import dataclasses
from typing import Optional

from pilotage.wire.pilot import Node, Take

from .assignments import OCCUPYING, WAITING, Assignments, Stage
from .job_rate import SHORT, JobRate
from .pilot_config import PilotConfig

UNLIMITED = 1e9
"""CPU seconds left where the batch system sets no limit."""


def next_take(
    number: int, holdings: Assignments, pace: JobRate, terms: PilotConfig, now: float
) -> Optional[Take]:
    """The take that makes best use of the node, or None if nothing more is wanted.

    `count` covers the free processors with one-processor jobs. `ahead` is bounded by the terms; jobs ahead are
    matched against the part of the node that is not in the hands of long payloads.
    """
    whole = terms.node
    used, used_memory = holdings.use(*OCCUPYING, *WAITING)
    free = max(0, whole.processors - used)
    ahead = _ahead(holdings, pace, terms)
    if not free and not ahead:
        return None
    if not ahead:
        return Take(number, free, _part(terms, free, used_memory, now))
    long_ones = [held.offer.payload for held in holdings.of(*OCCUPYING) if now - held.since > SHORT]
    soon = whole.processors - sum(payload.processors for payload in long_ones)
    if soon <= 0:
        return None
    return Take(
        number, free + ahead, _part(terms, soon, sum(payload.memory for payload in long_ones), now), ahead
    )


def _ahead(holdings: Assignments, pace: JobRate, terms: PilotConfig) -> int:
    slots = terms.node.processors
    target = min(terms.ahead, pace.ahead(slots))
    if not target:
        return 0
    running = holdings.count(*OCCUPYING, Stage.STORING)
    held_ahead = max(0, holdings.count(*WAITING) + running - slots)
    return max(0, target - held_ahead)


def _part(terms: PilotConfig, processors: int, used_memory: int, now: float) -> Node:
    whole = terms.node
    # 0 would mean "not known, refuse nothing": a node whose memory is used up offers 1 MB.
    memory = max(1, whole.memory - used_memory) if whole.memory else 0
    left = (terms.end - terms.margin - now) * terms.cpu_power
    return dataclasses.replace(
        whole, processors=processors, memory=memory, cpu_left=max(0.0, min(left, UNLIMITED))
    )
