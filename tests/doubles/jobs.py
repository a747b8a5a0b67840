"""The jobs of a double: a file under a lock, and the processes of the jobs that run.

This module is run without packages, as `python -I COMMANDS.py`: it imports the standard library alone.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

Job = dict[str, Any]
Task = dict[str, Any]

SLOTS = 16
GRACE = 5.0
"""Seconds from the polite signal of a cancellation to SIGKILL."""

_WRAPPER = """\
trap : TERM INT USR2
/bin/sh "$1" </dev/null >>"$2" 2>&1
echo "$?" >"$3.new"
mv "$3.new" "$3"
"""


class Cluster:
    """The state of one double, while its lock is held."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {"next": 1, "jobs": {}, "started": 1}
        if self._file.exists():
            self.state = json.loads(self._file.read_text())

    @property
    def _file(self) -> pathlib.Path:
        return self.folder / "state.json"

    @property
    def jobs(self) -> dict[str, Job]:
        jobs: dict[str, Job] = self.state["jobs"]
        return jobs

    def save(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self.state))
        new.replace(self._file)

    def add(self, job: Job, indexes: list[int] | None, script: str) -> str:
        """Take a job; its number. `indexes`: of an array."""
        number = str(self.state["next"])
        self.state["next"] += 1
        spool = self.folder / "spool" / number
        spool.mkdir(parents=True)
        (spool / "script").write_text(script)
        (spool / "script").chmod(0o700)
        names = [""] if indexes is None else [str(index) for index in indexes]
        tasks = {name: {"state": "waiting"} for name in names}
        self.jobs[number] = {**job, "number": number, "tasks": tasks, "submitted": time.time()}
        return number

    def look(self) -> None:
        """See which tasks have ended, and start those that may run."""
        used = 0
        for number, job in self.jobs.items():
            for name, task in job["tasks"].items():
                if task["state"] == "running":
                    self._look_at(number, name, task)
                    used += job["slots"] if task["state"] == "running" else 0
        for number, job in self.jobs.items():
            for name, task in job["tasks"].items():
                if task["state"] == "waiting" and not job["hold"] and used + job["slots"] <= SLOTS:
                    self._start(number, name, job, task)
                    used += job["slots"]

    def _look_at(self, number: str, name: str, task: Task) -> None:
        ending = self.folder / "spool" / number / f"exit{name}"
        if ending.exists():
            end_task(task, int(ending.read_text()))
        elif not is_alive(task["pid"]):
            end_task(task, 256 + signal.SIGKILL)
        elif "deleted" in task and time.time() > task["deleted"] + GRACE:
            signal_group(task["pid"], signal.SIGKILL)

    def _start(self, number: str, name: str, job: Job, task: Task) -> None:
        spool = self.folder / "spool" / number
        environment = {**job["environment"], **job["variables"]}
        environment |= {key: value.replace("{index}", name) for key, value in job["job_variables"].items()}
        # The variable of an index is only set for jobs of arrays.
        environment = {key: value for key, value in environment.items() if value}
        words = [str(spool / "script"), str(spool / f"output{name}"), str(spool / f"exit{name}")]
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WRAPPER, "job", *words],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        task.update(state="running", pid=process.pid, begun=time.time(), starts=task.get("starts", 0) + 1)

    def delete(self, task: Task, farewell: signal.Signals = signal.SIGTERM) -> None:
        """Cancel a task: one that runs is asked to leave first."""
        if task["state"] == "running":
            if "deleted" not in task:
                task["deleted"] = time.time()
                signal_group(task["pid"], farewell)
        elif task["state"] == "waiting":
            task.update(state="ended", deleted=time.time())


def end_task(task: Task, status: int) -> None:
    task.update(state="ended", status=status, over=time.time())


def is_alive(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[Cluster]:
    """The cluster with a fresh look at its tasks. Changes are kept."""
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cluster = Cluster(folder)
        cluster.look()
        try:
            yield cluster
        finally:
            cluster.look()
            cluster.save()


def fail_as_told(folder: pathlib.Path, command: str) -> dict[str, Any]:
    """Do what a test has ordered for this command, by the file faults.json; the order for its output.

    {"qstat": {"silent": true}}, {"qsub": {"errors": TEXT, "status": 1, "after": true}}, {"qstat": {"cut": 100}}.
    `after`: the command has done its work before it fails.
    """
    file = folder / "faults.json"
    orders = json.loads(file.read_text()) if file.exists() else {}
    order: dict[str, Any] = orders.get(command) or orders.get("*") or {}
    if order.get("silent"):
        signal.pause()
    if "errors" in order and not order.get("after"):
        sys.stderr.write(order["errors"])
        raise SystemExit(order.get("status", 1))
    return order


def answer(order: dict[str, Any], output: str, errors: str = "", status: int = 0) -> None:
    """Print an answer as a test has ordered it, and end."""
    if "cut" in order:
        output = output[: order["cut"]]
    if "replace" in order:
        before, after = order["replace"]
        output = output.replace(before, after)
    if order.get("after"):
        output, errors, status = "", order["errors"], order.get("status", 1)
        if order.get("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(output)
    sys.stderr.write(errors)
    sys.stdout.flush()
    raise SystemExit(status)
