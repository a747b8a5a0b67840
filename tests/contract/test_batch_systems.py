"""The contract of `BatchAdapter`. A further adapter is a further row of `SYSTEMS` and passes the same tests.

A test needs a capability where it has `world.needs`: paper runs no scripts, and local processes cannot be held.

Each file of `transcripts` is a recorded world, without a batch system: `outside/batch/transcript.py` tells its form.
`PILOTAGE_RECORD_TRANSCRIPTS=1` writes the files of the real batch systems that this module starts.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from secrets import token_hex

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.glue import schema as glue
from pilotage.core.pilots.handover import Seen
from pilotage.core.policy import Ce, parse
from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.core.policy.new_ce import NodeSize
from pilotage.core.policy.reach import parse_reach
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission, Shape
from pilotage.outside.batch.arc.adapter import ArcBatch
from pilotage.outside.batch.arc.rest import ArcClient
from pilotage.outside.batch.htcondor.adapter import HtcondorBatch
from pilotage.outside.batch.https_connection import BatchConnection, HttpsConnection
from pilotage.outside.batch.local import LocalBatch
from pilotage.outside.batch.machines.adapter import MachinesBatch
from pilotage.outside.batch.machines.far_machine import FarMachine
from pilotage.outside.batch.registry import ServerMachine, make_adapter_of
from pilotage.outside.batch.rehearsal import rehearse
from pilotage.outside.batch.runner import LocalRunner, Runner
from pilotage.outside.batch.sge.adapter import SgeBatch
from pilotage.outside.batch.sge.cell import FarCell
from pilotage.outside.batch.slurm.adapter import SlurmBatch
from pilotage.outside.batch.ssh.connection import SshConnection
from pilotage.outside.batch.ssh.runner import SshRunner
from pilotage.outside.batch.submission import (
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)
from pilotage.outside.batch.transcript import CommandRecorder, Transcript, marked
from pilotage.twin.batch.adapter import TwinBatchAdapter
from pilotage.twin.batch.faults import BatchFault, BatchFaultKind, NoFaults
from pilotage.twin.batch.system import BatchSystemSettings, TwinBatchSystem
from pilotage.twin.batch.tasks import BatchPilotStart
from tests import arc, htcondor, sge, slurm, transcripts
from tests.deadlines import PATIENCE
from tests.doubles import cluster as doubles
from tests.instance import until
from tests.namespaces import own_loopback
from tests.paper_batch import PaperBatch
from tests.ssh_server import LoginNode, login_node
from tests.transcripts import HttpsRunner, Player, RunnerConnection
from tests.virtual_timers import VirtualTimers

SHAPE = Shape(processors=1, memory=100, wall=120.0)
SLEEP = "#!/bin/sh\ntrap 'kill $!; exit 0' TERM\nsleep 60 &\nwait\n"
"""The shell stays, since its arguments are the identity of a local pilot."""

RECORDS = bool(os.environ.get("PILOTAGE_RECORD_TRANSCRIPTS"))

pytestmark = pytest.mark.timeout(4 * PATIENCE)


@dataclass
class World:
    """A batch system of the tests' own, with room for 16 pilots."""

    batch: BatchAdapter
    another: Callable[[], BatchAdapter]
    """A new adapter, as after a restart of the server."""
    broken: Callable[[], BatchAdapter]
    """An adapter whose submissions are refused."""
    silent: Callable[[], AbstractContextManager[BatchAdapter]] | None = None
    """An adapter whose batch system does not answer."""
    restart: Callable[[], object] | None = None
    """Start the controller again."""
    start: Callable[[], object] = lambda: None
    """Start the pilots that wait."""
    kill: Callable[[ListedTask], object] = lambda task: None
    """End a batch job behind the adapter's back."""
    farewell: signal.Signals | None = signal.SIGTERM
    """The signal by which it asks a running batch job to leave. Pilots leave on both. None: it kills at once."""
    shown: Callable[[], str] | None = None
    """All that every account of the machine is shown of the batch jobs. None: scripts do not run."""
    files: Path | None = None
    """A folder where batch jobs may write; None: any that everybody may write into."""
    shape: Shape = SHAPE
    """Of a rehearsal."""
    transcript: Transcript | None = None
    """Of a recorded world, or of one that is being recorded."""
    refused: SubmissionRefusal = SubmissionRefusal.REFUSED
    """How `broken` fails."""
    unanswered: SubmissionRefusal = SubmissionRefusal.IN_DOUBT
    """How a submission to a silent batch system fails."""
    lists_further: bool = False
    """Whether `status` lists further pilots than it was asked about."""

    def needs(self, capability: object, reason: str) -> None:
        if not capability:
            if self.transcript is not None:
                self.transcript.case = ""
            pytest.skip(reason)

    def submission(
        self, stamp: str, count: int = 1, script: str = SLEEP, **properties: str
    ) -> BatchSubmission:
        return BatchSubmission(stamp, count, SHAPE, script, properties)

    def submit(self, stamp: str, count: int = 1, script: str = SLEEP, **properties: str) -> str:
        """Submit and wait until a listing has the pilots, running if they are not held; the id of the submission."""
        before = sum(self.states(stamp).values())
        receipt = self.batch.submit(self.submission(stamp, count, script, **properties))
        assert len(set(receipt.batch_ids)) == count
        assert all(receipt.batch_ids)
        # A process that is just being started has no arguments yet.
        until(lambda: sum(self.states(stamp).values()) == before + count, PATIENCE, "a listing")
        if not self.batch.holds:
            self.reach(stamp, running=before + count)
        return receipt.array

    def alive(self, stamp: str, batch: BatchAdapter | None = None) -> list[ListedTask]:
        """The pilots of a submission that have not ended."""
        return alive((batch or self.batch).list_pilots([stamp]), stamp)

    def states(self, stamp: str) -> Counter[NativeState]:
        return Counter(task.state for task in self.alive(stamp))

    def reach(self, stamp: str, **states: int) -> None:
        """Wait until the pilots of a submission are in these states."""
        wanted = Counter({NativeState(name): count for name, count in states.items()})

        def reached() -> bool:
            self.start()
            return self.states(stamp) == wanted

        until(reached, PATIENCE, f"{states} instead of {self.states(stamp)}")

    def run(self, stamp: str, count: int = 1, script: str = SLEEP, **properties: str) -> str:
        """Submit, release and wait until all pilots run; the id of the whole submission."""
        array = self.submit(stamp, count, script, **properties)
        self.batch.release([stamp])
        self.reach(stamp, running=count)
        return array


def alive(listing: BatchListing, stamp: str) -> list[ListedTask]:
    return [task for task in listing.tasks if task.stamp == stamp and task.state is not NativeState.ENDED]


class Refused(NoFaults):
    def next(self, command: str) -> BatchFault | None:
        return BatchFault(BatchFaultKind.REFUSED) if command == "submit" else None


class PolitePilot:
    """A pilot that leaves as soon as it is asked."""

    def __init__(self, start: BatchPilotStart, ended: Callable[[int], None]) -> None:
        self.ended = ended

    def signal(self, name: str) -> None:
        self.ended(0)

    def kill(self) -> None:
        """Nobody is told."""


@contextmanager
def twin(folder: Path) -> Iterator[World]:
    """One node in virtual time. A look at the pilots that should start lets a second pass."""
    timers = VirtualTimers()
    system = TwinBatchSystem(
        BatchSystemSettings("twin", [NodeSize(1, 16, 16_000)], wall_limit=3600.0),
        PolitePilot,
        clock=timers.clock,
        call_at=timers.call_at,
        rng=Random(1),
    )

    @contextmanager
    def silent() -> Iterator[BatchAdapter]:
        system.go_away(inf)
        yield another()
        system.go_away(timers.now)

    def another() -> BatchAdapter:
        return TwinBatchAdapter(system)

    yield World(
        another(),
        another,
        lambda: TwinBatchAdapter(system, Refused()),
        silent,
        system.restart,
        lambda: timers.advance(1.0),
        lambda task: system.kill(task.batch_id),
    )


@contextmanager
def paper(folder: Path) -> Iterator[World]:
    batch = PaperBatch()

    def restart() -> None:
        batch.save_state()
        batch.crash()

    @contextmanager
    def silent() -> Iterator[BatchAdapter]:
        batch.fault = "no-answer"
        try:
            yield batch
        finally:
            batch.fault = ""

    def kill(task: ListedTask) -> None:
        batch.end(task.batch_id)

    def broken() -> PaperBatch:
        batch.fault = "refused"
        return batch

    yield World(batch, lambda: batch, broken, silent, restart, batch.start, kill)


@contextmanager
def local(folder: Path) -> Iterator[World]:
    made: list[LocalBatch] = []

    def another() -> LocalBatch:
        made.append(LocalBatch(os.environ, folder / "logs"))
        return made[-1]

    def kill(task: ListedTask) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(task.batch_id.partition(":")[0]), signal.SIGKILL)

    def broken() -> LocalBatch:
        (folder / "a-file").touch()
        return LocalBatch(os.environ, folder / "a-file")

    yield World(another(), another, broken, kill=kill, shown=processes_of_all)
    for batch in made:
        for pid in list(batch._children):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        until(
            lambda batch=batch: not batch.list_pilots([]).tasks and not batch._children, PATIENCE, "its end"
        )


@contextmanager
def runner_of(environment: Mapping[str, str], folder: Path, *, over_ssh: bool) -> Iterator[Runner]:
    """Runs the commands of a batch system of this machine: here, or in sessions of an sshd."""
    if not over_ssh:
        yield LocalRunner(environment)
        return
    with login_node(own_loopback()) as login, opened(login, folder) as connection:
        yield SshRunner(connection, environment)


@contextmanager
def opened(login: LoginNode, folder: Path) -> Iterator[SshConnection]:
    """An open connection to a host, as a person leaves it whose key needs no passphrase."""
    connection = SshConnection(parse_reach(login.reach), folder, os.environ)
    assert connection.log_in() == ""
    try:
        yield connection
    finally:
        connection.close()
        connection.control("exit")


@contextmanager
def on_slurm(folder: Path, *, over_ssh: bool = False) -> Iterator[World]:
    with (
        slurm.cluster(nodes=1, processors=16) as made,
        runner_of(made.environment, folder, over_ssh=over_ssh) as commands,
    ):
        options = SlurmOptions(log_folder=str(folder))
        places = {"LOGS": str(folder), "FOLDER": str(made.folder), "HOST": socket.gethostname().split(".")[0]}
        runner = CommandRecorder(
            Transcript(SLURM_HEADER, values=places),
            commands,
            "(?<=data as of )\\S+",
            "(?<=^NEXT_JOB_ID)[^\n]*",
            "(?<=OS=)[^\n]*?(?= \\n| RealMemory)",
        )

        def another(timeout: float = 60.0) -> SlurmBatch:
            return SlurmBatch(runner, getpass.getuser(), options, timeout)

        @contextmanager
        def silent() -> Iterator[BatchAdapter]:
            with made.stopped():
                yield another(timeout=0.5)

        def shown() -> str:
            return made.run("scontrol", "show", "jobs") + made.run("squeue", "-o", "%all")

        def broken() -> SlurmBatch:
            wrong = SlurmOptions(partition="nosuch")
            return SlurmBatch(runner, getpass.getuser(), wrong)

        world = World(
            another(),
            another,
            broken,
            silent,
            made.restart_controller,
            kill=lambda task: made.run("scancel", "--signal=KILL", "--full", task.batch_id),
            shown=shown,
        )
        with recording(world, runner, "" if over_ssh else "slurm") as recorded_world:
            yield recorded_world


@contextmanager
def on_grid_engine(folder: Path, *, over_ssh: bool = False) -> Iterator[World]:
    with (
        sge.grid_engine() as made,
        runner_of(made.environment, folder, over_ssh=over_ssh) as commands,
    ):
        options = SgeOptions(log_folder=str(folder), pe=sge.PE)
        places = {
            "LOGS": str(folder),
            "FOLDER": str(made.folder),
            "HOST": made.host,
            "PORT": str(made.cell.port),
        }
        runner = CommandRecorder(
            Transcript(SGE_HEADER, values=places),
            commands,
            *(
                "^../../.{4} ..:..:..:$",
                "^run time[^\n]*",
                "^SIRM message[^\n]*",
                "^no. of [^\n]*",
                "^info:[^\n]*",
            ),
            "<JB_env_list>.*?</JB_env_list>",
            r'<resource name="(?:\w*load_\w+|\w+_used|cpu|m_topology\w*)" type="\w+">[^<]*</resource>',
            r"(?<=>)\s+(?=<)",
        )

        cell = FarCell(runner) if over_ssh else made.cell

        def another(timeout: float = 60.0) -> SgeBatch:
            return SgeBatch(runner, getpass.getuser(), options, cell, timeout)

        @contextmanager
        def silent() -> Iterator[BatchAdapter]:
            with made.stopped():
                yield another(timeout=0.5)

        def shown() -> str:
            return made.run("qstat", "-j", "*", "-u", "*") + made.run("qstat", "-r", "-ext", "-xml")

        def broken() -> SgeBatch:
            wrong = SgeOptions(queue="nosuch")
            return SgeBatch(runner, getpass.getuser(), wrong, cell)

        def kill(task: ListedTask) -> None:
            for pid in made.processes(task.batch_id):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        world = World(
            another(),
            another,
            broken,
            silent,
            made.restart_master,
            kill=kill,
            shown=shown,
            farewell=signal.SIGUSR2,
        )
        with recording(world, runner, "" if over_ssh else "sge") as recorded_world:
            yield recorded_world


@contextmanager
def on_htcondor(folder: Path) -> Iterator[World]:
    with htcondor.condor_pool() as made:
        options = HtcondorOptions(owner=htcondor.ACCOUNT, log_folder=str(made.logs))
        places = {
            "LOGS": str(made.logs),
            "FOLDER": str(made.folder),
            "HOST": made.host,
            "PORT": str(made.port),
        }
        # A listing begins with the address of the schedd and the time.
        runner = CommandRecorder(
            Transcript(HTCONDOR_HEADER, values=places), LocalRunner(made.environment), "^-- Schedd:[^\n]*"
        )

        def another(timeout: float = 60.0) -> HtcondorBatch:
            return HtcondorBatch(runner, getpass.getuser(), options, timeout)

        @contextmanager
        def silent() -> Iterator[BatchAdapter]:
            with made.stopped():
                yield another(timeout=0.5)

        def broken() -> HtcondorBatch:
            return HtcondorBatch(runner, getpass.getuser(), HtcondorOptions(schedd="nosuch", scripts="file"))

        world = World(
            another(),
            another,
            broken,
            silent,
            made.restart_schedd,
            kill=lambda task: made.kill_job(task.batch_id),
            shown=lambda: made.run("condor_q", "-allusers", "-long"),
            files=made.logs,
        )
        with recording(world, runner, "htcondor") as recorded_world:
            yield recorded_world


PLACES = 8
"""Cores of all plain machines, if this one has two."""


@contextmanager
def on_machines(folder: Path) -> Iterator[World]:
    """Plain machines: each has processes of its own, and the cores of this machine."""
    each = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        machines = list[FarMachine]()
        for number in range(-(-PLACES // each)):
            login = stack.enter_context(login_node(own_loopback(), alone=True, name=f"ws{number}"))
            machines.append(FarMachine(stack.enter_context(opened(login, folder)), 0, 60.0))
        nowhere = SshConnection(parse_reach("ssh -p 9 127.0.0.1"), folder, os.environ)

        def another() -> MachinesBatch:
            return MachinesBatch(machines, SHAPE.wall)

        def away() -> MachinesBatch:
            return MachinesBatch([FarMachine(nowhere, 0, 1.0)], SHAPE.wall)

        def kill(task: ListedTask) -> None:
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if f"{task.stamp}/{task.index}" in (process / "cmdline").read_text().split("\0"):
                        os.kill(int(process.name), signal.SIGKILL)

        yield World(
            another(),
            another,
            away,
            lambda: nullcontext(away()),
            kill=kill,
            shown=processes_of_all,
            refused=SubmissionRefusal.FULL,
            unanswered=SubmissionRefusal.FULL,
            lists_further=True,
        )


def processes_of_all() -> str:
    return subprocess.run(["ps", "-e", "-o", "args="], capture_output=True, text=True, check=True).stdout


@contextmanager
def on_arc(folder: Path) -> Iterator[World]:
    # Each look of the CE at its jobs takes seconds, so this takes minutes.
    if not RECORDS and "arc" not in os.environ.get("PILOTAGE_TEST_REQUIRE", "").split(","):
        pytest.skip("PILOTAGE_TEST_REQUIRE=arc runs it with a real ARC; its transcript is always tested")
    with arc.arc_ce() as made:
        places = {"FOLDER": str(made.folder), "PORT": str(made.port)}
        transcript = Transcript(ARC_HEADER, values=places)
        volatile = ('(?<=Time=")[^"]*', "(?<=<WorkingAreaFree>)[^<]*", r"(?<=>)\s+(?=<)")

        def connect(host: str, port: int, context: ssl.SSLContext, timeout: float) -> BatchConnection:
            connection = HttpsConnection(host, port, context, timeout)
            return RunnerConnection(
                lambda headers: CommandRecorder(transcript, HttpsRunner(connection, headers), *volatile)
            )

        def another(timeout: float = 60.0, queue: str = "") -> ArcBatch:
            options = made.options(log_folder=str(folder), queue=queue)
            return ArcBatch(ArcClient(options, {}, os.getuid(), timeout, connect), options)

        @contextmanager
        def silent() -> Iterator[BatchAdapter]:
            with made.stopped():
                yield another(timeout=0.5)

        def kill(task: ListedTask) -> None:
            for pid in made.processes(task.batch_id):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        world = World(
            another(),
            another,
            lambda: another(queue="nosuch"),
            silent,
            kill=kill,
            farewell=None,
            shown=lambda: processes_of_all() + made.shown(),
        )
        with recording(world, CommandRecorder(transcript, LocalRunner({})), "arc") as recorded_world:
            yield recorded_world


HTCONDOR_HEADER = {
    "ce": f'type = "htcondor"\nwall = 120\n[ces.ce.htcondor]\nowner = "{htcondor.ACCOUNT}"\nlog_folder = "@LOGS@"\n',
    "broken": 'type = "htcondor"\n[ces.ce.htcondor]\nschedd = "nosuch"\nscripts = "file"\n',
    "user": "root",
}
SLURM_HEADER = {
    "ce": 'type = "slurm"\nwall = 120\n[ces.ce.slurm]\nlog_folder = "@LOGS@"\n',
    "broken": 'type = "slurm"\n[ces.ce.slurm]\npartition = "nosuch"\n',
    "user": "root",
}
_CELL = 'type = "sge"\nwall = 120\n[ces.ce.sge]\nroot = "@FOLDER@"\nqmaster_port = @PORT@\n'
SGE_HEADER = {
    "ce": f'{_CELL}log_folder = "@LOGS@"\npe = "{sge.PE}"\n',
    "broken": f'{_CELL}queue = "nosuch"\n',
    "user": "root",
    "files": {"default/common/act_qmaster": "@HOST@\n"},
}
_ARC = 'type = "arc"\nwall = 120\n[ces.ce.arc]\nurl = "https://localhost:@PORT@/arex"\ntoken_file = "@FOLDER@/token"\n'
ARC_HEADER = {
    "ce": f'{_ARC}log_folder = "@LOGS@"\n',
    "broken": f'{_ARC}queue = "nosuch"\n',
    "user": "root",
    "files": {"token": "recorded"},
}


POLICY = """
[groups.all]
[users.ada]
groups = ["all"]
[sites.here]
[ces.ce]
site = "here"
"""


def with_marks(world: World, runner: CommandRecorder | Player, transcript: Transcript) -> World:
    """The same world, which tells its transcript of each change."""

    def restart() -> None:
        runner.mark("restart")
        assert world.restart is not None
        world.restart()

    def kill(task: ListedTask) -> None:
        runner.mark("kill")
        world.kill(task)

    @contextmanager
    def silent() -> Iterator[BatchAdapter]:
        assert world.silent is not None
        runner.mark("silent")
        with world.silent() as batch:
            yield marked(batch, runner)
        runner.mark("answers")

    return replace(
        world,
        batch=marked(world.batch, runner),
        another=lambda: marked(world.another(), runner),
        broken=lambda: marked(world.broken(), runner),
        silent=silent if world.silent is not None else None,
        restart=restart if world.restart is not None else None,
        kill=kill,
        shown=None,
        transcript=transcript,
    )


@contextmanager
def recording(world: World, runner: CommandRecorder, system: str) -> Iterator[World]:
    """The world, with its transcript if one is asked for. `system`: the name of its file; empty: it has none."""
    if not RECORDS or not system:
        yield world
        return
    yield with_marks(world, runner, runner.transcript)
    transcripts.save(runner.transcript, transcripts.FOLDER / f"{system}.jsonl")


@contextmanager
def recorded(file: Path, folder: Path) -> Iterator[World]:
    """A batch system that is a transcript. Its adapter is made as the server makes it, of the table of a CE."""
    transcript = transcripts.load(file)
    transcript.values = {"LOGS": str(folder / "logs"), "FOLDER": str(folder), "HOST": "host1", "PORT": "6444"}
    player = Player(transcript)
    for path, text in transcript.header.get("files", {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(transcript.read(text))
    machine = ServerMachine(
        {},
        transcript.header["user"],
        folder,
        runner=lambda environment: player,
        connect=lambda host, port, context, timeout: RunnerConnection(lambda headers: player),
    )

    def ce(name: str) -> Ce:
        return parse(transcript.read(f"{POLICY}{transcript.header[name]}")).ces["ce"]

    def another() -> BatchAdapter:
        return make_adapter_of(ce("ce"), machine)

    def broken() -> BatchAdapter:
        return make_adapter_of(ce("broken"), machine)

    marks = {mark for phases in transcript.cases.values() for mark, _ in phases}
    world = World(
        another(),
        another,
        broken,
        (lambda: nullcontext(another())) if "silent" in marks else None,
        (lambda: None) if "restart" in marks else None,
        shape=Shape(*transcript.header.get("shape", SHAPE)),
    )
    yield with_marks(world, player, transcript)


@contextmanager
def on_double(system: str, folder: Path) -> Iterator[World]:
    """A double of a batch system that cannot be installed here."""
    with doubles.double(system) as made:
        machine = ServerMachine(made.environment, getpass.getuser(), folder)

        def adapter(options: str, timeout: float = 60.0) -> BatchAdapter:
            section = f'{POLICY}type = "{system}"\nwall = 120\n[ces.ce.{system}]\n{options}\n'
            return make_adapter_of(parse(section).ces["ce"], machine, timeout)

        def another(timeout: float = 60.0) -> BatchAdapter:
            return adapter(f'log_folder = "{folder}"', timeout)

        @contextmanager
        def silent() -> Iterator[BatchAdapter]:
            with made.faulty(silent=True):
                yield another(timeout=0.5)

        def kill(task: ListedTask) -> None:
            number, *index = re.findall("[0-9]+", task.batch_id.partition(".")[0])
            made.kill(number, "".join(index))

        yield World(
            another(),
            another,
            lambda: adapter('queue = "nosuch"'),
            silent,
            kill=kill,
            shown=lambda: "".join(made.run(*command) for command in SHOWN[system]),
            farewell=signal.SIGINT if system == "lsf" else signal.SIGTERM,
        )


SHOWN = {
    "pbs": (("qstat", "-x", "-f", "-w", "-t"), ("qstat", "-a")),
    "torque": (("qstat", "-f", "-1", "-t"), ("qstat", "-a")),
    "lsf": (
        ("bjobs", "-a", "-json", "-u", "all", "-o", "jobid job_name job_description"),
        ("bjobs", "-a"),
    ),
}
"""Commands that show everybody all that they tell of jobs."""


SYSTEMS: dict[str, Callable[[Path], AbstractContextManager[World]]] = {
    "paper": paper,
    "twin": twin,
    "local": local,
    "slurm": on_slurm,
    "sge": on_grid_engine,
    "arc": on_arc,
    "htcondor": on_htcondor,
    "machines": on_machines,
    "slurm over ssh": partial(on_slurm, over_ssh=True),
    "sge over ssh": partial(on_grid_engine, over_ssh=True),
    **{f"{system} double": partial(on_double, system) for system in SHOWN},
}
TRANSCRIPTS = {file.stem: file for file in sorted(transcripts.FOLDER.glob("*.jsonl"))}
SYSTEMS |= {f"{name} recorded": partial(recorded, file) for name, file in TRANSCRIPTS.items()}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name.endswith(("recorded", "twin")) else pytest.mark.slow)
        for name in SYSTEMS
    ],
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with SYSTEMS[request.param](tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(autouse=True)
def case(world: World, request: pytest.FixtureRequest) -> None:
    """Begin the part of the transcript for this test."""
    if (known := world.transcript) is not None:
        name = request.node.originalname
        if not RECORDS and name not in known.cases:
            pytest.skip(f"the transcript has no {name}")
        known.begin(name)
        world.batch = world.another()


@pytest.fixture
def stamp(world: World, case: None) -> Iterator[str]:
    made = f"pilotage-{token_hex(8)}"
    if world.transcript is not None:
        world.transcript.values["STAMP"] = made
    yield made
    world.batch.cancel([made])
    until(lambda: not world.states(made), PATIENCE, "the end of the test's pilots")
    if world.batch.keeps_ended:
        listing = world.batch.list_pilots()
        ended = [task.batch_id for task in listing.tasks if task.state is NativeState.ENDED]
        world.batch.cancel_tasks(ended, listing.epoch)


def test_a_submission_is_held_until_it_is_released(world: World, stamp: str) -> None:
    world.submit(stamp, 3)
    world.start()
    first = NativeState.HELD if world.batch.holds else NativeState.RUNNING
    assert world.states(stamp) == {first: 3}
    tasks = world.alive(stamp)
    assert sorted(task.index or 0 for task in tasks) == [0, 1, 2]
    world.batch.release([stamp])
    world.reach(stamp, running=3)
    world.batch.release([stamp])
    assert world.states(stamp) == {NativeState.RUNNING: 3}, "a second release does no harm"


def test_a_rehearsal_goes_through(world: World, stamp: str) -> None:
    """`pilotage ce test --record` records it where no test can be run."""

    def wait(condition: Callable[[], bool], what: str) -> None:
        until(lambda: [world.start(), condition()][-1], PATIENCE, what)

    done = rehearse(world.batch, stamp, world.shape, wait)
    assert done.partitions
    assert done.information.host_classes
    assert done.refusal == ""
    listed = {task.index: task.batch_id for task in alive(done.held, stamp)}
    assert listed == dict(enumerate(done.receipt.batch_ids))
    if world.batch.holds:
        assert {task.state for task in alive(done.held, stamp)} == {NativeState.HELD}
    assert {task.state for task in alive(done.released, stamp)} <= {NativeState.WAITING, NativeState.RUNNING}
    assert all(known["owner"] == "rehearsal" for known in done.properties.values())
    assert len(done.properties) == len(done.receipt.batch_ids)
    assert done.ended.complete
    assert not alive(done.ended, stamp)


def test_the_receipt_has_the_ids_of_the_listing(world: World, stamp: str) -> None:
    receipt = world.batch.submit(world.submission(stamp, 3))
    until(lambda: len(world.alive(stamp)) == 3, PATIENCE, "a listing")
    listed = {task.index: task.batch_id for task in world.alive(stamp)}
    assert listed == dict(enumerate(receipt.batch_ids))


def test_release_and_cancel_concern_their_submission_alone(world: World, stamp: str) -> None:
    other = f"{stamp}0"
    world.submit(stamp)
    world.submit(other)
    before = world.states(other)
    world.batch.release([stamp])
    world.reach(stamp, running=1)
    assert world.states(other) == before
    world.batch.cancel([other])
    until(lambda: not world.states(other), PATIENCE, "the end of the other one")
    assert world.states(stamp) == {NativeState.RUNNING: 1}


def test_calls_about_nothing_do_nothing(world: World, stamp: str) -> None:
    world.run(stamp)
    epoch = world.batch.list_pilots().epoch
    world.batch.release([])
    world.batch.cancel([])
    world.batch.cancel_tasks([], epoch)
    assert world.batch.list_pilots([]).tasks == ()
    # Plain machines list all that they have, so that pilots are found that were given up.
    assert world.batch.status({}).tasks == (world.batch.list_pilots().tasks if world.lists_further else ())
    assert world.batch.properties([]) == {}
    unknown = ["pilotage-that nobody has submitted"]
    for call in (world.batch.release, world.batch.cancel):
        with contextlib.suppress(Unreachable):
            call(unknown)
    assert world.states(stamp) == {NativeState.RUNNING: 1}


def test_waiting_pilots_can_be_cancelled_without_the_running_ones(world: World, stamp: str) -> None:
    world.submit(stamp, 2)
    world.batch.cancel([stamp], waiting_only=True)
    if not world.batch.holds:
        assert world.states(stamp) == {NativeState.RUNNING: 2}
        return
    until(lambda: not world.states(stamp), PATIENCE, "the end of held pilots")
    again = f"{stamp}1"
    world.run(again)
    world.batch.cancel([again], waiting_only=True)
    assert world.states(again) == {NativeState.RUNNING: 1}
    world.batch.cancel([again])
    until(lambda: not world.states(again), PATIENCE, "the end of running pilots")


def test_of_two_submissions_of_one_stamp_one_can_be_cancelled(world: World, stamp: str) -> None:
    world.needs(world.batch.holds, "all processes with one stamp and index are one pilot")
    first, second = world.submit(stamp), world.submit(stamp)
    listing = world.batch.list_pilots()
    tasks = alive(listing, stamp)
    assert [task.state for task in tasks] == [NativeState.HELD] * 2
    [doubled] = {task.array or task.batch_id for task in tasks} - {first}
    assert doubled == second
    world.batch.cancel_tasks([doubled, "999999"], listing.epoch)
    until(lambda: len(world.alive(stamp)) == 1, PATIENCE, "the end of the second one")
    [kept] = world.alive(stamp)
    assert first in (kept.array, kept.batch_id)


def test_a_started_controller_has_another_epoch_and_the_same_pilots(world: World, stamp: str) -> None:
    world.run(stamp)
    [task] = world.alive(stamp)
    before = world.batch.list_pilots().epoch
    assert before
    assert world.another().list_pilots().epoch == before

    def restarted() -> bool:
        assert world.restart is not None
        world.restart()
        return world.batch.list_pilots().epoch not in ("", before)

    if world.restart is not None:
        # Slurm tells its start in whole seconds.
        until(restarted, PATIENCE, "another epoch")
    with pytest.raises(Unreachable, match="started again"):
        world.batch.cancel_tasks([task.batch_id], "an earlier epoch" if world.restart is None else before)
    assert world.states(stamp) == {NativeState.RUNNING: 1}


def test_a_refused_submission_has_a_reason_and_is_not_listed(world: World, stamp: str) -> None:
    with pytest.raises(SubmissionFailed) as failed:
        world.broken().submit(world.submission(stamp, 2))
    assert failed.value.refusal is world.refused
    assert failed.value.reason
    assert not world.states(stamp)


def test_a_listing_by_stamp_has_only_pilots_of_the_stamp(world: World, stamp: str) -> None:
    other = f"{stamp}0"
    world.submit(stamp, 2)
    world.submit(other)
    found = world.another().list_pilots([stamp, "pilotage-nobody"])
    assert found.complete
    assert {task.stamp for task in found.tasks} == {stamp}
    assert found.find("pilotage-nobody") == (Seen.ABSENT, "")
    assert found.find(stamp, 1)[0] is Seen.SEEN
    assert found.find(stamp, 2) == (Seen.ABSENT, "")
    assert {stamp, other} <= {task.stamp for task in world.another().list_pilots().tasks}
    world.batch.cancel([other])


def test_the_stamp_decides_where_the_batch_id_is_anothers(world: World, stamp: str) -> None:
    world.submit(stamp, 2)
    listed = world.batch.list_pilots([stamp])
    ids = [listed.find(stamp, index)[1] for index in range(2)]
    asked = {f"{stamp}/0": "", f"{stamp}/1": "no-such-id", f"{stamp}/2": "no-such-id"}
    listing = world.another().status(asked)
    assert [listing.find(stamp, index) for index in range(3)] == [
        (Seen.SEEN, ids[0]), (Seen.SEEN, ids[1]), (Seen.ABSENT, ""),
    ]  # fmt: skip
    right = world.batch.status({f"{stamp}/{index}": id_ for index, id_ in enumerate(ids)})
    assert [right.find(stamp, index) for index in range(2)] == [(Seen.SEEN, id_) for id_ in ids]


def test_a_batch_job_that_was_killed_is_absent_by_id_and_by_stamp(world: World, stamp: str) -> None:
    world.run(stamp, 2)
    ids = {f"{stamp}/{task.index}": task.batch_id for task in world.alive(stamp)}
    [dead] = (task for task in world.alive(stamp) if task.index == 1)
    world.kill(dead)
    until(lambda: world.batch.status(ids).find(stamp, 1)[0] is Seen.ABSENT, PATIENCE, "its end")
    assert world.another().list_pilots([stamp]).find(stamp, 1)[0] is Seen.ABSENT
    assert world.batch.status(ids).find(stamp, 0)[0] is Seen.SEEN


def test_a_cancelled_pilot_can_say_goodbye(world: World, stamp: str) -> None:
    world.needs(world.shown, "scripts do not run here")
    world.needs(world.farewell, "ARC signals the wrapper of a job that is a process of its own machine")
    assert world.farewell is not None
    # Batch jobs may run under another account.
    folder = Path(tempfile.mkdtemp(dir=world.files or arc.REACHABLE))
    folder.chmod(0o777)
    goodbye = folder / "goodbye"
    signal_name = world.farewell.name.removeprefix("SIG")
    script = (
        f"#!/bin/sh\ntrap 'echo > {goodbye}; exit 0' {signal_name}\necho ready\nwhile :; do sleep 0.1; done\n"
    )
    world.run(stamp, 1, script)
    until(lambda: world.batch.output(stamp, 0, 100) == "ready\n", PATIENCE, "its trap")
    world.batch.cancel([stamp])
    until(goodbye.exists, PATIENCE, "its goodbye")
    shutil.rmtree(folder)


def test_each_pilot_finds_its_index_and_its_output_is_read_back(world: World, stamp: str) -> None:
    world.needs(world.shown, "scripts do not run here")
    variable = world.batch.index_variable
    script = f'#!/bin/sh\necho first; printf "pilot ${variable}: \\303\\274" >&2\n' + SLEEP
    world.run(stamp, 2, script)
    for index in range(2):
        text = f"first\npilot {index}: \u00fc"
        until(lambda index=index, text=text: world.batch.output(stamp, index, 100) == text, PATIENCE, text)
        assert world.another().output(stamp, index, 4) == text[-4:]
    assert world.batch.output(stamp, 2, 100) == ""


def test_a_pilot_knows_its_batch_job_as_the_listing_does(world: World, stamp: str) -> None:
    world.needs(world.shown, "scripts do not run here")
    options = world.batch.pilot_options
    world.needs("--batch-id" in options, "processes are told no id")
    said = " ".join(f"{name} {text}" for name, text in options.items())
    world.run(stamp, 2, f'#!/bin/sh\nprintf "%s" "{said}"\n' + SLEEP)
    for task in world.alive(stamp):
        until(lambda task=task: world.batch.output(stamp, task.index, 1000), PATIENCE, "its word")
        words = world.batch.output(stamp, task.index or 0, 1000).split()
        told = dict(zip(words[::2], words[1::2], strict=True))
        assert told.keys() == options.keys()
        assert told["--batch-id"] == task.batch_id
        assert told.get("--batch-host", task.node).rpartition("@")[2] == task.node
        assert told.get("--restarts", "0") == "0"
        assert float(told.get("--batch-end", 0)) >= float(told.get("--batch-start", 0)) >= 0


def test_the_script_is_shown_to_nobody(world: World, stamp: str) -> None:
    world.needs(world.shown, "scripts do not run here")
    secret = f"secret-{token_hex(8)}"
    submission = world.submission(stamp, 1, f"#!/bin/sh\nkey={secret}\n")
    assert secret not in repr(submission)
    world.run(stamp, 1, submission.script + SLEEP, owner="ada")
    assert world.shown is not None
    shown = world.shown()
    assert stamp in shown
    assert secret not in shown


def test_properties_are_read_back_for_many_in_one_listing(world: World, stamp: str) -> None:
    other = f"{stamp}0"
    strange = "a,b=c d|\u00fc\n%"
    world.submit(stamp, 2, owner="ada", group=strange)
    world.submit(other)
    found = world.another().properties([stamp, other, "pilotage-nobody"])
    size = {"cores": "1", "memory": "100", "wall": "120"}
    assert found == {
        (stamp, 0): {"stamp": stamp, **size, "owner": "ada", "group": strange},
        (stamp, 1): {"stamp": stamp, **size, "owner": "ada", "group": strange},
        (other, 0): {"stamp": other, **size},
    }
    assert found.items() <= world.batch.properties().items()
    world.batch.cancel([other])


def test_the_batch_system_describes_itself_and_checks_shapes(world: World) -> None:
    partitions = world.batch.describe()
    assert sum(partition.default for partition in partitions) == 1
    assert all(partition.up and partition.kinds for partition in partitions)
    assert world.batch.check(SHAPE) == ""
    assert world.batch.check(Shape(processors=4000))


def test_a_batch_system_that_does_not_answer_proves_nothing(world: World, stamp: str) -> None:
    world.needs(world.silent, "processes of this machine always answer")
    assert world.silent is not None
    world.run(stamp)
    ids = {f"{stamp}/0": world.alive(stamp)[0].batch_id}
    lost = f"{stamp}9"
    with world.silent() as batch:
        for listing in (batch.list_pilots(), batch.list_pilots([stamp]), batch.status(ids)):
            assert not listing.complete
            assert listing.find(stamp, 0)[0] is Seen.UNKNOWN
        changes = (*((batch.release,) if batch.holds else ()), batch.cancel, batch.properties)
        for call in changes:
            with pytest.raises(Unreachable):
                call([stamp])
        with pytest.raises(Unreachable):
            batch.describe()
        with pytest.raises(Unreachable):
            batch.cancel_tasks(list(ids.values()), "1")
        with pytest.raises(SubmissionFailed) as failed:
            batch.submit(world.submission(lost))
        assert failed.value.refusal in (world.unanswered, SubmissionRefusal.UNREACHED)
    until(lambda: world.batch.list_pilots().complete, PATIENCE, "an answer")
    world.batch.cancel([lost])


REQUIRED = (
    *("GlueCEName", "GlueCEInfoLRMSType", "GlueCEInfoTotalCPUs", "GlueCEStateStatus", "GlueCEStateFreeCPUs"),
    *("GlueCEStateRunningJobs", "GlueCEStateWaitingJobs", "GlueCEStateTotalJobs"),
)


def test_the_information_counts_hosts_and_jobs(world: World, stamp: str) -> None:
    def count(name: str) -> int:
        value = world.batch.information().attributes[name]
        assert isinstance(value, int)
        return value

    def jobs() -> tuple[int, int]:
        return count("GlueCEStateRunningJobs"), count("GlueCEStateWaitingJobs")

    information = world.batch.information()
    assert not set(REQUIRED) - set(information.attributes)
    assert information.attributes["GlueCEStateStatus"] == "Production"
    hosts = [name for known in information.host_classes for name in known.hosts]
    [default] = [partition for partition in world.batch.describe() if partition.default]
    count_of_hosts = sum(known.count for known in information.host_classes)
    assert count_of_hosts == sum(kind.nodes for kind in default.kinds)
    if hosts:
        assert len(hosts) == len(set(hosts)) == count_of_hosts
    [known] = information.host_classes
    for name, value in known.attributes.items():
        if name.startswith("Glue"):
            assert information.attributes[name] == value, "one host is the minimum of all hosts"
    if information.attributes["GlueCEInfoLRMSType"] == "htcondor":
        # Its machines tell some seconds later that the pilots of the last test are gone.
        until(lambda: count("GlueCEStateFreeCPUs") == count("GlueCEInfoTotalCPUs"), PATIENCE, "free cores")
    free = count("GlueCEStateFreeCPUs")
    world.submit(stamp, 2)
    if world.batch.holds:
        assert jobs()[1] >= 2, "held pilots wait"
    world.batch.release([stamp])
    world.reach(stamp, running=2)

    def listed() -> tuple[int, int]:
        # Other pilots of this machine come and go meanwhile.
        states = Counter(task.state for task in world.batch.list_pilots().tasks)
        return states[NativeState.RUNNING], states[NativeState.WAITING] + states[NativeState.HELD]

    until(lambda: listed()[0] >= 2 and jobs() == listed(), PATIENCE, "the jobs of the listing")
    if world.batch.holds:
        # The machines of an HTCondor tell of their cores some seconds later.
        until(lambda: count("GlueCEStateFreeCPUs") == free - 2, PATIENCE, "two cores less")
        assert count("GlueCEStateTotalJobs") == sum(listed())


def test_a_batch_system_that_does_not_answer_gives_no_information(world: World) -> None:
    world.needs(world.silent, "this machine always answers")
    assert world.silent is not None
    with world.silent() as batch, pytest.raises(Unreachable):
        batch.information()


def test_the_published_attributes_have_glue_types_and_are_documented(
    world: World, request: pytest.FixtureRequest
) -> None:
    information = world.batch.information()
    known = [information.attributes, *(of_class.attributes for of_class in information.host_classes)]
    published = {name: value for attributes in known for name, value in attributes.items()}
    assert not [reason for name, value in published.items() if (reason := glue.mistake(name, value))]
    page = Path(__file__).parents[2] / "docs" / "reference" / "ce-information.md"
    rows = [line.strip("|").split("|") for line in page.read_text().splitlines() if line.startswith("| ")]
    systems = [cell.strip() for cell in rows[0]]
    system = request.node.callspec.params["world"].removesuffix(" recorded").removesuffix(" double")
    system = system.removesuffix(" over ssh")
    if system not in systems:
        pytest.skip("it is documented nowhere")
    column = systems.index(system)
    documented = {row[0].strip(" `") for row in rows[1:] if len(row) > column and row[column].strip()}
    named = {name for name in published if name.startswith(("Glue", "Slurm", "Lsf", "Torque", "Unavailable"))}
    assert not named - documented
    if system not in ("sge", "arc", "pbs"):
        assert documented == named | (documented & {"SlurmGres", "UnavailableHosts"})
