"""The jobs of one identity at an ARC CE, with the names that tell whose pilots they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from pilotage.core.pilots.waits import WaitClass
from pilotage.outside.batch.adapter import split_stamp
from pilotage.outside.batch.arc import answers
from pilotage.outside.batch.arc.answers import ArcJobState
from pilotage.outside.batch.arc.description import SCRIPT
from pilotage.outside.batch.arc.rest import ArcClient, RefusedCall
from pilotage.outside.batch.submission import STAMP_PREFIX, ListedTask, in_short

NO_SCRIPT = "its script was never uploaded"


@dataclass(frozen=True, slots=True)
class ArcJob:
    """One job of a listing."""

    id: str
    stamp: str
    """The job's name without the index."""
    index: int | None
    state: str
    """The state in the CE's own records, without delay. In the batch system behind it a job may wait or run."""


class ArcJobs:
    """Lists jobs. It remembers names and uploads, as an id is never used again; all else is read from the CE."""

    def __init__(self, client: ArcClient) -> None:
        self._client = client
        self._names: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        """Why jobs have failed, by id."""
        self._whole = set[str]()
        """The ids of jobs that have their scripts and may not have begun."""

    def upload(self, id_: str, script: bytes) -> None:
        """Give a job its script, which lets it start."""
        self._client.put(_script_of(id_), script)
        self._whole.add(id_)

    def list(self, stamps: Collection[str] | None = None) -> list[ArcJob]:
        """The jobs with these stamps; None: all."""
        states = self._states()
        self._learn_names(states)
        self._whole -= {id_ for id_, state in states.items() if state and state not in answers.BEFORE_INPUT}
        jobs = []
        for id_, state in states.items():
            stamp, index = split_stamp(self._names.get(id_, ""))
            if stamps is None or stamp in stamps:
                jobs.append(ArcJob(id_, stamp, index, state))
        return jobs

    def _states(self) -> dict[str, str]:
        """The state of each job; "" where it is none of the known ones."""
        known = ",".join(answers.ALL_STATES)
        states = answers.read_states(self._client.get(f"jobs?state={known}"))
        everything = answers.read_states(self._client.get("jobs"))
        return {**everything, **{id_: state for id_, state in states.items() if id_ in everything}}

    def _learn_names(self, listed: Mapping[str, str]) -> None:
        names = {id_: name for id_, name in self._names.items() if id_ in listed}
        unnamed = [id_ for id_ in listed if id_ not in names]
        for text in self._client.post_ids("info", unnamed):
            names |= answers.read_names(text)
        for id_ in unnamed:
            if id_ not in names and (name := answers.read_local_name(self._file(f"{id_}/diagnose/local"))):
                names[id_] = name
        self._names = names

    def tasks(self, jobs: Sequence[ArcJob]) -> Iterator[ListedTask]:
        """The jobs as batch jobs of a listing, pilots with their state in the batch system behind the CE."""
        pilots = [job for job in jobs if job.stamp.startswith(STAMP_PREFIX)]
        queued = [job.id for job in pilots if job.state == answers.IN_BATCH_SYSTEM]
        details = {answer.id: answer.state for answer in self._client.act("status", queued)}
        failed = {job.id for job in pilots if job.state == "FAILED"}
        reasons = {id_: reason for id_, reason in self._reasons.items() if id_ in failed}
        for id_ in failed - reasons.keys():
            reasons[id_] = in_short(self._file(f"{id_}/diagnose/failed"))
        self._reasons = reasons
        scriptless = self._without_scripts(pilots)
        for job in jobs:
            state = answers.judge_state(job.state, details.get(job.id, ""))
            if job.id in scriptless:
                state = ArcJobState(state.state, state.native, NO_SCRIPT, WaitClass.IMPOSSIBLE)
            reason = state.reason or reasons.get(job.id, "")
            yield ListedTask(
                job.stamp, job.index, job.id, state.state, state.native, reason, "", wait=state.wait
            )

    def _without_scripts(self, pilots: Sequence[ArcJob]) -> set[str]:
        """The ids of pilots that wait for scripts which nobody uploads: the server did not get their ids.

        The CE would keep them for ten minutes. A server that has been started again asks once about each.
        """
        waiting = {job.id for job in pilots if job.state in answers.BEFORE_INPUT}
        sizes = {id_: self._client.file_size(_script_of(id_)) for id_ in waiting - self._whole}
        self._whole |= {id_ for id_, size in sizes.items() if size}
        return {id_ for id_, size in sizes.items() if size == 0}

    def annotation(self, id_: str) -> str:
        """The annotation in the description of a job; empty: it has none, or is gone."""
        description = self._file(f"{id_}/diagnose/description")
        return answers.read_annotation(description) if description else ""

    def _file(self, path: str) -> str:
        """A file of a job; empty: the job or the file is gone."""
        try:
            return self._client.get(f"jobs/{path}")
        except RefusedCall as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return ""
            raise


def _script_of(id_: str) -> str:
    return f"jobs/{id_}/session/{SCRIPT}"
