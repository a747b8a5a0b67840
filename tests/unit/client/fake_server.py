"""A server that answers like ours as far as the client's tests need it: one process, one dictionary."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import ssl
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pilotage.wire.uploads import split_bundle


@dataclass
class State:
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[int, dict[str, bytes]] = field(default_factory=dict)
    logs: dict[int, bytes] = field(default_factory=dict)
    attempt_logs: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By job and attempt."""
    uploads: dict[str, bytes] = field(default_factory=dict)
    submissions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By key."""
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By key: the request, the rows of each chunk, whether it is open."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)
    """What to answer instead, one for each request: (status, body), "hang up", or "hang up after"."""
    checks: list[Any] = field(default_factory=list)
    """Bodies of submissions that were only to be checked."""
    warnings: list[str] = field(default_factory=list)
    """What each submission to be checked is told."""
    page: int = 1000
    refreshed: str = ""
    policies: list[str] = field(default_factory=lambda: ["# one\n", "# two\n", "# none\n"])
    """The texts of all versions."""
    left: dict[str, Any] = field(default_factory=dict)
    """What a change of the policy is answered besides."""
    lost: dict[int, list[str]] = field(default_factory=dict)
    """Outputs that the server cannot read."""
    archive: Callable[[bytes], bytes] = lambda data: data
    """What becomes of a tar stream on its way."""
    made: dict[str, Any] = field(default_factory=dict)
    """What jobs of new submissions are besides."""
    seen: list[Any] = field(default_factory=list)
    """Bodies of actions, policies, shutdowns."""

    changes: list[Any] = field(default_factory=list)
    """Answers of the change feed in turn, pages or (status, error); none: a change each time."""

    def paths(self, method: str = "") -> list[str]:
        return [path for verb, path in self.requests if not method or verb == method]


def job(number: int, state: str = "Done", **more: Any) -> dict[str, Any]:
    base = {
        "id": number, "submission": 1, "state": state, "reason": "", "owner": "ada", "group": "lab", "name": "n",
        "job_group": "", "job_type": "User", "user_priority": 1, "queue": 1, "epoch": 1, "attempt": 1,
        "failures": 0, "site": "here", "ce": "local", "pilot": 3, "hostname": "node", "exit_code": 0,
        "submitted": 1000.0, "started": 1001.0, "ended": 1002.0, "a_later_field": True,
    }  # fmt: skip
    return {**base, **more}


FINAL = ("Done", "Failed", "Killed", "Deleted")


def token(issued: float, expires: float) -> str:
    claims = (
        base64.urlsafe_b64encode(
            json.dumps({"iat": issued, "exp": expires, "sub": "ada", "grp": "lab"}).encode()
        )
        .decode()
        .rstrip("=")
    )
    return f"e30.{claims}.c2ln"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def error(self, status: int, code: str, message: str = "no") -> None:
        self.answer({"code": code, "message": message, "hint": "try"}, status)

    def handle_any(self) -> None:
        address = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.state.requests.append((self.command, address.path))
        self.state.tokens.append(self.headers.get("Authorization", ""))
        after = False
        if self.state.failures:
            failure = self.state.failures.pop(0)
            after = failure == "hang up after"
            if failure == "hang up":
                self.close_connection = True
                return
            if failure and not after:
                self.answer(failure[1], failure[0], failure[2] if len(failure) > 2 else None)
                return
        if after:
            self.answer, kept = lambda *_: None, self.answer  # type: ignore[method-assign]
            self.route(address.path, parse_qs(address.query), body)
            self.answer = kept  # type: ignore[method-assign]
            self.close_connection = True
            return
        self.route(address.path, parse_qs(address.query), body)

    do_GET = do_POST = do_PUT = do_HEAD = handle_any

    def route(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        parts = path.strip("/").split("/")[1:]
        name = parts[0]
        if name == "jobs" and len(parts) > 1 and self.command == "GET":
            self.one_job(int(parts[1]), parts[2:], query)
            return
        handler = getattr(self, f"on_{name.replace('-', '_')}", None)
        if handler is None or parts[0] == "pilots" != parts[-1] or parts[-1] in ("revoke", "rotate-key"):
            self.error(404, "not-found", f"there is no {path} here")
        else:
            handler(parts[1:], query, body)

    def chosen(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        jobs = [self.state.jobs[number] for number in sorted(self.state.jobs)]
        if "ids" in query:
            jobs = [one for one in jobs if str(one["id"]) in query["ids"]]
        if "submission" in query:
            jobs = [one for one in jobs if str(one["submission"]) == query["submission"][0]]
        if "states" in query:
            jobs = [one for one in jobs if one["state"] in query["states"]]
        if "outputs_incomplete" in query:
            jobs = [one for one in jobs if one.get("outputs_incomplete")]
        if "for_request" in query:
            wanted = query["for_request"] == ["true"]
            jobs = [one for one in jobs if one.get("for_request", False) is wanted]
        return jobs

    def on_jobs(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        if self.command == "POST":
            request = json.loads(body)
            self.state.seen.append((parts[0], request))
            matched = self.chosen(
                {k: [str(v)] for k, v in request["selection"].items() if isinstance(v, int)}
            )
            self.answer({"matched": len(matched), "done": len(matched)})
            return
        after, limit = (
            int(query.get("after", ["0"])[0]),
            min(int(query.get("limit", ["100"])[0]), self.state.page),
        )
        jobs = [one for one in self.chosen(query) if one["id"] > after]
        if "newest" in query:
            jobs = [one for one in reversed(self.chosen(query)) if not after or one["id"] < after]
        more = jobs[limit - 1]["id"] if len(jobs) > limit else None
        self.answer({"jobs": jobs[:limit], "next": more})

    def on_duties(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        self.answer({"duties": ["leases"], "failing": [], "count": 0})

    def on_counts(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        states: dict[str, int] = {}
        for one in self.chosen(query):
            states[one["state"]] = states.get(one["state"], 0) + 1
        final = sum(number for state, number in states.items() if state in FINAL)
        self.answer({"states": states, "total": sum(states.values()), "final": final})

    def on_changes(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        """A change at once, each time: the client counts its jobs."""
        if self.state.changes:
            told = self.state.changes.pop(0)
            status, content = told if isinstance(told, tuple) else (200, told)
            self.answer(content, status)
            return
        change = {"kind": "job", "id": next(iter(self.state.jobs), 1), "state": "Running", "at": 1.0}
        self.answer({"changes": [change] if query.get("after") else [], "cursor": "1.0.0.0.0.0.1"})

    def one_job(self, number: int, parts: list[str], query: dict[str, list[str]]) -> None:
        if number not in self.state.jobs:
            self.error(404, "not-found", f"there is no job {number}")
            return
        row, outputs = self.state.jobs[number], self.state.outputs.get(number, {})
        listed = [{"name": name, "size": len(data)} for name, data in outputs.items()]
        if not parts:
            self.answer({"job": row, "description": {}, "attempts": [], "outputs": listed})
        elif parts == ["outputs"]:
            self.answer(listed)
        elif parts[0] == "outputs":
            self.answer(outputs[unquote("/".join(parts[1:]))])
        elif parts[0] == "logs":
            offset = int(query.get("offset", ["0"])[0])
            attempt = int(query.get("attempt", ["0"])[0])
            text = self.state.attempt_logs[number, attempt] if attempt else self.state.logs.get(number, b"")
            data = text[offset : offset + 5]
            self.answer(data, 200, {"X-Pilotage-State": row["state"], "X-Pilotage-Offset": str(offset)})
        elif parts == ["ad"]:
            self.answer({"job": number, "queue": 1, "owner": "ada", "group": "lab", "ad": '[Owner = "ada"]'})
        elif parts == ["why"]:
            self.answer({"job": number, "state": row["state"], "summary": "it does not wait"})
        else:
            event = {
                "at": 1.0,
                "kind": "submitted",
                "old": "",
                "new": "Waiting",
                "epoch": 0,
                "actor": "user:ada",
            }
            self.answer([event])

    def on_outputs(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        """The tar stream; `archive` of the state changes its bytes."""
        request = json.loads(body)
        ids = [
            one
            for one in request["selection"]["ids"]
            if one in self.state.jobs and one > request.get("after", 0)
        ]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", errors="surrogateescape") as archive:
            for number in sorted(ids):
                files = self.state.outputs.get(number, {})
                lost = self.state.lost.get(number, [])
                for name, data in files.items():
                    if not request.get("names_only"):
                        entry = tarfile.TarInfo(f"{number}/{name}")
                        entry.size = len(data)
                        archive.addfile(entry, io.BytesIO(data))
                entry = tarfile.TarInfo(f"{number}/")
                entry.type = tarfile.DIRTYPE
                listed = [{"name": name, "size": len(data)} for name, data in files.items()]
                told = {"id": number, "state": "Done", "outputs": listed, "lost": lost}
                entry.pax_headers = {"PILOTAGE.outputs": json.dumps(told)}
                archive.addfile(entry)
        self.answer(self.state.archive(buffer.getvalue()))

    def on_submissions(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        if parts[-1:] == ["check"]:
            request = json.loads(body)
            self.state.checks.append(request)
            self.answer({"count": 1, "warnings": self.state.warnings})
            return
        if parts:
            self.on_stream(parts, query, body)
            return
        request = json.loads(body)
        missing = [one["digest"] for one in request["inputs"] if one["digest"] not in self.state.uploads]
        if missing:
            self.error(400, "invalid-input", f"not uploaded: {missing}")
            return
        if request["key"] not in self.state.submissions:
            count = len((request["parameters"] or {"rows": [1]})["rows"])
            number = len(self.state.submissions) + 1
            first = max(self.state.jobs, default=0) + 1
            for one in range(first, first + count):
                self.state.jobs[one] = job(one, submission=number, **self.state.made)
            made = {
                "submission": number,
                "first": first,
                "last": first + count - 1,
                "count": count,
                "queue": 1,
            }
            self.state.submissions[request["key"]] = {"answer": made, "request": request}
        self.answer(self.state.submissions[request["key"]]["answer"])

    def on_stream(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        """Rows in chunks: as the server does it, without any job."""
        streams = self.state.streams
        if parts == ["open"]:
            request = json.loads(body)
            stream = streams.setdefault(
                request["key"],
                {"id": len(streams) + 1, "request": request, "chunks": [], "digests": [], "open": True},
            )
            self.answer(
                {"submission": stream["id"], "queue": 1, "open": stream["open"], "names": request["names"],
                 "chunks": len(stream["chunks"]), "count": sum(map(len, stream["chunks"]))}
            )  # fmt: skip
            return
        stream = next(one for one in streams.values() if one["id"] == int(parts[0]))
        count = sum(map(len, stream["chunks"]))
        if parts[1] == "close":
            if json.loads(body)["count"] != count:
                self.error(409, "conflict", "another count")
                return
            stream["open"] = False
            self.answer({"submission": stream["id"], "first": 1, "last": count, "count": count, "queue": 1})
        elif self.command == "PUT":
            number, digest = int(parts[2]), hashlib.sha256(body).hexdigest()
            if number == len(stream["chunks"]) and stream["open"]:
                stream["chunks"].append(json.loads(body))
                stream["digests"].append(digest)
            elif number >= len(stream["chunks"]) or stream["digests"][number] != digest:
                self.error(409, "conflict", "other rows")
                return
            self.answer({"number": number, "first": 1, "count": len(stream["chunks"][number])})
        else:
            begin = int(query.get("after", ["-1"])[0]) + 1
            end = begin + self.state.page
            known = [
                {"number": number, "count": len(rows), "digest": stream["digests"][number]}
                for number, rows in enumerate(stream["chunks"])
            ]
            more = end - 1 if len(known) > end else None
            self.answer({"chunks": known[begin:end], "next": more})

    def on_uploads(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        if self.command == "POST":
            asked = json.loads(body)["digests"]
            self.answer({"missing": [digest for digest in asked if digest not in self.state.uploads]})
        elif not parts:
            self.state.uploads.update(split_bundle(body))
            self.answer({}, 201)
        elif self.command == "HEAD":
            self.answer(b"", 200 if parts[0] in self.state.uploads else 404)
        elif hashlib.sha256(body).hexdigest() != parts[0]:
            self.error(400, "invalid-input", "another digest")
        else:
            self.state.uploads[parts[0]] = body
            self.answer({}, 201)

    def on_issuers(self, parts: list[str], *_: object) -> None:
        self.answer({"name": parts[1], "url": "https://iam.example.org"} if len(parts) > 1 else [])

    def on_whoami(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        self.answer({"user": "ada", "group": "lab", "properties": [], "expires": 2e9, "server_version": "9"})

    def on_tokens(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        text = self.state.refreshed or "made-for-someone"
        self.answer({"token": text, "expires": 2e9, "user": "ada", "group": "lab"})

    def on_queues(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        self.answer({"queues": []})

    def on_pilots(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        self.answer({"pilots": []})

    def on_sites(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        site = {"name": "here", "ces": ["local"], "pilots": {"Running": 2}, "running": 1, "waiting": 0}
        self.answer([site] if self.command == "GET" else site)

    def on_policy(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        texts = self.state.policies
        if self.command != "GET":
            self.state.seen.append(json.loads(body))
        if parts == ["versions"]:
            after, limit = (
                int(query.get("after", ["0"])[0]),
                min(int(query.get("limit", ["100"])[0]), self.state.page),
            )
            known = [one for one in range(len(texts), 0, -1) if not after or one < after]
            rows = [{"version": one, "applied_at": one, "applied_by": "ada", "reason": "r"} for one in known]
            self.answer({"versions": rows[:limit], "next": known[limit - 1] if len(rows) > limit else None})
            return
        version, text = len(texts), texts[-1]
        if parts[:1] == ["versions"]:
            version = int(parts[1])
        elif parts == ["rollback"]:
            version = self.state.seen[-1]["version"]
        elif self.command == "PUT":
            text = self.state.seen[-1]["text"]
        if not 0 < version <= len(texts):
            self.error(404, "not-found", f"there is no version {version}")
            return
        if version != len(texts):
            text = texts[version - 1]
        answer = {"version": version, "text": text, "applied_at": 1.0, "applied_by": "ada"}
        self.answer(answer | (self.state.left if self.command != "GET" else {}))

    def on_shutdown(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> None:
        self.state.seen.append(json.loads(body))
        self.answer({}, 202)


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, State]]:
    """A server and what it was asked. `tls`: it speaks TLS with this certificate."""
    state = State()
    handler = type("OneHandler", (Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http{'s' * (tls is not None)}://127.0.0.1:{server.server_port}", state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
