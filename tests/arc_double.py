"""Answers of an ARC CE, as its REST interface gives them, for tests of what clients make of them."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.outside.batch.arc.adapter import ArcBatch
from pilotage.outside.batch.arc.rest import ArcClient
from pilotage.outside.batch.https_connection import HttpReply

URL = "https://ce.example.org:8443/arex"
NOW = 1_800_000_000.0

Fault = HttpReply | Exception


@dataclass
class DoubledJob:
    name: str
    state: str = "ACCEPTING"
    published: str = ""
    """Its state in the documents, which come later; empty: it has none yet."""
    files: dict[str, bytes] = field(default_factory=dict)
    failure: str = ""
    description: str = ""


@dataclass
class DoubledArc:
    """A CE in memory: an `BatchConnection`. Answers have the form of ARC 6.17."""

    jobs: dict[str, DoubledJob] = field(default_factory=dict)
    versions: str = "<versions>\n  <version>1.0</version>\n</versions>"
    information: str = ""
    faults: dict[str, Fault] = field(default_factory=dict)
    """By method and target, or a part of it: the answer in the place of the right one, until it is removed."""
    after: dict[str, Fault] = field(default_factory=dict)
    """The same, but the CE did what it was asked for."""
    refuse: Callable[[int], str] = lambda number: ""
    """The reason why the job of this number in a request is refused; empty: it is accepted."""
    calls: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    made: int = 0

    def add(self, name: str, state: str, published: str = "", **more: str) -> str:
        self.made += 1
        self.jobs[f"id{self.made}"] = DoubledJob(name, state, published, **more)  # type: ignore[arg-type]
        return f"id{self.made}"

    def targets(self, method: str) -> list[str]:
        return [target for asked, target, _ in self.calls if asked == method]

    def close(self) -> None:
        pass

    def send(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        self.calls.append((method, target, headers))
        _raise_or(self._fault(self.faults, method, target))
        if (reply := self._fault(self.faults, method, target)) is not None:
            assert isinstance(reply, HttpReply)
            return reply
        right = self._answer(method, target.removeprefix("/arex/rest"), body)
        wrong = self._fault(self.after, method, target)
        _raise_or(wrong)
        return wrong if isinstance(wrong, HttpReply) else right

    def _fault(self, faults: Mapping[str, Fault], method: str, target: str) -> Fault | None:
        return next((fault for part, fault in faults.items() if part in f"{method} {target}"), None)

    def _answer(self, method: str, path: str, body: bytes) -> HttpReply:
        if not path:
            return _ok(self.versions)
        path = path.removeprefix("/1.0/")
        if path.startswith("info"):
            return _ok(self.information)
        if method == "POST":
            return self._act(path.partition("action=")[2], body.decode())
        if path.startswith("jobs?state=") or path == "jobs":
            return _ok(self._listing("state" in path))
        _, id_, kind, name = path.split("/", 3)
        if id_ not in self.jobs:
            return HttpReply(404, "Job not found")
        return self._file(method, self.jobs[id_], kind, name, body)

    def _file(self, method: str, job: DoubledJob, kind: str, name: str, body: bytes) -> HttpReply:
        if method == "PUT":
            job.files[name] = body
            return HttpReply(200, "OK")
        control = {
            "local": f"globalid=x\njobname={job.name}\n",
            "failed": job.failure,
            "description": job.description,
        }
        content = job.files.get(name) if kind == "session" else control[name].encode()
        if not content:
            return HttpReply(404, "Not found")
        return HttpReply(200, "OK", b"" if method == "HEAD" else content, len(content))

    def _listing(self, with_states: bool) -> str:
        lines = "".join(
            f"<job><id>{id_}</id>{f'<state>{job.state}</state>' if with_states else ''}</job>"
            for id_, job in self.jobs.items()
        )
        return f"<jobs>{lines}</jobs>" if lines else "<jobs/>"

    def _act(self, action: str, body: str) -> HttpReply:
        if action == "new":
            names = re.findall("<Name>(pilotage-[^<]*)</Name>", body)
            return _ok(
                f"<jobs>{''.join(self._new(number, name) for number, name in enumerate(names))}</jobs>"
            )
        ids = re.findall("<id>([^<]*)</id>", body)
        return _ok(f"<jobs>{''.join(self._one(action, id_) for id_ in ids)}</jobs>")

    def _new(self, number: int, name: str) -> str:
        if reason := self.refuse(number):
            return f"<job><status-code>500</status-code><reason>{reason}</reason></job>"
        id_ = self.add(name, "ACCEPTING")
        return f"<job><status-code>201</status-code><reason>Created</reason><id>{id_}</id></job>"

    def _one(self, action: str, id_: str) -> str:
        job = self.jobs.get(id_)
        if job is None:
            return f"<job><status-code>404</status-code><reason>Job not found</reason><id>{id_}</id></job>"
        told = f"<id>{id_}</id>"
        if action == "kill":
            job.state, job.failure = "FAILED", "Job is canceled by external request"
        elif action == "clean":
            del self.jobs[id_]
        elif action == "status":
            told += f"<state>{job.published or job.state}</state>"
        elif job.published:
            space = "http://schemas.ogf.org/glue/2009/03/spec_2.0_r1"
            told += (
                f'<info_document><ComputingActivity xmlns="{space}"><Name>{job.name}</Name></ComputingActivity>'
                "</info_document>"
            )
        return f"<job><status-code>202</status-code><reason>OK</reason>{told}</job>"


def _ok(text: str) -> HttpReply:
    return HttpReply(200, "OK", text.encode(), len(text))


def _raise_or(fault: Fault | None) -> None:
    if isinstance(fault, Exception):
        raise fault


def adapter(ce: DoubledArc, environment: Mapping[str, str] | None = None, **options: Any) -> ArcBatch:
    """The adapter of a CE in memory, with a token of the environment."""

    def connect(host: str, port: int, context: ssl.SSLContext, timeout: float) -> DoubledArc:
        assert (host, port) == ("ce.example.org", 8443)
        return ce

    known = {"BEARER_TOKEN": "word"} if environment is None else environment
    # To read the CAs of the system takes a while.
    chosen = ArcOptions(url=URL, ca=str(Path(__file__).parent), **options)
    client = ArcClient(chosen, known, 1000, 30.0, connect, lambda: NOW)
    return ArcBatch(client, chosen, lambda: NOW)
