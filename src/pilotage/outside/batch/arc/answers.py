"""Readers of the XML that an ARC CE answers. Pure, and tested on recorded answers.

XML is asked for since it has one form for one job and for many, and an empty list differs from an empty answer.
The JSON of ARC has neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from xml.etree import ElementTree

from pilotage.core.pilots.waits import WaitClass
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.submission import NativeState
from pilotage.outside.batch.xml_answers import read_xml

MOST_JOBS = 1_000_000
"""Jobs of one listing."""

IN_BATCH_SYSTEM = "RUNNING"
"""The state of a job that the batch system behind the CE has, be it queued or running."""

BEFORE_INPUT = ("ACCEPTING", "ACCEPTED", "PREPARING")
"""States of jobs that may wait for their input files."""

ENDED_STATES = ("FINISHED", "FAILED", "KILLED", "WIPED")
"""States of jobs that wait for their removal from the CE."""

_STATES: Mapping[str, NativeState] = {
    **dict.fromkeys((*BEFORE_INPUT, "PREPARED", "SUBMITTING"), NativeState.WAITING),
    IN_BATCH_SYSTEM: NativeState.WAITING,
    # It ended in the batch system.
    **dict.fromkeys(("EXECUTED", "FINISHING", *ENDED_STATES), NativeState.ENDED),
    "KILLING": NativeState.RUNNING,
}
"""The meaning of each state that the CE's own records have."""

ALL_STATES = tuple(_STATES)

_DETAILS: Mapping[str, NativeState] = {
    **dict.fromkeys(("RUNNING", "EXITINGLRMS", "OTHER", "KILLING"), NativeState.RUNNING),
    **dict.fromkeys(("EXECUTED", "FINISHING", *ENDED_STATES), NativeState.RUNNING),
}
"""The meaning of each state in the batch system. The CE publishes them late: an ended job has not left it yet."""


class ArcJobState(NamedTuple):
    """The state of one job."""

    state: NativeState
    native: str
    reason: str = ""
    wait: WaitClass | None = None


class JobAnswer(NamedTuple):
    """The answer about one job, within the answer to a request about several."""

    id: str
    status: int
    reason: str
    state: str

    @property
    def is_missing(self) -> bool:
        """The CE does not have the job."""
        return self.status == 404


def text_of(element: ElementTree.Element, tag: str) -> str:
    """The text of a child in any namespace; empty: there is none."""
    return (element.findtext(f"{{*}}{tag}") or "").strip()


def read_versions(text: str) -> list[str]:
    """The versions of the interface."""
    versions = [(version.text or "").strip() for version in _root(text, "versions").iter("version")]
    if not versions:
        raise UnreadableOutput("the CE names no version of its interface")
    return versions


def read_states(text: str) -> dict[str, str]:
    """The jobs of a listing, each with its state; "" where the listing has none."""
    states: dict[str, str] = {}
    for job in _root(text, "jobs").iter("job"):
        id_ = text_of(job, "id")
        if not is_job_id(id_):
            raise UnreadableOutput(f"a job of the listing has no id: {id_[:100]!r}")
        states[id_] = text_of(job, "state")
        if len(states) > MOST_JOBS:
            raise UnreadableOutput(f"the listing has more than {MOST_JOBS} jobs")
    return states


def is_job_id(text: str) -> bool:
    """Whether a text can be the id of a job. It becomes a part of addresses."""
    return re.fullmatch("[A-Za-z0-9_-]{1,200}", text) is not None


def read_answers(text: str) -> list[JobAnswer]:
    """The answers about single jobs, in their order. A mistake with one job stands among them."""
    return [_answer(job) for job in _root(text, "jobs").iter("job")]


def _answer(job: ElementTree.Element) -> JobAnswer:
    status = text_of(job, "status-code")
    if not re.fullmatch("[0-9]{3}", status):
        raise UnreadableOutput(f"an answer about a job has no status: {status[:100]!r}")
    return JobAnswer(text_of(job, "id"), int(status), text_of(job, "reason"), text_of(job, "state"))


def read_names(text: str) -> dict[str, str]:
    """The names of jobs by id, of an answer with their GLUE2 documents. Jobs without a name yet are left out."""
    names: dict[str, str] = {}
    for job in _root(text, "jobs").iter("job"):
        activity = next(job.iter(f"{GLUE2}ComputingActivity"), None)
        if activity is not None and (name := text_of(activity, "Name")):
            names[text_of(job, "id")] = name
    return names


GLUE2 = "{http://schemas.ogf.org/glue/2009/03/spec_2.0_r1}"
"""The namespace of GLUE2 documents."""


def read_local_name(text: str) -> str:
    """The name in the control file of a job, which has it before its GLUE2 document does."""
    lines = (line.partition("=") for line in text.splitlines())
    return next((value for key, _, value in lines if key == "jobname"), "")


def read_annotation(text: str) -> str:
    """The annotation in a job description."""
    return (read_xml(text).findtext(".//{*}Annotation") or "").strip()


def judge_state(state: str, detail: str) -> ArcJobState:
    """The meaning of a job's state. `detail`: its state in the batch system, "" where not known."""
    if state == IN_BATCH_SYSTEM:
        if detail == "HELD":
            return ArcJobState(NativeState.WAITING, detail, "held in the batch system", WaitClass.USER)
        native = _DETAILS.get(detail, NativeState.WAITING)
        name = detail if detail in ("QUEUING", *_DETAILS) else "INLRMS"
        return ArcJobState(native, name, wait=_wait(native, WaitClass.TRANSIENT))
    native = _STATES.get(state, NativeState.UNKNOWN)
    wait = WaitClass.STAGING if state in ("PREPARING", "PREPARED") else WaitClass.TRANSIENT
    return ArcJobState(native, state, wait=_wait(native, wait))


def _wait(state: NativeState, wait: WaitClass) -> WaitClass | None:
    return wait if state is NativeState.WAITING else None


def _root(text: str, tag: str) -> ElementTree.Element:
    root = read_xml(text)
    if root.tag != tag:
        raise UnreadableOutput(f"the answer is <{root.tag[:100]}>, not <{tag}>")
    return root


def write_ids(ids: Iterable[str]) -> str:
    """The body of a request about several jobs."""
    return f"<jobs>{''.join(f'<job><id>{id_}</id></job>' for id_ in ids)}</jobs>"
