"""The accounting database of a Slurm for tests: MariaDB and slurmdbd in the Slurm's folder, on free ports.

Debian's mariadb-server-core has the programs of MariaDB and no service, so nothing of the system is started or changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deadlines import PATIENCE
from tests.debian_packages import still_lacking
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.slurm import Cluster

PROGRAMS = ("mariadbd", "mariadb-install-db", "my_print_defaults", "slurmdbd", "sacctmgr", "sacct")
PACKAGES = ("slurmdbd", "mariadb-server-core", "mariadb-client-core")
PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
DATABASE = """\
DbdHost=localhost
DbdPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
PidFile={folder}/run/slurmdbd.pid
LogFile={folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StorageLoc=slurm_accounting
TrackWCKey=no
"""
GRANT = """\
create database slurm_accounting;
create user slurm@'127.0.0.1';
grant all on slurm_accounting.* to slurm@'127.0.0.1';
"""


@cache
def missing() -> str:
    """Why there is no accounting database here; empty: there is. As root on Debian the packages are installed."""
    if lacking := still_lacking(_lacking, PACKAGES):
        return f"Slurm's accounting cannot be tested: {', '.join(lacking)} not installed"
    return ""


def _lacking() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]


def require() -> None:
    """Skip the test where the packages cannot be had, also if `PILOTAGE_TEST_REQUIRE` names Slurm."""
    if reason := missing():
        pytest.skip(reason)


class AccountingDatabase:
    """MariaDB and slurmdbd of one cluster. slurmdbd writes nothing to disk in a hurry: tests lose it anyway."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._data = cluster.folder / "mariadb"
        self._storage = free_port()
        self.port = free_port()

    def settings(self) -> dict[str, str]:
        """Lines of slurm.conf."""
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "localhost",
            "AccountingStoragePort": str(self.port),
            "AccountingStoragePass": f"{self._cluster.folder}/run/munge.sock",
            "AccountingStorageEnforce": "associations,limits,qos",
            "JobAcctGatherType": "jobacct_gather/linux",
        }

    def start(self) -> None:
        """Start both daemons. The caller has written slurm.conf and started munge."""
        # A MariaDB that starts removes the temporary tables of all others in the same folder.
        temporary = self._cluster.folder / "mariadb-tmp"
        temporary.mkdir()
        subprocess.run(
            [
                *("mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"),
                *("--user=root", f"--datadir={self._data}", f"--tmpdir={temporary}", "--skip-test-db"),
            ],
            env={"PATH": PATH},
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )
        grants = self._cluster.folder / "grants.sql"
        grants.write_text(GRANT)
        self._cluster.start_daemon(
            "mariadbd",
            [
                *("mariadbd", "--no-defaults", "--user=root", f"--datadir={self._data}"),
                *(f"--socket={self._cluster.folder}/run/mariadb.sock", f"--port={self._storage}"),
                f"--tmpdir={temporary}",
                *("--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"),
                *("--innodb-buffer-pool-size=32M", "--aria-pagecache-buffer-size=8M"),
                *(f"--pid-file={self._cluster.folder}/run/mariadb.pid", f"--init-file={grants}"),
            ],
        )
        self._cluster.wait_until((self._cluster.folder / "run/mariadb.sock").exists, "MariaDB has no socket")
        self.start_slurmdbd()

    def start_slurmdbd(self) -> None:
        configuration: Path = self._cluster.folder / "slurmdbd.conf"
        configuration.write_text(
            DATABASE.format(port=self.port, folder=self._cluster.folder, storage=self._storage)
        )
        configuration.chmod(0o600)
        self._cluster.start_daemon("slurmdbd", ["slurmdbd", "-D"])
        self._cluster.wait_until(
            lambda: "Cluster" in self._cluster.run("sacctmgr", "show", "cluster"), "slurmdbd does not answer"
        )

    def change(self, *words: str) -> None:
        """One change by `sacctmgr`, such as `("add", "account", "physics")`."""
        done = subprocess.run(
            ["sacctmgr", "--immediate", *words],
            env=self._cluster.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"sacctmgr {' '.join(words)}: {done.stdout}{done.stderr}"
