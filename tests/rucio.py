"""A real Rucio server for tests, on SQLite, with userpass authentication, in a folder of its own on a free port.

Rucio is installed once, into a folder of the user's cache, which all tests share. `PILOTAGE_TEST_RUCIO` names an
environment that has rucio and gunicorn already. `PILOTAGE_TEST_REQUIRE=rucio` turns skips into failures.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from pilotage.core.errors import NotFound
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.outside.catalogue.rucio.paths import relative_path
from pilotage.outside.catalogue.rucio.registration import FILES_AT_ONCE
from pilotage.outside.catalogue.rucio.session import RucioSession, did_path
from tests.batch_daemons import BatchDaemons, skip_or_fail
from tests.deadlines import PATIENCE
from tests.installed_environment import installed_environment
from tests.ports import free_port

PACKAGES = ("rucio==41.*", "gunicorn")
SCOPE = "data26"
PASSWORD = "a secret of the tests"

# Rucio looks for a memcached at port 11211, which a server of another test may have: no program listens at port 1.
_CONFIGURATION = """\
[common]
logdir = {folder}/log
loglevel = WARNING
[client]
rucio_host = {url}
auth_host = {url}
[database]
default = sqlite:///{folder}/rucio.db
[cache]
url = 127.0.0.1:1
[bootstrap]
userpass_identity = ddmlab
userpass_pwd = {password}
[policy]
permission = generic
schema = generic
[alembic]
cfg = {folder}/alembic.ini
"""
_ALEMBIC = """\
[alembic]
sqlalchemy.url = sqlite:///{folder}/rucio.db
script_location = {packages}/rucio/db/sqla/migrate_repo
[loggers]
keys = root
[handlers]
keys =
[formatters]
keys =
[logger_root]
level = WARN
handlers =
"""
_BUILD = (
    "from rucio.db.sqla.util import build_database, create_base_vo, create_root_account\n"
    "build_database(); create_base_vo(); create_root_account()"
)
_DAEMONS = (
    "from importlib import import_module as i\n"
    'for m in ("judge.evaluator", "judge.cleaner", "abacus.collection_replica", "undertaker.undertaker"):\n'
    '    i("rucio.daemons." + m).run(once=True)'
)


@cache
def environment_folder() -> tuple[Path, str]:
    """The environment with Rucio, and why there is none; it is made at the first call on a machine."""
    if given := os.environ.get("PILOTAGE_TEST_RUCIO"):
        return Path(given), ""
    return installed_environment("rucio-41", "Rucio", *PACKAGES)


def require() -> None:
    """Skip the test where there is no Rucio, or fail it if `PILOTAGE_TEST_REQUIRE` names rucio."""
    if reason := environment_folder()[1]:
        skip_or_fail(reason, "rucio")


class RucioServer(BatchDaemons):
    """One server with its database."""

    system = "Rucio"
    controller = "rucio"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._programs, _ = environment_folder()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.password_file = folder / "password"
        self.database = folder / "rucio.db"
        self._session: RucioSession | None = None

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "log").mkdir(exist_ok=True)
        self._configure()
        if not self.database.exists():
            self.python(_BUILD)
        self._spawn(
            self.controller,
            [
                *(str(self._programs / "bin" / "gunicorn"), "-c", str(self.folder / "gunicorn.py")),
                *(
                    "--bind",
                    f"127.0.0.1:{self.port}",
                    "--workers",
                    "1",
                    "--timeout",
                    "600",
                    "--graceful-timeout",
                    "1",
                ),
                *("--chdir", str(self.folder), "rucio.web.rest.flaskapi.v1.main:application"),
            ],
            self._environment,
        )
        self.wait_until(self._answers, "no answer")

    def _configure(self) -> None:
        [packages] = (self._programs / "lib").glob("python3*/site-packages")
        words = {"folder": self.folder, "url": self.url, "password": PASSWORD, "packages": packages}
        for name, text in (("rucio.cfg", _CONFIGURATION), ("alembic.ini", _ALEMBIC)):
            (self.folder / name).write_text(text.format(**words))
        (self.folder / "gunicorn.py").write_text("control_socket_disable = True\n")
        self.password_file.write_text(PASSWORD + "\n")
        self.password_file.chmod(0o600)

    @property
    def _environment(self) -> Mapping[str, str]:
        return os.environ | {
            "RUCIO_CONFIG": str(self.folder / "rucio.cfg"),
            "RUCIO_HOME": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "",
        }

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=PATIENCE) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def python(self, program: str) -> None:
        """Run a program in Rucio's environment, beside the server."""
        done = subprocess.run(
            [str(self._programs / "bin" / "python"), "-c", program],
            env=dict(self._environment),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def run_daemons(self) -> None:
        """One round of Rucio's own bookkeeping: rules, and the replicas of data sets."""
        self.python(_DAEMONS)

    def stop(self) -> None:
        if self.controller in self._daemons:
            self._terminate_controller()

    def expire_tokens(self) -> None:
        """Let the tokens of all log-ins end. The server keeps known ones in memory, so it is started again."""
        self.stop()
        with sqlite3.connect(self.folder / "rucio.db", timeout=PATIENCE) as database:
            database.execute("UPDATE tokens SET expired_at = '2020-01-01 00:00:00'")
        database.close()
        self.start()

    # --- contents

    @property
    def options(self) -> RucioOptions:
        return RucioOptions(
            url=self.url,
            auth="userpass",
            account="root",
            username="ddmlab",
            password_file=str(self.password_file),
        )

    @property
    def session(self) -> RucioSession:
        """Calls as root."""
        if self._session is None:
            self._session = RucioSession(self.options)
        return self._session

    def add_scope(self, scope: str = SCOPE) -> None:
        self.session.do("POST", f"/accounts/root/scopes/{scope}")

    def add_rse(self, name: str, prefix: str, *, deterministic: bool = True) -> None:
        """An RSE whose files lie below a folder of this machine, or below an address."""
        self.session.do("POST", f"/rses/{name}", {"deterministic": deterministic})
        rank = dict.fromkeys(("read", "write", "delete"), 1)
        address = urlsplit(prefix)
        protocol = {
            "hostname": address.hostname or "localhost",
            "port": address.port or 0,
            "prefix": address.path,
            "impl": f"rucio.rse.protocols.{'gfal' if address.scheme else 'posix'}.Default",
            "domains": {"lan": rank, "wan": rank},
        }
        self.session.do("POST", f"/rses/{name}/protocols/{address.scheme or 'file'}", protocol)
        self.session.do("POST", f"/accountlimits/local/root/{name}", {"bytes": -1})

    def add_container(self, name: str, scope: str = SCOPE) -> None:
        self.session.do("POST", f"/dids/{did_path(scope, name)}", {"type": "CONTAINER"})

    def add_dataset(
        self,
        name: str,
        rse: str,
        files: Sequence[Mapping[str, Any]],
        *,
        container: str = "",
        closed: bool = True,
        locked: bool = True,
        scope: str = SCOPE,
    ) -> None:
        """A data set with replicas of its files at an RSE, kept there by a rule if it is locked."""
        own = [{"scope": scope, **file} for file in files]
        self.session.do("POST", f"/dids/{did_path(scope, name)}", {"type": "DATASET"})
        for first in range(0, len(own), FILES_AT_ONCE):
            part = own[first : first + FILES_AT_ONCE]
            self.session.do("POST", "/replicas", {"rse": rse, "files": part, "ignore_availability": True})
            plain = [{key: file[key] for key in ("scope", "name", "bytes", "adler32")} for file in part]
            self.session.do("POST", f"/dids/{did_path(scope, name)}/dids", {"dids": plain})
        if locked:
            self.add_rule(name, rse, scope)
        if closed:
            self.close(name, scope)
        if container:
            child = {"dids": [{"scope": scope, "name": name}]}
            self.session.do("POST", f"/dids/{did_path(scope, container)}/dids", child)

    def add_rule(self, name: str, rse: str, scope: str = SCOPE) -> None:
        rule = {
            **{
                "dids": [{"scope": scope, "name": name}],
                "copies": 1,
                "rse_expression": rse,
                "account": "root",
            },
            **{
                "grouping": "DATASET",
                "lifetime": None,
                "locked": False,
                "weight": None,
                "activity": "User Subscriptions",
            },
        }
        self.session.do("POST", "/rules/", rule)

    def close(self, name: str, scope: str = SCOPE) -> None:
        self.session.do("PUT", f"/dids/{did_path(scope, name)}/status", {"open": False})

    def _rows(self, path: str, body: object = None) -> list[dict[str, Any]]:
        return list(self.session.rows(dict[str, Any], path, body))

    def did(self, name: str, scope: str = SCOPE) -> dict[str, Any]:
        return self.session.row(dict[str, Any], f"/dids/{did_path(scope, name)}")

    def is_closed(self, name: str, scope: str = SCOPE) -> bool:
        """Whether a data set or container is there and has ended."""
        try:
            return not self.did(name, scope)["open"]
        except NotFound:
            return False

    def children(self, name: str, scope: str = SCOPE) -> list[str]:
        return [row["name"] for row in self._rows(f"/dids/{did_path(scope, name)}/dids")]

    def files(self, name: str, scope: str = SCOPE) -> list[dict[str, Any]]:
        return self._rows(f"/dids/{did_path(scope, name)}/files")

    def rules(self, name: str, scope: str = SCOPE) -> list[dict[str, Any]]:
        return self._rows(f"/dids/{did_path(scope, name)}/rules")

    def path_of(self, name: str, scope: str = SCOPE) -> str:
        """The path of the only replica of a file."""
        return urlsplit(self.address_of(name, scope)).path

    def address_of(self, name: str, scope: str = SCOPE) -> str:
        """The address of the only replica of a file."""
        [row] = self._rows("/replicas/list", {"dids": [{"scope": scope, "name": name}]})
        [url] = row["pfns"]
        return str(url)

    def lose_replica(self, name: str, rse: str, scope: str = SCOPE) -> None:
        """A file of an RSE is declared bad."""
        body = {"reason": "lost", "rse": rse, "dids": [{"scope": scope, "name": name}]}
        self.session.do("POST", "/replicas/bad/dids", body)


def stored_file(folder: Path, name: str, contents: bytes, scope: str = SCOPE) -> dict[str, Any]:
    """Write a file where a deterministic RSE has it; returns its facts for `add_dataset`."""
    import zlib

    path = folder / relative_path("hash", scope, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    return {"name": name, "bytes": len(contents), "adler32": f"{zlib.adler32(contents):08x}"}


@contextmanager
def running_rucio(folder: Path) -> Iterator[RucioServer]:
    """A server with the scope of the tests."""
    require()
    server = RucioServer(folder)
    try:
        server.start()
        server.add_scope()
        yield server
    finally:
        server.stop()


class FaultyWay(ThreadingHTTPServer):
    """A way to a Rucio server that fails as a test wants it to."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.target = url
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.seen: list[str] = []
        """METHOD PATH of each request."""
        self.answer: Callable[[str], int] = lambda request: 0
        """The status of the answer to METHOD PATH in place of Rucio's; 0: the request is passed on, -1: no answer."""
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Passage(BaseHTTPRequestHandler):
    server: FaultyWay

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.command} {self.path}"
        self.server.seen.append(request)
        status = self.server.answer(request)
        if status < 0:
            self.close_connection = True
            return
        if status:
            self.send_response(status)
            self.end_headers()
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        answer = httpx.request(
            self.command, self.server.target + self.path, headers=headers, content=body, timeout=PATIENCE
        )
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "content-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_PUT = _pass_on

    def log_message(self, *_: object) -> None:
        pass
