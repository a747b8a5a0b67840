"""The faults that every batch system has: of its commands, of its daemon, and of the server between two steps.

A module of a system has its shape, its fixtures and a class that inherits `BatchFaults`. A fault is a file with the
name of a call. The call takes it once, or each time until it is cleared. Where a batch system has commands, the
server finds wrappers of them first on its PATH. `arc_relay` makes the faults of a system that is called over HTTPS.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count as count_up
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pytest

from pilotage.core.jobs.states import FINAL, JobState
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.instance import Instance, held_job, started, until

WRAPPER = """\
#!/bin/sh
# usage: the command's own. The fault is taken from a file: once, or each time if it begins with always-.
FAULTS={faults}
name=${{0##*/}}
real=$(PATH={path} command -v "$name")
{renamed}
fault=
if [ -e "$FAULTS/$name" ]; then fault=$(cat "$FAULTS/$name"); fi
case $fault in
  "") exec "$real" "$@" ;;
  always-*) fault=${{fault#always-}} ;;
  *) mv "$FAULTS/$name" "$FAULTS/$name.taken" 2>/dev/null || exec "$real" "$@" ;; # another call has taken it
esac
acted() {{ rm -f "$FAULTS/$name.taken"; }}
trap acted EXIT
case $fault in
  kill-server-before) acted; kill -9 $PPID; exit 1 ;;
  kill-server-after) "$real" "$@" >/dev/null; acted; kill -9 $PPID; exit 1 ;;
  kill-me-before) acted; kill -9 $$ ;;
  kill-me-after) "$real" "$@" >/dev/null; acted; kill -9 $$ ;;
  silent-after) "$real" "$@" >/dev/null; exit 0 ;;
  kill-daemon-after) "$real" "$@"; kill -9 "$(cat "$FAULTS/daemon")" ;;
  partial) "$real" "$@" | head -c {part} ;;
  empty) exit 0 ;;
  garbage) echo {garbage}; exit 0 ;;
  fail) echo {failure} >&2; exit 1 ;;
  {more}
  *) echo "no such fault: $fault" >&2; exit 1 ;;
esac
"""


class BatchDaemon(Protocol):
    """A real batch system of the tests."""

    environment: dict[str, str]

    def pid(self) -> int: ...
    def kill(self) -> None: ...

    def is_alive(self) -> bool: ...

    def cancel_all(self) -> None: ...
    def stopped(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """What differs between batch systems."""

    ce: str
    submit_call: str
    release_call: str
    """The call after which the pilots start."""
    listings: tuple[tuple[str, str], ...]
    """Calls that list, each with its faults, which three listings have in turns."""
    left: Callable[[Any], object]
    """The batch jobs of the system; nothing if there are none."""
    start: Callable[[Any], None]
    """Starts the daemon that was killed."""
    jobs: int = 8
    unclear: tuple[str, ...] = ("kill-me-before", "kill-me-after", "silent-after")
    """Faults of a submission without a clear answer."""
    mend: Callable[[Any], None] = lambda system: None
    """Undoes the changes of an administrator that a failed test may have left in the system."""

    def submit(self, instance: Instance, seconds: float = 0.2, count: int = 0) -> Selection:
        """So many jobs that sleep; 0: the number of the shape."""
        values = range(count or self.jobs)
        sent = instance.client().submit({"executable": "sleep", "arguments": [str(seconds)]}, values=values)
        return Selection(submission=sent.submission)

    def submit_held(
        self, instance: Instance, count: int, folder: Path | None = None
    ) -> tuple[Selection, Path]:
        """So many jobs that run until the file is there: a fault meets them while they run, however late it comes.

        `folder`: where jobs can see the file; by default the server's home.
        """
        gate = (folder or instance.home) / f"gate-{next(_numbers)}"
        client = instance.client()
        jobs = Selection(submission=client.submit(held_job(gate), values=range(count)).submission)
        until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
        return jobs, gate

    def running_pilot(self, instance: Instance, folder: Path) -> tuple[Selection, Path, str]:
        """A job that runs until the file is there, and the batch id of its pilot."""
        jobs, gate = self.submit_held(instance, 1, folder)
        [job] = instance.client().jobs(jobs)
        return jobs, gate, instance.pilot_of(job.id).batch_id

    def assert_all_done(
        self, instance: Instance, system: BatchDaemon, jobs: Selection, count: int = 0
    ) -> None:
        """Every job is done and was applied once; no pilot and no batch job is left.

        A pause of the CE is ended: that it ends by itself is tested elsewhere.
        """
        client, count = instance.client(), count or self.jobs

        def are_done() -> bool:
            if client.ce(self.ce).ce.state == "paused":
                client.enable_ce(self.ce)
            return client.counts(jobs).states.get("Done") == count

        until(are_done, what=f"the end of {count} jobs")
        until(lambda: not self.left(system), what="the end of all batch jobs")
        until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
        for job in client.jobs(jobs):
            assert instance.events(job.id).count("finished") == 1


@dataclass(frozen=True, kw_only=True)
class CommandShape(BatchShape):
    """A batch system whose commands have wrappers."""

    commands: tuple[str, ...]
    """All commands that have wrappers."""
    part: int
    """Bytes of an answer that was cut."""
    garbage: str
    failure: str
    renamed: str = ":"
    """A line of shell that gives one use of a command another name."""
    more: str = ""
    """Faults of this system only, as cases of the shell."""


LIVE_STATES = sorted(map(str, frozenset(JobState) - FINAL))
_numbers = count_up()
System = TypeVar("System", bound=BatchDaemon)


class Faulty(Generic[System]):
    """A batch system whose calls can be made to fail."""

    def __init__(self, system: System, shape: BatchShape, folder: Path) -> None:
        self.system, self.shape = system, shape
        self.environment = system.environment
        """For a server whose calls have the faults."""
        self._faults = folder / "faults"
        self._faults.mkdir()

    def clear(self) -> None:
        """Forget the faults that no call has had."""
        for fault in self._faults.iterdir():
            fault.unlink(missing_ok=True)

    def set(self, call: str, fault: str) -> Path:
        """The next `call` has this fault: `wait_for_use` of the path. always-FAULT: all calls have it."""
        (self._faults / "daemon").write_text(str(self.system.pid()))
        (self._faults / call).write_text(fault)
        return self._faults / call


class FaultyCommands(Faulty[System]):
    """Its commands can be made to fail."""

    def __init__(self, system: System, shape: CommandShape, folder: Path, *, path: str = "") -> None:
        """`path`: where the real commands are; empty: on the PATH of the system."""
        super().__init__(system, shape, folder)
        programs = folder / "programs"
        programs.mkdir()
        own = system.environment["PATH"]
        # The server hands only some variables down, so the wrappers have all in their text.
        text = WRAPPER.format(
            faults=self._faults,
            path=path or own,
            renamed=shape.renamed,
            part=shape.part,
            garbage=shlex.quote(shape.garbage),
            failure=shlex.quote(shape.failure),
            more=shape.more,
        )
        for name in shape.commands:
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = {**system.environment, "PATH": f"{programs}:{own}"}


@contextmanager
def server_with(faulty: Faulty[System], folder: Path, ce: str) -> Iterator[Instance]:
    """A server whose only CE is `ce`."""
    instance = Instance(folder)
    begin, _, rest = instance.policy.partition("[ces.local]")
    instance.policy = begin + ce + "[jobs]" + rest.partition("[jobs]")[2]
    instance.environment = faulty.environment
    with started(instance):
        yield instance


def end_pause(server: Instance) -> None:
    """A change of the CE ends the pause that a test has caused."""
    old, new = ("lease = 60", "lease = 61") if "lease = 60" in server.policy else ("lease = 61", "lease = 60")
    server.policy = server.policy.replace(old, new)
    server.apply()


def wait_for_use(fault: Path) -> None:
    """Wait until a call has had the fault, and the real command has ended if the fault calls it."""
    taken = fault.with_name(f"{fault.name}.taken")
    until(lambda: not fault.exists() and not taken.exists(), what="the fault")


def leave_nothing(server: Instance, faulty: Faulty[Any]) -> None:
    """End what a failed test has left, so that the next one does not fail too: jobs, pilots, a dead daemon."""
    faulty.clear()
    if server.process is None or server.process.poll() is not None:
        server.start()
    client, left = server.client(), Selection(states=LIVE_STATES)
    if faulty.system.is_alive() and not client.counts(left).total and not _open_pilots(server):
        return
    if not faulty.system.is_alive():
        faulty.shape.start(faulty.system)
    faulty.shape.mend(faulty.system)
    client.kill(left)
    faulty.system.cancel_all()
    end_pause(server)
    until(lambda: not _open_pilots(server), what="the end of the pilots of a failed test")


def _open_pilots(server: Instance) -> list[int]:
    return [pilot.id for pilot in server.client().pilots() if not pilot.ended]


def wait_for_start(instance: Instance, jobs: Selection) -> None:
    """Wait until one of these jobs has begun; it may have ended, too."""
    states = ("Running", "Done")
    until(lambda: any(map(instance.client().counts(jobs).states.get, states)), what="a job that has begun")


def restarted(instance: Instance) -> None:
    """Wait for the death of the server, and start it again."""
    until(lambda: instance.process is not None and instance.process.poll() is not None, what="its death")
    instance.start()


class BatchFaults:
    """The faults of all batch systems. A class of a module inherits it and names its shape."""

    shape: ClassVar[BatchShape]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make the tests of a fault by the shape."""
        assert metafunc.cls is not None
        shape: BatchShape = metafunc.cls.shape
        for names, values in (
            (("call",), (shape.submit_call, shape.release_call)),
            (("unclear",), shape.unclear),
            (("lister", "fault"), shape.listings),
        ):
            if names[0] in metafunc.fixturenames:
                metafunc.parametrize(",".join(names), values)

    @pytest.mark.parametrize("death", ["kill-server-before", "kill-server-after"])
    def test_a_server_that_dies_in_a_call(
        self, instance: Instance, faulty: Faulty[Any], call: str, death: str
    ) -> None:
        """Between intent and id, between id and release; before and after the daemon has acted."""
        faulty.set(call, death)
        jobs = self.shape.submit(instance)
        restarted(instance)
        self.shape.assert_all_done(instance, faulty.system, jobs)

    def test_a_submission_without_a_clear_answer(
        self, instance: Instance, faulty: Faulty[Any], unclear: str
    ) -> None:
        used = faulty.set(self.shape.submit_call, unclear)
        jobs = self.shape.submit(instance)
        wait_for_use(used)
        self.shape.assert_all_done(instance, faulty.system, jobs)
        ids = [pilot.batch_id for pilot in instance.client().pilots() if pilot.batch_id]
        assert len(ids) == len(set(ids))

    @pytest.mark.parametrize("silent", ["kill-me-before", "kill-me-after"])
    def test_a_release_without_an_answer(self, instance: Instance, faulty: Faulty[Any], silent: str) -> None:
        used = faulty.set(self.shape.release_call, silent)
        jobs = self.shape.submit(instance)
        wait_for_use(used)
        self.shape.assert_all_done(instance, faulty.system, jobs)

    def test_a_listing_that_is_no_listing(
        self, instance: Instance, faulty: Faulty[Any], lister: str, fault: str
    ) -> None:
        client = instance.client()
        before = {pilot.id for pilot in client.pilots()}
        jobs = self.shape.submit(instance, seconds=1, count=6)
        wait_for_start(instance, jobs)
        for one in islice(cycle(fault.split()), 3):
            wait_for_use(faulty.set(lister, one))
        self.shape.assert_all_done(instance, faulty.system, jobs, 6)
        assert {pilot.state for pilot in client.pilots() if pilot.id not in before} == {"Done"}

    def test_a_daemon_that_hangs_during_a_submission(self, instance: Instance, faulty: Faulty[Any]) -> None:
        with faulty.system.stopped():
            jobs = self.shape.submit(instance)
            until(lambda: f"CE {self.shape.ce}:" in instance.log(), 2 * PATIENCE, "the failure of a call")
        self.shape.assert_all_done(instance, faulty.system, jobs)

    def test_a_daemon_that_crashes_right_after_its_answer(
        self, instance: Instance, faulty: Faulty[Any]
    ) -> None:
        """HTCondor has its queue on disk. Slurm forgets most arrays, and gives their ids to the next ones."""
        used = faulty.set(self.shape.submit_call, "kill-daemon-after")
        jobs = self.shape.submit(instance)
        wait_for_use(used)
        faulty.system.kill()
        self.shape.start(faulty.system)
        self.shape.assert_all_done(instance, faulty.system, jobs)
