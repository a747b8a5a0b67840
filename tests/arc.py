"""A small ARC CE for tests: A-REX and its REST interface in a folder of its own, on a free port, with its own test CA.

It neither uses nor changes an ARC or certificates of the system. Its jobs are processes of this machine, of an account
without rights. `PILOTAGE_TEST_REQUIRE=arc` turns skips into failures.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from pilotage.core.policy.batch_systems.arc import ArcOptions
from tests.arc_certificates import TestAuthority
from tests.batch_daemons import BatchDaemons, skip_or_fail
from tests.deadlines import PATIENCE
from tests.debian_packages import still_lacking
from tests.ports import free_port

AREX = "/usr/sbin/arched"
REST = "/usr/share/arc/arc-arex-ws-start"
PARSER = "/usr/lib/arc/arcconfig-parser"
PROGRAMS = (AREX, REST, PARSER)
PACKAGES = ("nordugrid-arc-arex", "nordugrid-arc-plugins-needed")
ACCOUNT = "nobody"
"""All identities are mapped to it."""
REACHABLE = "/tmp"
"""Where the account can enter; the folder for temporary files of tests may be private."""
PAUSES = (("scan-fork-job", "sleep 10", "sleep 1"), ("cancel-fork-job", "sleep 5", "sleep 2"))
"""Scripts for jobs that are processes, each with a pause and the shorter one in its place."""
INFORMATION_PERIOD = 2
"""Seconds between two looks of the CE at its batch system."""


@cache
def missing() -> str:
    """Why there is no ARC here; empty: there is. As root on Debian the packages are installed."""
    if lacking := still_lacking(_lacking, PACKAGES):
        return f"ARC cannot be tested: {', '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "ARC cannot be tested: its daemons are started as root here"


def _lacking() -> list[str]:
    return [program for program in PROGRAMS if not Path(program).exists()]


def require() -> None:
    """Skip the test where there is no ARC, or fail it if `PILOTAGE_TEST_REQUIRE` names ARC."""
    if reason := missing():
        skip_or_fail(reason, "arc")


class ArcCe(BatchDaemons):
    """A CE whose jobs are processes of this machine."""

    system = "ARC"
    controller = "arex-ws"

    def __init__(self, folder: Path, information_period: int = INFORMATION_PERIOD, **settings: str) -> None:
        """`settings` replace lines of the block [arex]."""
        super().__init__(folder)
        self._information_period = information_period
        self._settings = settings
        self.port = free_port()
        self.url = f"https://localhost:{self.port}/arex"
        self.authority = TestAuthority(folder / "certificates", "Test CA")
        self.host = self.authority.issue("localhost", folder / "host", server=True)
        self.client = self.authority.issue("pilots", folder / "client")
        for name in ("log", "run", "control", "session", "tmp", "vomsdir"):
            (folder / name).mkdir()
        self._forgotten = set[str]()
        folder.chmod(0o755)
        for name in ("session", "tmp"):
            (folder / name).chmod(0o1777)
        self.environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "ARC_CONFIG": str(folder / "arc.conf"),
            "TMPDIR": str(folder / "tmp"),
        }

    def options(self, **options: Any) -> ArcOptions:
        """The options of a CE that uses it."""
        own: dict[str, Any] = {
            "url": self.url,
            "certificate": str(self.client.certificate),
            "key": str(self.client.key),
            "ca": str(self.authority.folder),
        }
        return ArcOptions(**own | options)

    def jobs(self) -> list[str]:
        """The jobs that the CE keeps, ended ones too."""
        folders = [folder.name for folder in (self.folder / "session").iterdir() if folder.is_dir()]
        return [name for name in folders if name not in self._forgotten]

    def shown(self) -> str:
        """The descriptions and records of all jobs."""
        files = (self.folder / "control").rglob("*")
        return "".join(file.read_text(errors="replace") for file in files if file.is_file())

    def start(self) -> None:
        self._make_location()
        self._write_configuration()
        self.start_arex()
        self.start_rest()

    def start_arex(self) -> None:
        """Start the daemon that runs the jobs."""
        self._spawn("arex", [AREX, "-f", "-c", str(self.folder / "arex.xml")], self._arex_environment())

    def ensure_arex(self) -> None:
        """Start this daemon unless it runs."""
        process = self._daemons.get("arex")
        if process is None or process.poll() is not None:
            self.start_arex()

    def cancel_all(self) -> None:
        """End the processes of all jobs, as an administrator does. The CE finds that they have failed."""
        for pid in {pid for job in self.jobs() for pid in self.processes(job)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _arex_environment(self) -> dict[str, str]:
        return self.environment | {
            "ARC_CONFIG": str(self.folder / "run/arex.cfg"),
            "X509_USER_CERT": str(self.host.certificate),
            "X509_USER_KEY": str(self.host.key),
            "X509_CERT_DIR": str(self.authority.folder),
            "HOSTNAME": "localhost",
            "ARC_LOCATION": str(self.folder / "location"),
            "GLOBUS_LOCATION": "/usr",
        }

    def start_rest(self) -> None:
        """Start the daemon that answers clients, and wait until it listens."""
        self._spawn("arex-ws", [REST, "-f"], self.environment, new_session=True)
        self.wait_until(self._listens, "the REST interface does not listen")

    def restart(self) -> None:
        """End both daemons as a crash does, and start them again."""
        self.kill("arex")
        self.kill("arex-ws")
        self.start_arex()
        self.start_rest()

    def forget_jobs(self) -> None:
        """Lose the records of all jobs. Their processes go on, and nobody removes their folders."""
        self.kill("arex")
        self.kill("arex-ws")
        self._forgotten |= set(self.jobs())
        for path in (self.folder / "control").iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "dhparam.pem":
                path.unlink()
        self.start_arex()
        self.start_rest()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Kill the jobs of all, and end all daemons with their children."""
        for process in self._daemons.values():
            process.kill()
            process.wait(PATIENCE)
        self._daemons.clear()
        self._kill_jobs()

    def _kill_jobs(self) -> None:
        """Kill the processes that work in the folder: jobs, and children of daemons."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self, job: str = "") -> list[int]:
        """The processes of a job, or of all jobs and daemons."""
        wanted = str(self.folder / "session" / job) if job else str(self.folder)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    texts = (os.readlink(entry / "cwd"), (entry / "environ").read_text(errors="replace"))
                    if any(wanted in text for text in texts):
                        found.append(int(entry.name))
        return found

    def _make_location(self) -> None:
        """The programs of ARC, with shorter pauses in the scripts that end jobs and look for ended ones."""
        location, scripts = self.folder / "location", Path("/usr/share/arc")
        (location / "share/arc").mkdir(parents=True)
        for name in ("lib", "libexec", "sbin", "bin"):
            (location / name).symlink_to(f"/usr/{name}")
        for script in scripts.iterdir():
            (location / "share/arc" / script.name).symlink_to(script)
        for name, long, short in PAUSES:
            text = (scripts / name).read_text()
            assert long in text, f"{name} has another pause than {long}"
            changed = location / "share/arc" / name
            changed.unlink()
            changed.write_text(text.replace(long, short))
            changed.chmod(0o755)

    def _write_configuration(self) -> None:
        folder = self.folder
        (folder / "subjects").write_text(f'"{self.client.subject}"\n')
        arex = {
            "pidfile": f"{folder}/run/arex.pid",
            "logfile": f"{folder}/log/arex.log",
            "joblog": f"{folder}/log/jobs.log",
            "controldir": f"{folder}/control",
            "sessiondir": f"{folder}/session",
            "tmpdir": f"{folder}/tmp",
            "delegationdb": "sqlite",
            "wakeupperiod": "2",
            **self._settings,
        }
        parameters = ["openssl", "genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe2048"]
        # Otherwise the daemon makes its own, which takes minutes of a processor.
        subprocess.run(
            [*parameters, "-out", f"{folder}/control/dhparam.pem"], check=True, capture_output=True
        )
        lines = "\n".join(f"{name} = {value}" for name, value in arex.items())
        (folder / "arc.conf").write_text(
            f"""\
[common]
hostname = localhost
x509_host_key = {self.host.key}
x509_host_cert = {self.host.certificate}
x509_cert_dir = {self.authority.folder}
x509_voms_dir = {folder}/vomsdir
[authgroup:pilots]
file = {folder}/subjects
[mapping]
map_to_user = pilots {ACCOUNT}
[lrms]
lrms = fork
[arex]
{lines}
[arex/ws]
pidfile = {folder}/run/arex-ws.pid
logfile = {folder}/log/ws.log
wsurl = {self.url}
[arex/ws/jobs]
allowaccess = pilots
[infosys]
logfile = {folder}/log/info.log
[infosys/glue2]
[infosys/cluster]
[queue:fork]
"""
        )
        (folder / "arex.xml").write_text(
            f"""\
<?xml version="1.0"?>
<ArcConfig xmlns="http://www.nordugrid.org/schemas/ArcConfig/2007"
           xmlns:arex="http://www.nordugrid.org/schemas/a-rex/Config">
  <Server>
    <PidFile>{folder}/run/arex.pid</PidFile>
    <Logger><File>{folder}/log/arex.log</File><Level>INFO</Level></Logger>
  </Server>
  <ModuleManager><Path>/usr/lib/arc/</Path></ModuleManager>
  <Plugins><Name>arex</Name></Plugins>
  <Chain>
    <Service name="a-rex" id="a-rex">
      <arex:endpoint>{self.url}</arex:endpoint>
      <arex:gmconfig>{folder}/run/arex.cfg</arex:gmconfig>
      <arex:InfoproviderWakeupPeriod>{self._information_period}</arex:InfoproviderWakeupPeriod>
    </Service>
  </Chain>
</ArcConfig>
"""
        )
        parse = [PARSER, "--config", f"{folder}/arc.conf", "--runconfig", f"{folder}/run/arex.cfg", "--save"]
        subprocess.run(parse, check=True, env=self.environment, capture_output=True)


@contextmanager
def arc_ce(information_period: int = INFORMATION_PERIOD, **settings: str) -> Iterator[ArcCe]:
    """A running ARC."""
    require()
    folder = Path(tempfile.mkdtemp(prefix="arc-", dir=REACHABLE))
    made = ArcCe(folder, information_period, **settings)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
