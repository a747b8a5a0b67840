"""The algorithm EventBased: a number of events for each job, of one file or to be generated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.splitting.algorithm import Algorithm, Amount, GeneratedJob, ParameterFault, ceil_div
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.core.splitting.pieces import Piece, Window


class EventBased(Algorithm, frozen=True, kw_only=True):
    """Events of one file, in their order. A file with an unknown number of events is one job."""

    algorithm: ClassVar[str] = "EventBased"
    meaning: ClassVar[str] = "a number of events for each job, of one file or to be generated"
    example: ClassVar[str] = "events_per_job = 1000\n"
    generates: ClassVar[bool] = True

    events_per_job: Annotated[int, Setting("the most events of a job", 1, 10**12)]
    events_per_lumi: Annotated[
        int, Setting("generated events with one lumi number; 0: all of a job", 1, 10**12, or_zero=True)
    ] = 0

    def faults(self) -> Iterator[ParameterFault]:
        if self.events_per_lumi > self.events_per_job:
            message = "events_per_lumi is larger than events_per_job"
            yield ParameterFault(message, "events_per_lumi", "a lumi lies in one job")

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        most = self.events_per_job
        for piece in pieces:
            events = piece.events
            if events <= most or piece.has_named_lumis:
                yield Mask((piece.range,), events=events)
                continue
            file, first, end = piece.file, piece.first, piece.first + events
            for begin in range(first, end - most, most):
                yield Mask((FileRange(file, begin, most),), events=most)
            begin = first + (events - 1) // most * most
            yield Mask((FileRange(file, begin, end - begin),), events=end - begin)

    @property
    def generated_job(self) -> GeneratedJob:
        return GeneratedJob(self.events_per_job, self.events_per_lumi or self.events_per_job)

    def generate(self, whole: Window, part: Window) -> Iterator[Mask]:
        """Each job lies on the grid of `events_per_job` from the start of `whole`, which decides its lumis.

        A resubmission may make smaller jobs of a range. They share its lumis, since the next lumis are taken.
        """
        job = self.generated_job
        jobs, rest = divmod(whole.events, job.events)
        shares = 0 < whole.lumis < jobs * job.lumis + ceil_div(rest, job.events_per_lumi)
        most, per_lumi = job
        begin, end = part.first_event - whole.first_event, part.first_event - whole.first_event + part.events
        while begin < end:
            number, inside = divmod(begin, most)
            until = min((number + 1) * most, end)
            first_lumi = whole.first_lumi + number * job.lumis + inside // per_lumi
            lumis = ceil_div(inside % per_lumi + until - begin, per_lumi)
            if shares:
                first, last = (place * whole.lumis // whole.events for place in (begin, until - 1))
                first_lumi, lumis = whole.first_lumi + first, last - first + 1
            yield Mask((), whole.first_event + begin, until - begin, first_lumi, lumis)
            begin = until

    def estimate_jobs(self, amount: Amount) -> int:
        return max(1, amount.files, ceil_div(amount.events, self.events_per_job))
