"""Elements for events to generate: each a range of events and of lumi sections, both ends included."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from pilotage.core.errors import InvalidInput
from pilotage.core.requests.start_policy import (
    ANY_LOCATION,
    Generator,
    PlannedElement,
    Reads,
    StartPlan,
    StartPolicy,
    StepInput,
    need_positive,
)
from pilotage.core.splitting.mask import Mask


class MonteCarloPolicy(StartPolicy):
    name = "MonteCarlo"
    meaning = "ranges of events to generate, with lumi sections of their own; no input data"
    reads = Reads.GENERATOR

    def plan(self, step: StepInput) -> StartPlan:
        generator = step.generator
        if generator is None:
            raise InvalidInput("events: the number of events to generate is missing", field="events")
        per_job = need_positive(generator.events_per_job, "events_per_job")
        need_positive(generator.events, "events")
        return StartPlan(tuple(_elements(generator, per_job, step.limit)))


def _elements(generator: Generator, per_job: int, limit: int) -> Iterator[PlannedElement]:
    per_lumi = generator.events_per_lumi or per_job
    lumis_per_job = ceil(per_job / per_lumi)
    most_jobs = _most_jobs(generator, lumis_per_job)
    end = generator.first_event + generator.events
    first_event, first_lumi = generator.first_event, generator.first_lumi
    while first_event < end and limit > 0:
        events = min(per_job * most_jobs, end - first_event)
        lumis = events // per_job * lumis_per_job + ceil(events % per_job / per_lumi)
        yield PlannedElement(
            blocks=(),
            names=(),
            mask=Mask((), first_event, events, first_lumi, lumis),
            jobs=ceil(events / per_job),
            events=events,
            files=0,
            size=0,
            location_set=ANY_LOCATION,
        )
        first_event, first_lumi, limit = first_event + events, first_lumi + lumis, limit - 1


def _most_jobs(generator: Generator, lumis_per_job: int) -> int:
    """Jobs of an element, so that it has at most `max_jobs` jobs and `max_lumis` lumi sections."""
    most = need_positive(generator.max_jobs, "max_jobs_per_element")
    if not generator.max_lumis:
        return most
    most = min(most, generator.max_lumis // lumis_per_job)
    if most < 1:
        raise InvalidInput(
            f"max_lumis_per_element: one job has {lumis_per_job} lumi sections, an element at most "
            f"{generator.max_lumis}",
            hint="raise max_lumis_per_element or events_per_lumi, or lower events_per_job",
            field="max_lumis_per_element",
        )
    return most
