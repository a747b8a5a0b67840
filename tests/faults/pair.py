"""Two servers, each with a home of its own, on one PostgreSQL database."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.instance import Instance


class Pair:
    """`first` and `second`; pilots that one starts speak to the other."""

    def __init__(self, folder: Path, url: str, **policy: Any) -> None:
        self.url = url
        self.shared = folder / "sandboxes"
        self.servers = [Instance(folder / name, database_url=url, **policy) for name in ("a", "b")]
        for one in self.servers:
            one.home.parent.mkdir()
        self.first, self.second = self.servers

    def start(self, *, upgrade: bool = True) -> None:
        if upgrade:
            assert self.first.cli("db", "upgrade").returncode == 0
        self.launch(self.first)
        self.first.apply()
        secrets = self.second.home / "secrets"
        secrets.mkdir(parents=True, mode=0o700)
        self.second.home.chmod(0o700)
        shutil.copy(self.first.home / "secrets" / "signing.key", secrets / "signing.key")
        self.launch(self.second)

    def launch(self, one: Instance, *, wait: bool = True) -> None:
        other = self.second if one is self.first else self.first
        to_other = ("--pilot-server", f"http://127.0.0.1:{other.port}")
        one.start("--sandboxes", str(self.shared), *to_other, "--verbose", wait=wait)

    def sql(self, text: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url) as session:
            return session.execute(text.encode()).fetchall()

    def close(self) -> None:
        for one in self.servers:
            one.close()


class Reigns:
    """Watches, by the clock of the database, when no server matches any more by a version of the policy."""

    def __init__(self, url: str) -> None:
        self.superseded: dict[int, float] = {}
        self._url = url
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        sql = b"SELECT extract(epoch FROM clock_timestamp())::float8, min(policy_version) FROM servers"
        oldest = 0
        with psycopg.connect(self._url, autocommit=True) as session:
            while not self._end.wait(0.02):
                at, now = session.execute(sql).fetchone() or (time.time(), None)
                for version in range(oldest, now or 0):
                    # The statement's snapshot is older than its clock: what it has seen was so by then.
                    self.superseded[version] = at
                oldest = max(oldest, now or 0)

    def __enter__(self) -> Reigns:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
