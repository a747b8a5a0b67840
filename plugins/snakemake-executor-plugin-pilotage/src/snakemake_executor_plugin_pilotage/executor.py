"""The executor: submits the jobs of a workflow, and hears of their ends by the change feed."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface
from snakemake_interface_executor_plugins.workflow import WorkflowExecutorInterface

from pilotage.cli.export_option import parse_export
from pilotage.client import Client, Selection
from pilotage.client.in_place import folder_fields
from pilotage.client.polling import FINAL_STATES
from pilotage.core.errors import NotFound, PilotageError
from pilotage.core.jobs.states import FINAL, JobState
from snakemake_executor_plugin_pilotage.descriptions import label_of, name_of, requests_of
from snakemake_executor_plugin_pilotage.error_text import line_of_error
from snakemake_executor_plugin_pilotage.job_ends import JobEnds
from snakemake_executor_plugin_pilotage.settings import SOFTWARE

LOGS = "pilotage_logs"
"""The folder in .snakemake with the output of jobs that have not ended well."""
BRIEFLY = 10.0
"""Seconds for which a server that does not answer is asked again, where Snakemake must not wait for ever."""
UNFINISHED = [str(state) for state in JobState if state not in FINAL]


class Executor(RemoteExecutor):
    """One job of Pilotage for each job or group of a workflow.

    While the server is away, submissions wait for it, and running jobs go on.
    """

    def __init__(self, workflow: WorkflowExecutorInterface, logger: LoggerExecutorInterface) -> None:
        # RemoteExecutor starts the thread that calls `sleep` before it calls `__post_init__`.
        self._ends = JobEnds()
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        """Connect to the server, and find the jobs that an earlier process has left for this folder."""
        self._in_place = self.workflow.storage_settings.assume_common_workdir
        self._label = label_of(f"snakemake {os.getcwd()}")  # it is the folder of --directory
        self._told: set[str] = set()
        try:
            self._environment = self._exported(self.workflow.executor_settings.export) | self.envvars()
            self._client, self._brief_client = self._connect(math.inf), self._connect(BRIEFLY)
            self._owner = self._client.whoami().user
            self._ends.listen(self._brief_client, self._owner, self)
            self._left = {job.name: job.id for job in self._client.jobs(self._unfinished())}
        except PilotageError as trouble:
            self.shutdown()
            raise WorkflowError(_text_of(trouble)) from trouble
        (self.workflow.persistence.path / LOGS).mkdir(exist_ok=True)

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job, or go on with the job that an earlier process has submitted for the same outputs."""
        found = SubmittedJobInfo(job)
        try:
            with self._ends.submission():
                state = self._resume(found) or self._submit(found)
                self.report_job_submission(found)
                self._ends.watch(int(found.external_jobid or 0), state)
        except PilotageError as trouble:
            self.report_job_error(found, msg=f"{_text_of(trouble)}. ")

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended, and yield the others."""
        self._ends.check()
        for info in active_jobs:
            state = self._ends.take(int(info.external_jobid or 0))
            if not state:
                yield info
            elif state == JobState.DONE:
                self._log(info).unlink(missing_ok=True)
                self.report_job_success(info)
            else:
                self._report_failure(info, state)

    async def sleep(self) -> None:
        """Wait for the end of a job: nothing is polled, and nothing else runs in this loop."""
        self._ends.wait()

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Kill all jobs of the workflow, also one whose submission was interrupted."""
        try:
            self._brief_client.kill(self._unfinished(), reason="Snakemake was cancelled")
        except NotFound:
            pass  # all have ended
        except PilotageError as trouble:
            self.logger.warning(f"the jobs of Pilotage could not be killed, and go on: {_text_of(trouble)}")

    def shutdown(self) -> None:
        """End the threads."""
        self._ends.close()
        super().shutdown()

    def server_is_away(self, trouble: PilotageError) -> None:
        self.logger.warning(f"{trouble.message}; running jobs go on, and Snakemake waits for the server")

    def server_is_back(self) -> None:
        self.logger.warning("the server of Pilotage answers again")

    def _connect(self, patience: float) -> Client:
        settings = self.workflow.executor_settings
        return Client.connect(
            home=settings.home,
            server=settings.server or os.environ.get("PILOTAGE_SERVER"),
            token_file=os.environ.get("PILOTAGE_TOKEN_FILE"),
            patience=patience,
            connect_patience=BRIEFLY,
        )

    def _unfinished(self) -> Selection:
        """The jobs of this folder that have not ended. Snakemake's lock keeps other workflows out of it."""
        return Selection(job_group=self._label, owner=self._owner, states=UNFINISHED)

    def _resume(self, info: SubmittedJobInfo) -> str:
        """The state of the job that an earlier process has left for the same outputs; "": there is none to go on with.

        Two jobs must not write the same files. Snakemake loses the ids of started jobs.
        """
        left = self._left.pop(name_of(info.job), 0)
        if not left:
            return ""
        state = self._client.job(left).job.state
        if state in FINAL_STATES and state != JobState.DONE:
            return ""
        info.external_jobid = str(left)
        self.logger.info(f"Job {info.job.jobid} goes on as job {left} of Pilotage.")
        return state

    def _submit(self, info: SubmittedJobInfo) -> str:
        answer = self._client.submit(
            self._describe(info.job),
            folder=self.tmpdir,
            group=self.workflow.executor_settings.group or "",
        )
        info.external_jobid = str(answer.first)
        self.logger.info(f"Submitted job {info.job.jobid} as job {answer.first} of Pilotage.")
        for warning in answer.warnings:
            if warning not in self._told:
                self.logger.warning(f"Job {answer.first} of Pilotage: {warning}")
        self._told.update(answer.warnings)
        return ""

    def _describe(self, job: JobExecutorInterface) -> dict[str, Any]:
        script = Path(self.get_jobscript(job))
        self.write_jobscript(job, script)
        place: dict[str, Any] = {"executable": f"./{script.name}", "input_sandbox": [script.name]}
        if self._in_place:
            place = {"executable": str(script), "stdout_file": f".snakemake/{LOGS}/%j.log", **folder_fields()}
        return {
            **requests_of(job.threads, job.resources),
            **place,
            "environment": self._environment,
            "job_name": name_of(job),
            "job_group": self._label,
        }

    def _exported(self, words: str | None) -> dict[str, str]:
        if words is None and not self._in_place:
            return {}
        variables, unset = parse_export(SOFTWARE if words is None else words, os.environ)
        if unset and words is not None:
            self.logger.warning(f"not set, so not given to jobs: {', '.join(unset)}")
        return variables

    def _log(self, info: SubmittedJobInfo) -> Path:
        path: Path = self.workflow.persistence.path / LOGS / f"{info.external_jobid}.log"
        return path

    def _report_failure(self, info: SubmittedJobInfo, state: str) -> None:
        """Tell why a job has failed, with the last line of its command, and the file with all of them."""
        number, log = int(info.external_jobid or 0), self._log(info)
        message, logs = f"Job {number} of Pilotage is {state}", []
        try:
            job = self._brief_client.job(number).job
            message += f": {job.reason}" if job.reason else ""
            message += f" on {job.hostname} at site {job.site}" if job.hostname else ""
            if not log.exists():
                log.write_bytes(
                    b"".join(piece.data for piece in self._brief_client.logs(number, stream="stderr"))
                )
            line = line_of_error(log.read_text(errors="replace"))
            message += f": {line.rstrip('.')}" if line else ""
            logs.append(str(log))
        except (PilotageError, OSError) as trouble:
            message += f" (its output could not be read: {trouble})"
        self.report_job_error(info, msg=message + ". ", aux_logs=logs)


def _text_of(trouble: PilotageError) -> str:
    return trouble.message + (f" ({trouble.hint})" if trouble.hint else "")
