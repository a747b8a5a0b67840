"""A real server with a home of its own, for acceptance and fault tests. Ends all that it has started."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import psycopg
import pytest

import pilotage
from pilotage.client import Client
from pilotage.outside.batch.local import LocalBatch
from pilotage.outside.batch.submission import NativeState
from pilotage.wire.jobs import JobSummary
from pilotage.wire.pool import PilotSummary
from tests import failure_reports, forked, writer_guard
from tests.deadlines import PATIENCE
from tests.forked import ForkedProcess
from tests.namespaces import Namespace
from tests.ports import free_port

Found = TypeVar("Found")

POLICY = """\
[groups.home]
properties = ["NORMAL_USER", "ADMINISTRATOR"]
[groups.others]
[users.{owner}]
groups = ["home"]
[users.alice]
groups = ["others"]
[users.bob]
groups = ["others"]
[sites.here]
[ces.local]
site = "here"
owners = "{owners}"
processors = {processors}
memory = 8000
heartbeat = {heartbeat}
lease = {lease}
idle = {idle}
[jobs]
retry_delay = 0.2
max_reschedules = 3
"""


def until(find: Callable[[], Found | None], within: float = PATIENCE, what: str = "it") -> Found:
    """Wait for an event; the deadline is for failures only. Looks grow rarer with the wait: each costs a request."""
    begun = time.monotonic()
    while True:
        found = find()
        if found:
            return found
        waited = time.monotonic() - begun
        if waited > within:
            raise AssertionError(f"{what} did not happen within {within} s")
        time.sleep(min(0.25, 0.01 + waited / 10))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Instance:
    """One home and its server."""

    def __init__(self, folder: Path, user: int | None = None, database_url: str = "", **policy: Any) -> None:
        """`user`: run the server under this account (needs root). `database_url`: on PostgreSQL."""
        self.database_url = database_url
        self.user = user
        self.home = folder / "home"
        self.policy = POLICY.format(
            **{"owner": _account(user), "owners": "home", "processors": 2, "heartbeat": 0.5}
            | {"lease": 60, "idle": 2, **policy}
        )
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._clients: dict[str, Client] = {}
        self.environment: dict[str, str] = {}
        """Variables of the server beside those of the tests."""
        self.port = free_port()
        guarded = str(Path(writer_guard.__file__).resolve())
        self.program: tuple[str, ...] = ("-m", "pilotage.main") if user is not None else (guarded,)
        """What the interpreter runs as the server. With the guard, another user could not read the file."""
        self.network: Namespace | None = None
        """Where server and command line run; None: in the network of this process."""
        self.forked = user is None
        """Whether server and commands are forks of a process that has imported Pilotage: they start much faster."""
        failure_reports.watch(self)

    def start(self, *options: str, wait: bool = True) -> None:
        """Start the server and wait until it is ready."""
        self.home.mkdir(exist_ok=True, mode=0o700)
        if self.user is not None:
            os.chown(self.home, self.user, self.user)
        python, environment = (sys.executable, None) if self.user is None else python_for(self.user)
        words = [*self.program, "up", "--home", str(self.home), "--port", str(self.port), *options]
        environment = {**(environment or os.environ), **self.environment}
        if self.database_url:
            environment["PILOTAGE_DATABASE_URL"] = self.database_url
        with (self.home / "test.log").open("ab") as log, open(os.devnull, "rb") as nothing:
            if self._can_fork(environment):
                self.process = ForkedProcess(
                    words,
                    environment=environment,
                    folder="/",
                    stdin=nothing.fileno(),
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                    network=self.network,
                )
            else:
                self.process = subprocess.Popen(
                    [*self._prefix, python, *words],
                    stdout=log,
                    stderr=log,
                    stdin=nothing,
                    env=environment,
                    cwd="/",
                    user=self.user,
                    group=self.user,
                    extra_groups=None if self.user is None else [],
                )
        if wait:
            self.started()

    def _can_fork(self, environment: dict[str, str]) -> bool:
        return self.forked and forked.can_fork(environment)

    @property
    def _prefix(self) -> tuple[str, ...]:
        return () if self.network is None else self.network.prefix

    def started(self) -> None:
        """Wait until the server is ready."""
        until(self._ready, what="the server's start")

    def _ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended: {self.log()}")
        facts = self.home / "server.json"
        return facts.exists() and json.loads(facts.read_text())["pid"] == self.process.pid

    def log(self) -> str:
        return (self.home / "test.log").read_text()

    def apply(self) -> None:
        self.client().apply_policy(self.policy)

    def client(self, user: str = "") -> Client:
        """A client of the home's owner, or of another user with a new token."""
        if user not in self._clients:
            token = (
                self.client().create_token(user).token if user else (self.home / "token").read_text().strip()
            )
            self._clients[user] = Client(self.url, token)
        return self._clients[user]

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    def cli(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.cli_with_input(subprocess.DEVNULL, *words, **more)

    def cli_with_input(
        self, given: IO[str] | int, *words: str, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PILOTAGE_HOME": str(self.home), "COLUMNS": "200"}
        if self.database_url:
            environment["PILOTAGE_DATABASE_URL"] = self.database_url
        program = ["-m", "pilotage.main", *words]
        if more.keys() <= {"cwd"} and self._can_fork(environment):
            return forked.run(
                program,
                environment=environment,
                folder=more.get("cwd"),
                stdin=given,
                timeout=PATIENCE,
                network=self.network,
            )
        return subprocess.run(
            [*self._prefix, sys.executable, *program],
            env=environment,
            text=True,
            capture_output=True,
            stdin=given,
            **{"timeout": PATIENCE, **more},
        )

    def kill_server(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop_server(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0
        assert writer_guard.VIOLATION not in self.log()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The server does nothing meanwhile."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def job(self, job: int) -> JobSummary:
        return self.client().job(job).job

    def reaches(self, job: int, *states: str, within: float = PATIENCE) -> JobSummary:
        """Wait for a job to be in one of `states`."""

        def look() -> JobSummary | None:
            summary = self.job(job)
            return summary if summary.state in states else None

        return until(look, within, f"job {job} in {states}")

    def pilot_of(self, job: int) -> PilotSummary:
        """The pilot that runs a job. Others may live beside it: the director submits before a pilot has the job."""
        client = self.client()
        number = until(lambda: client.job(job).job.pilot, what=f"a pilot of job {job}")
        return client.pilot(number).pilot

    def pilot_pids(self) -> list[int]:
        """The processes of the local pilots that the server has started: their guardians."""
        batch_ids = [pilot.batch_id for pilot in self.client().pilots()]
        pids = [int(batch_id.partition(":")[0]) for batch_id in batch_ids if ":" in batch_id]
        return [pid for pid in pids if alive(pid)]

    def events(self, job: int) -> list[str]:
        return [event.kind for event in self.client().events(job)]

    def close(self) -> None:
        """End the server, then every pilot that it has started, and what they have left.

        A pilot that is asked to leave would try for seconds to tell the server. So it is killed, and its guardian
        cleans up.
        """
        failure_reports.unwatch(self)
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        pids = [pid for pid in self._pilots_in_store() if alive(pid)]
        for pid in pids:
            with suppress(ProcessLookupError, FileNotFoundError):
                os.kill(pid, signal.SIGCONT)
                for pilot in children(pid):
                    os.kill(pilot, signal.SIGKILL)
                os.kill(pid, signal.SIGTERM)  # for one that is just starting
        for pid in pids:
            until(lambda pid=pid: not alive(pid), what=f"the end of pilot {pid}")
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _pilots_in_store(self) -> list[int]:
        """Asked of the database: the server has ended. Only processes that are still the same ones count."""
        sql = "SELECT stamp, batch_id FROM pilots"
        rows: list[Any] = []
        if self.database_url:
            with psycopg.connect(self.database_url) as session:
                rows = session.execute(sql).fetchall()
        for database in (self.home / "pilotage.db", *self.home.parent.glob("*/pool.db")):
            if database.exists() and not rows:
                with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
                    rows = connection.execute(sql).fetchall()
        batch = LocalBatch({}, self.home / "pilots", host=socket.gethostname())
        # Ids of batch systems have an underscore, which int() would skip.
        local = {stamp: batch_id for stamp, batch_id in rows if "_" not in batch_id}
        tasks = batch.status(local).tasks
        running = [task for task in tasks if task.state is NativeState.RUNNING and task.batch_id]
        return [int(task.batch_id.partition(":")[0]) for task in running]


def python_for(user: int) -> tuple[str, dict[str, str]]:
    """An interpreter that an unprivileged account can run with our libraries, and its environment."""
    libraries = [str(Path(pilotage.__file__).parents[1]), sysconfig.get_path("purelib")]
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "PYTHONPATH": ":".join(libraries),
    }
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            found = subprocess.run(
                [python, "-c", "import pilotage.server.process.run"],
                env=environment,
                cwd="/",
                user=user,
                group=user,
                extra_groups=[],
                capture_output=True,
                timeout=PATIENCE,
            )
        except OSError:
            continue
        if found.returncode == 0:
            return python, environment
    pytest.skip("no Python with our libraries that an unprivileged account can run")


def _account(user: int | None) -> str:
    return pwd.getpwuid(os.getuid() if user is None else user).pw_name


@contextmanager
def running(folder: Path, **policy: Any) -> Iterator[Instance]:
    """A server with the tests' policy: short heartbeats, small machine."""
    with started(Instance(folder, **policy)) as instance:
        yield instance


@contextmanager
def started(instance: Instance) -> Iterator[Instance]:
    """The server runs, with its policy."""
    try:
        instance.start()
        instance.apply()
        yield instance
    finally:
        instance.close()


def held_job(gate: Path) -> dict[str, Any]:
    """A job that runs until the file is there: a test meets it while it runs, however late it looks."""
    return {"executable": "sh", "arguments": ["-c", f"until [ -e {gate} ]; do sleep 0.1; done"]}


def output_of(instance: Instance, *words: str) -> str:
    """What a command prints that succeeds."""
    done = instance.cli(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answer_of(instance: Instance, *words: str) -> Any:
    """The JSON document of a command."""
    return json.loads(output_of(instance, *words, "--json"))


def processes_with(**variables: str) -> list[int]:
    """The processes that have these environment variables, such as those of a batch job."""
    words = {f"{name}={value}".encode() for name, value in variables.items()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if words <= set((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
    return found


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    for folder in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in folder.read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found
