"""A small Grid Engine for tests: a master, one execution host and its queues in a folder of its own, on free ports.

It neither uses nor changes a Grid Engine of the system. `PILOTAGE_TEST_REQUIRE=sge` turns skips into failures.

One machine is one host of Grid Engine. Queues with values of complexes of their own stand for hosts of several kinds:
the scheduler treats each queue on the host like a host.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from pilotage.outside.batch.sge.cell import Cell
from tests.batch_daemons import BatchDaemons, skip_or_fail
from tests.deadlines import PATIENCE
from tests.debian_packages import still_lacking
from tests.instance import processes_with
from tests.ports import free_port

PROGRAMS = (
    "sge_qmaster",
    "sge_execd",
    "spoolinit",
    "spooldefaults",
    "qsub",
    "qstat",
    "qconf",
    "qacct",
    "qping",
)
PACKAGES = ("gridengine-master", "gridengine-exec", "gridengine-client")
BINARIES = "/usr/lib/gridengine"
"""Debian's programs, without the shell script around each."""
RESOURCES = Path("/usr/share/gridengine")

PE = "smp"
"""The parallel environment of every queue."""


@cache
def missing() -> str:
    """Why there is no Grid Engine here; empty: there is. As root on Debian the packages are installed."""
    if lacking := still_lacking(_lacking, PACKAGES):
        return f"Grid Engine cannot be tested: {', '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "Grid Engine cannot be tested: its daemons are started as root here"


def _lacking() -> list[str]:
    programs = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    return programs + ([] if RESOURCES.is_dir() else [str(RESOURCES)])


def _path() -> str:
    return f"{BINARIES}:{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


def require() -> None:
    """Skip the test where there is no Grid Engine, or fail it if `PILOTAGE_TEST_REQUIRE` names sge."""
    if reason := missing():
        skip_or_fail(reason, "sge")


class GridEngine(BatchDaemons):
    """One cell. `environment` is for the commands of clients."""

    system = "Grid Engine"
    controller = "qmaster"

    def __init__(self, folder: Path, queues: Mapping[str, Mapping[str, str]], slots: int) -> None:
        """`queues`: further lines of each queue, such as complex_values, by its name."""
        super().__init__(folder)
        self.host = socket.gethostname().split(".")[0]
        self._queues = queues
        self._temporary = self.folder / "tmp"
        self._slots = slots
        self._common = folder / "default" / "common"
        self._master_spool = folder / "spool" / "qmaster"
        master, execution = free_port(), free_port()
        self.environment = {
            "PATH": _path(),
            "HOME": str(folder),
            "USER": getpass.getuser(),
            "SGE_ROOT": str(folder),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(master),
            "SGE_EXECD_PORT": str(execution),
        }
        folder.chmod(0o755)

    @property
    def cell(self) -> Cell:
        return Cell.of(self.environment)

    def start(self) -> None:
        """Start both daemons and wait until every queue is ready."""
        self._make_folders()
        self._make_spool()
        self.start_master()
        self._configure()
        self.start_host()
        self.wait_until(self._is_ready, "queues are not ready")

    def _is_ready(self) -> bool:
        # A queue that is ready has an architecture and no letters of a state.
        lines = [line.split() for line in self.run("qstat", "-f").splitlines() if "@" in line]
        return len(lines) == len(self._queues) and all(
            len(words) == 5 and words[4].startswith("lx") for words in lines
        )

    def start_master(self) -> None:
        self._start_daemon("qmaster", "sge_qmaster")
        self.wait_until(lambda: self.host in self.run("qconf", "-sss"), "the master does not answer")

    def start_host(self) -> None:
        self._start_daemon("execd", "sge_execd")

    def restart_master(self) -> None:
        """Stop the master, which saves its state then, and start it again."""
        self._terminate_controller()
        self.start_master()

    def run(self, *command: str, text: str = "") -> str:
        """The output of a command; its exit code is ignored."""
        try:
            done = self._call(*command, text=text)
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout

    def cancel_all(self) -> None:
        """Delete all jobs, also such that do not end by themselves, and wait for their end."""
        self.run("qdel", "-f", "-u", "*")
        self.wait_until(lambda: not self.run("qstat", "-u", "*"), "jobs do not end")

    def processes(self, batch_id: str) -> list[int]:
        """The processes of a batch job, by the variables that Grid Engine gives them."""
        job, _, task = batch_id.partition(".")
        return processes_with(SGE_ROOT=str(self.folder), JOB_ID=job, SGE_TASK_ID=task)

    def change(self, option: str, text: str, name: str = "change") -> None:
        """Call `qconf OPTION FILE` with a file of this text and name."""
        path = self.folder / "changes" / name
        path.write_text(text)
        done = self._call("qconf", option, str(path))
        assert done.returncode == 0, done.stderr + done.stdout

    def replace_settings(self, show: str, modify: str, name: str = "change", **settings: str) -> None:
        """Replace lines of a configuration of the master, such as `-sconf` and `-Mconf`."""
        lines = self.run("qconf", show).splitlines()
        kept = [line for line in lines if line.split(" ", 1)[0] not in settings]
        self.change(
            modify, "\n".join([*kept, *(f"{key} {value}" for key, value in settings.items()), ""]), name
        )

    def replace_queue(self, queue: str, **settings: str) -> None:
        """Replace lines of a queue, such as prolog."""
        lines = self.run("qconf", "-sq", queue).splitlines()
        kept = [line for line in lines if line.split(" ", 1)[0] not in settings]
        self.change("-Mq", "\n".join([*kept, *(f"{key} {value}" for key, value in settings.items()), ""]))

    def limit(self, **limits: str) -> None:
        """Set values of the cell's configuration, such as max_u_jobs."""
        self.replace_settings("-sconf", "-Mconf", "global", **limits)

    def _call(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(command),
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            cwd="/",
        )

    def stop(self) -> None:
        """Cancel the jobs of all users, and end all daemons even if a job does not end."""
        try:
            if {"qmaster", "execd"} <= set(self._daemons):
                self.run("qdel", "-u", "*")
                self.wait_until(lambda: not self.run("qstat", "-u", "*"), "jobs do not end")
        finally:
            if (execution := self._daemons.pop("execd", None)) is not None:
                execution.terminate()
                with suppress(subprocess.TimeoutExpired):
                    execution.wait(PATIENCE)
                execution.kill()
                execution.wait()
            # The master takes 10 s to stop by itself, and its state is thrown away.
            for daemon in tuple(self._daemons):
                self.kill(daemon)

    def _logs(self, ended: Collection[str]) -> list[Path]:
        return list(self.folder.rglob("messages"))

    def _start_daemon(self, name: str, program: str) -> None:
        self._spawn(name, [program], {**self.environment, "SGE_ND": "1"}, new_session=True)

    def _make_folders(self) -> None:
        for path in (self._common, self._master_spool / "job_scripts", self.folder / "spool" / "execd"):
            path.mkdir(parents=True)
        for path in (self.folder / "log", self.folder / "changes", self._temporary):
            path.mkdir()
        (self.folder / "util").symlink_to(RESOURCES / "util")
        name, aliases, _ = socket.gethostbyaddr(socket.gethostbyname(self.host))
        names = dict.fromkeys([self.host, "localhost", name, *aliases])
        (self._common / "act_qmaster").write_text(f"{self.host}\n")
        (self._common / "host_aliases").write_text(" ".join(names) + "\n")
        bootstrap = {
            "admin_user": "none",
            "default_domain": "none",
            "ignore_fqdn": "true",
            "spooling_method": "classic",
            "spooling_lib": "libspoolc",
            "spooling_params": f"{self._common};{self._master_spool}",
            "binary_path": BINARIES,
            "qmaster_spool_dir": str(self._master_spool),
            "security_mode": "none",
            "listener_threads": "2",
            "worker_threads": "2",
            "scheduler_threads": "1",
        }
        (self._common / "bootstrap").write_text(
            "".join(f"{key} {value}\n" for key, value in bootstrap.items())
        )

    def _make_spool(self) -> None:
        """Make the master's state, as the package's own script does."""
        changes = self.folder / "changes"
        # Sessions of tests run beside each other: each has groups of its own for its jobs' processes.
        first = 1_000_000 + 100 * int(self.environment["SGE_QMASTER_PORT"])
        settings = {
            "execd_spool_dir": str(self.folder / "spool" / "execd"),
            "min_uid": "0",
            "min_gid": "0",
            "load_report_time": "00:00:01",
            "gid_range": f"{first}-{first + 99}",
            "reporting_params": (
                "accounting=true reporting=false accounting_flush_time=00:00:00 flush_time=00:00:01"
                " joblog=false sharelog=00:00:00"
            ),
        }
        lines = (RESOURCES / "default-configuration").read_text().splitlines()
        kept = [line for line in lines if line.split()[:1] and line.split()[0] not in settings]
        lines = [*kept, *(f"{key} {value}" for key, value in settings.items()), ""]
        (changes / "configuration").write_text("\n".join(lines))
        complexes = changes / "complexes"
        shutil.copytree(RESOURCES / "util" / "resources" / "centry", complexes)
        (complexes / "si00").write_text(
            "name si00\nshortcut si00\ntype INT\nrelop <=\nrequestable YES\nconsumable NO\ndefault 0\nurgency 0\n"
        )
        for command in (
            ("spoolinit", "classic", "libspoolc", f"{self._common};{self._master_spool}", "init"),
            ("spooldefaults", "configuration", str(changes / "configuration")),
            ("spooldefaults", "complexes", str(complexes)),
            ("spooldefaults", "usersets", str(RESOURCES / "util" / "resources" / "usersets")),
            ("spooldefaults", "managers", getpass.getuser()),
        ):
            done = self._call(*command)
            assert done.returncode == 0, done.stderr + done.stdout

    def _configure(self) -> None:
        self.run("qconf", "-ah", self.host)
        self.run("qconf", "-as", self.host)
        self.change("-Ahgrp", f"group_name @allhosts\nhostlist {self.host}\n")
        self.change(
            "-Ap",
            f"pe_name {PE}\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\n"
            "allocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task TRUE\nurgency_slots min\n"
            "accounting_summary FALSE\nqsort_args NONE\n",
        )
        self.replace_settings(
            "-ssconf",
            "-Msconf",
            schedule_interval="0:0:1",
            flush_submit_sec="1",
            flush_finish_sec="1",
            load_adjustment_decay_time="0:0:0",
            job_load_adjustments="NONE",
        )
        for name, lines in self._queues.items():
            settings = {
                "qname": name,
                "hostlist": "@allhosts",
                "slots": str(self._slots),
                "load_thresholds": "NONE",
                "pe_list": PE,
                "shell_start_mode": "unix_behavior",
                "notify": "00:00:10",
                "h_rt": "00:30:00",
                # Cells number their jobs alike: in one folder they would remove each other's.
                "tmpdir": str(self._temporary),
                **lines,
            }
            self.replace_settings("-sq", "-Aq", **settings)


@contextmanager
def grid_engine(
    queues: Mapping[str, Mapping[str, str]] | None = None, slots: int = 16
) -> Iterator[GridEngine]:
    """A running Grid Engine with these queues; by default `all.q`. `slots`: of each queue.

    `{"slow.q": {"complex_values": "si00=400"}, "fast.q": {"complex_values": "si00=600"}}` makes two kinds of hosts.
    """
    require()
    folder = Path(tempfile.mkdtemp(prefix="sge-"))
    made = GridEngine(folder, queues or {"all.q": {}}, slots)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
