"""A small Slurm for tests: munge, one controller and virtual nodes in a folder of its own, on free ports.

It neither uses nor changes a Slurm or munge of the system. `PILOTAGE_TEST_REQUIRE=slurm` turns skips into failures.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests import slurm_accounting
from tests.batch_daemons import BatchDaemons, skip_or_fail
from tests.deadlines import PATIENCE
from tests.debian_packages import still_lacking
from tests.namespaces import Namespace
from tests.ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")


@cache
def missing() -> str:
    """Why there is no Slurm here; empty: there is. As root on Debian the packages are installed."""
    if lacking := still_lacking(_lacking, PACKAGES):
        return f"Slurm cannot be tested: {', '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "Slurm cannot be tested: its daemons are started as root here"


def _lacking() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def require() -> None:
    """Skip the test where there is no Slurm, or fail it if `PILOTAGE_TEST_REQUIRE` names Slurm."""
    if reason := missing():
        skip_or_fail(reason, "slurm")


class Cluster(BatchDaemons):
    """Virtual nodes of this machine. `environment` is for the commands of clients."""

    system = "Slurm"
    controller = "slurmctld"

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        processors: int = 8,
        network: Namespace | None = None,
        *,
        name: str = "test",
        accounting: bool = False,
        features: Mapping[str, str] | None = None,
        sizes: Mapping[str, int] | None = None,
        **settings: str,
    ) -> None:
        """`network`: where all daemons run; None: this one. `settings` replace lines of slurm.conf.

        `features`: by node, separated by commas; None: n1 has `first`, the others have `other`.
        `sizes`: processors of nodes that have another number of them than `processors`.
        `accounting`: with a database of accounts and ended jobs, which has one account: `default`, for root.
        """
        super().__init__(folder)
        self._address = network.address if network is not None else "127.0.0.1"
        self._prefix = network.prefix if network is not None else ()
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._sizes = {node: (sizes or {}).get(node, processors) for node in self.nodes}
        self.name = name
        self.accounting = slurm_accounting.AccountingDatabase(self) if accounting else None
        self._features = features or {node: "first" if node == "n1" else "other" for node in self.nodes}
        self._settings = settings
        self._ports = [free_port() for _ in range(nodes + 1)]
        self.environment = {
            "PATH": _path(),
            "HOME": str(folder),
            "USER": getpass.getuser(),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        for name in ("log", "state", "run", *(f"spool/{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)

    def start(self) -> None:
        """Start all daemons and wait until every node is idle."""
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self.start_daemon(
            "munged",
            [
                "munged",
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={self.folder}/run/munge.sock",
                f"--pid-file={self.folder}/run/munged.pid",
                f"--log-file={self.folder}/log/munged.log",
                f"--seed-file={self.folder}/munge.seed",
            ],
        )
        self.wait_until((self.folder / "run/munge.sock").exists, "munge has no socket")
        self._write_configuration()
        if self.accounting is not None:
            self.accounting.start()
            self.accounting.change("add", "cluster", self.name)
            self.accounting.change("add", "account", "default", "description=default", "organization=tests")
            self.accounting.change("add", "user", getpass.getuser(), "account=default")
        self.start_controller()
        for node in self.nodes:
            self.start_daemon(node, ["slurmd", "-D", "-N", node])
        self.wait_until(
            lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(self.nodes)),
            "nodes are not idle",
        )

    def start_controller(self, *, cold: bool = False) -> None:
        """`cold`: without its saved state, so that it knows no job."""
        self.start_daemon("slurmctld", ["slurmctld", "-D", *(["-c"] if cold else [])])
        self.wait_until(lambda: "UP" in self.run("scontrol", "ping"), "the controller does not answer")

    def restart_controller(self) -> None:
        """Stop the controller, which saves its state then, and start it again."""
        self._terminate_controller()
        self.start_controller()

    def start_node(self, node: str) -> None:
        """Start the daemon of a node again, as after a reboot."""
        self.start_daemon(node, ["slurmd", "-D", "-N", node])

    def run(self, *command: str) -> str:
        """The output of a client command; its exit code is ignored."""
        done = subprocess.run(
            [*self._prefix, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        return done.stdout

    def cancel_all(self) -> None:
        """Kill the jobs of all users at once, and wait for their end."""
        if jobs := self.run("squeue", "-h", "-o", "%A").split():
            self.run("scancel", "--full", "--signal=KILL", *jobs)
            self.run("scancel", *jobs)
        self.wait_until(lambda: not self.run("squeue", "-h"), "jobs do not end")

    def stop(self) -> None:
        """Cancel the jobs of all users, and end all daemons even if a job does not end."""
        try:
            if "slurmctld" in self._daemons:
                if jobs := self.run("squeue", "-h", "-o", "%A").split():
                    self.run("scancel", *jobs)
                self.wait_until(lambda: not self.run("squeue", "-h"), "jobs do not end")
        finally:
            for process in reversed(self._daemons.values()):
                process.terminate()
            for process in self._daemons.values():
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._daemons.clear()

    def start_daemon(self, name: str, command: list[str]) -> None:
        """Start a daemon that ends with the cluster. Its output goes to the folder `log`."""
        self._spawn(name, [*self._prefix, *command], self.environment)

    def _write_configuration(self) -> None:
        host, folder = socket.gethostname().split(".")[0], self.folder
        settings = {
            "ClusterName": self.name,
            "SlurmctldHost": f"{host}({self._address})",
            "SlurmctldPort": str(self._ports[0]),
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/run/munge.sock",
            "CryptoType": "crypto/munge",
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/spool/%n",
            "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/run/slurmd.%n.pid",
            "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
            "SlurmdLogFile": f"{folder}/log/slurmd.%n.log",
            "GresTypes": "gpu",
            "ProctrackType": "proctrack/pgid",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "MpiDefault": "none",
            "SwitchType": "switch/none",
            "ReturnToService": "2",
            "SchedulerType": "sched/backfill",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "SlurmdParameters": "config_overrides",
            "SchedulerParameters": "sched_min_interval=0,default_queue_depth=1000,batch_sched_delay=0",
            "MinJobAge": "300",
            "KillWait": "5",
            "MessageTimeout": "10",
            **(self.accounting.settings() if self.accounting is not None else {}),
            **self._settings,
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        for node, port in zip(self.nodes, self._ports[1:], strict=True):
            cores = self._sizes[node]
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr={self._address} Port={port} CPUs={cores} Boards=1"
                f" SocketsPerBoard=1 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory={cores * 2000}"
                + (f" Feature={features}" if (features := self._features.get(node)) else "")
                + " State=UNKNOWN"
                + (" Gres=gpu:2" if node == "n2" else "")
            )
        # Slurm wants a file for each; these two stand for devices of n2.
        devices = [f"NodeName=n2 Name=gpu File=/dev/{device}\n" for device in ("null", "zero")]
        (folder / "gres.conf").write_text("".join(devices) if "n2" in self.nodes else "")
        names = ",".join(self.nodes)
        lines.append(
            f"PartitionName=short Nodes={names} Default=YES MaxTime=00:30:00 DefMemPerCPU=500 State=UP"
        )
        lines.append("PartitionName=long Nodes=n1 MaxTime=2-00:00:00 DefMemPerCPU=500 State=UP")
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")


@contextmanager
def cluster(
    nodes: int = 2,
    processors: int = 8,
    network: Namespace | None = None,
    *,
    name: str = "test",
    accounting: bool = False,
    features: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    **settings: str,
) -> Iterator[Cluster]:
    """A running Slurm. Its folder has a short path, since a socket's name is limited to 108 bytes."""
    require()
    if accounting:
        slurm_accounting.require()
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    made = Cluster(
        folder,
        nodes,
        processors,
        network,
        name=name,
        accounting=accounting,
        features=features,
        sizes=sizes,
        **settings,
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
