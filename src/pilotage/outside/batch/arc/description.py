"""Job descriptions of pilots for an ARC CE, in ADL. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from xml.sax.saxutils import escape

from pilotage.core.policy.batch_systems.arc import ArcOptions, split_names
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.properties import all_properties, write_properties

INDEX_VARIABLE = "PILOTAGE_INDEX"
"""The environment variable that holds a pilot's index."""

SCRIPT = "pilot.sh"
"""The input file with the pilot's script. It holds a secret, so it is uploaded and stands in no description."""

LOG = "pilot.log"
"""The file with the pilot's output, in the folder of its job."""

_ADL = "http://www.eu-emi.eu/es/2010/12/adl"
_MEGABYTE = 1024 * 1024


def describe_pilots(submission: BatchSubmission, indexes: Sequence[int], options: ArcOptions) -> str:
    """The description of some pilots of a submission, for one request."""
    flags = dict(flag.partition("=")[::2] for flag in submission.flags)
    queue = flags.get("--queue", options.queue)
    environments = split_names(flags["--rte"]) if "--rte" in flags else options.environments
    resources = "".join(_resources(submission.shape, queue, environments))
    annotation = escape(write_properties(all_properties(submission)))
    jobs = (_activity(submission.stamp, index, annotation, resources) for index in indexes)
    return f'<ActivityDescriptions xmlns="{_ADL}">{"".join(jobs)}</ActivityDescriptions>'


def _activity(stamp: str, index: int, annotation: str, resources: str) -> str:
    return (
        f'<ActivityDescription xmlns="{_ADL}">'
        f"<ActivityIdentification><Name>{escape(stamp)}/{index}</Name><Annotation>{annotation}</Annotation>"
        "</ActivityIdentification>"
        f"<Application><Executable><Path>/bin/sh</Path><Argument>{SCRIPT}</Argument></Executable>"
        f"<Output>{LOG}</Output><Error>{LOG}</Error>"
        f"<Environment><Name>{INDEX_VARIABLE}</Name><Value>{index}</Value></Environment></Application>"
        f"<Resources>{resources}</Resources>"
        f"<DataStaging><InputFile><Name>{SCRIPT}</Name></InputFile>"
        f"<OutputFile><Name>{LOG}</Name></OutputFile></DataStaging>"
        "</ActivityDescription>"
    )


def _resources(shape: Shape, queue: str, environments: Sequence[str]) -> Iterator[str]:
    for name in environments:
        yield f"<RuntimeEnvironment><Name>{escape(name)}</Name></RuntimeEnvironment>"
    slots = max(1, shape.processors)
    count = f"<NumberOfSlots>{slots}</NumberOfSlots><SlotsPerHost>{slots}</SlotsPerHost>"
    yield f"<SlotRequirement>{count}</SlotRequirement>"
    if shape.memory:
        # ARC asks for the memory of each slot.
        yield f"<IndividualPhysicalMemory>{ceil(shape.memory / slots) * _MEGABYTE}</IndividualPhysicalMemory>"
    if shape.wall:
        yield f"<WallTime>{ceil(shape.wall)}</WallTime>"
    if queue:
        yield f"<QueueName>{escape(queue)}</QueueName>"
