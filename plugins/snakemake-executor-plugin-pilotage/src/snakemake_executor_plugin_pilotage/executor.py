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

from pilotage.cli.export_option import parse_export
from pilotage.client import Client, Selection
from pilotage.client.polling import FINAL_STATES
from pilotage.core.errors import PilotageError
from pilotage.core.jobs.states import FINAL, JobState
from snakemake_executor_plugin_pilotage.descriptions import label_of, name_of, requests_of
from snakemake_executor_plugin_pilotage.error_text import line_of_error
from snakemake_executor_plugin_pilotage.job_ends import JobEnds
from snakemake_executor_plugin_pilotage.settings import SOFTWARE

LONGEST_SLEEP = 60.0
"""Seconds between two looks at the jobs if none ends."""
CONNECT_PATIENCE = 10.0
UNFINISHED = [str(state) for state in JobState if state not in FINAL]


class Executor(RemoteExecutor):
    """One job of Pilotage for each job or group of a workflow.

    While the server is away, submissions wait for it, and running jobs go on.
    """

    def __post_init__(self) -> None:
        """Connect to the server, and find the jobs that an earlier process has left for this folder."""
        settings = self.workflow.executor_settings
        self._shared = self.workflow.storage_settings.assume_common_workdir
        self._folder = os.getcwd()  # of --directory; workdir_init is where Snakemake was started
        self._label = label_of(f"snakemake {self._folder}")
        try:
            self._environment = self._exported(settings.export) | self.envvars()
            self._client = Client.connect(
                home=settings.home,
                server=settings.server,
                patience=math.inf,
                connect_patience=CONNECT_PATIENCE,
                on_outage=self._tell_outage,
            )
            self._ends = JobEnds(self._client, self._tell_outage)
            self._ends.start()
            left = self._client.jobs(Selection(job_group=self._label, states=UNFINISHED))
            self._left = {job.name: job.id for job in left}
        except PilotageError as trouble:
            raise _workflow_error(trouble) from trouble

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job, or go on with the job that an earlier process has submitted for the same outputs."""
        found = SubmittedJobInfo(job)
        try:
            with self._ends.submission():
                state = self._resume(found) or self._submit(found)
                self.report_job_submission(found)
                self._ends.watch(int(found.external_jobid or 0), state)
        except PilotageError as trouble:
            self.report_job_error(found, msg=str(_workflow_error(trouble)) + " ")

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended, and yield the others."""
        for info in active_jobs:
            state = self._ends.take(int(info.external_jobid or 0))
            if not state:
                yield info
            elif state == JobState.DONE:
                self.report_job_success(info)
            else:
                self._report_failure(info, state)

    async def sleep(self) -> None:
        """Wait for the end of a job: nothing is polled, and nothing else runs in this loop."""
        self._ends.wait(LONGEST_SLEEP)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Kill all jobs that have not ended, also those that are looked at just now and so not in the list."""
        unfinished = self._ends.unfinished()
        if not unfinished:
            return
        try:
            self._client.kill(unfinished, reason="Snakemake was cancelled")
        except PilotageError as trouble:
            self.logger.warning(f"the jobs of Pilotage could not be killed: {trouble}")

    def shutdown(self) -> None:
        """End the threads."""
        self._ends.close()
        super().shutdown()

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
        return ""

    def _describe(self, job: JobExecutorInterface) -> dict[str, Any]:
        script = Path(self.get_jobscript(job))
        self.write_jobscript(job, script)
        place = {
            "executable": "/bin/sh",
            "arguments": ["-c", 'cd "$1" && exec "$2"', "sh", self._folder, str(script)],
        }
        sent = {"executable": f"./{script.name}", "input_sandbox": [script.name]}
        return {
            **requests_of(job.threads, job.resources),
            **(place if self._shared else sent),
            "environment": self._environment,
            "job_name": name_of(job),
            "job_group": self._label,
        }

    def _exported(self, words: str | None) -> dict[str, str]:
        if words is None and not self._shared:
            return {}
        variables, unset = parse_export(SOFTWARE if words is None else words, os.environ)
        if unset and words is not None:
            self.logger.warning(f"not set, so not given to jobs: {', '.join(unset)}")
        return variables

    def _report_failure(self, info: SubmittedJobInfo, state: str) -> None:
        """Tell why a job has failed, with the last line of its command, and keep all of it in a file."""
        number = int(info.external_jobid or 0)
        message, logs = f"Job {number} of Pilotage is {state}", []
        try:
            job = self._client.job(number).job
            message += f": {job.reason}" if job.reason else ""
            message += f" on {job.hostname} at site {job.site}" if job.hostname else ""
            errors = self._client.log(number, stream="stderr").data
            if errors.strip():
                log = self.workflow.persistence.path / "pilotage_logs" / f"{number}.stderr"
                log.parent.mkdir(exist_ok=True)
                log.write_bytes(errors)
                logs.append(str(log))
                message += f": {line_of_error(errors.decode(errors='replace'))}"
        except (PilotageError, OSError) as trouble:
            message += f" (its output could not be read: {trouble})"
        self.report_job_error(info, msg=message + ". ", aux_logs=logs)

    def _tell_outage(self, outage: PilotageError) -> None:
        self.logger.warning(f"{outage.message}; running jobs go on, and Snakemake waits for the server")


def _workflow_error(trouble: PilotageError) -> WorkflowError:
    return WorkflowError(trouble.message + (f" ({trouble.hint})" if trouble.hint else ""))
