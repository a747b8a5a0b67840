"""A payload that looks for what is not its own, and tells what it found. Run as a job."""

import glob
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sized
from typing import Any


def attempt(read: Callable[[], Sized]) -> str:
    try:
        return f"read {len(read())} bytes"
    except OSError as error:
        return type(error).__name__


def ancestors() -> list[int]:
    pid, found = os.getppid(), []
    while pid > 1:
        found.append(pid)
        with open(f"/proc/{pid}/stat") as stat:
            pid = int(stat.read().rpartition(")")[2].split()[1])
    return found


def memory(pid: int) -> bytes:
    with open(f"/proc/{pid}/maps") as maps:
        first = maps.readline().split()[0].split("-")
    with open(f"/proc/{pid}/mem", "rb") as mem:
        mem.seek(int(first[0], 16))
        return mem.read(100)


def file(path: str) -> bytes:
    with open(path, "rb") as handle:
        return handle.read()


def pilots() -> list[int]:
    """The guardian and the pilot proper, by their command line."""
    return [pid for pid in ancestors() if b"--stamp" in file(f"/proc/{pid}/cmdline")]


def fetch(path: str, token: str = "") -> int:
    request = urllib.request.Request(
        os.environ["SERVER"] + path, headers={"Authorization": "Bearer " + token}
    )
    try:
        return int(urllib.request.urlopen(request, timeout=600).status)
    except urllib.error.HTTPError as error:
        return error.code


report: dict[str, Any] = {"pilots": {}}
for one in pilots():
    report["pilots"][one] = {
        "environ": attempt(lambda pid=one: file(f"/proc/{pid}/environ")),
        "memory": attempt(lambda pid=one: memory(pid)),
        "files": attempt(lambda pid=one: os.listdir(f"/proc/{pid}/fd")),
        "arguments": file(f"/proc/{one}/cmdline").decode().split("\0"),
    }
report["environment"] = dict(os.environ)
report["server"] = {
    name: attempt(lambda name=name: file(os.path.join(os.environ["SERVER_HOME"], name)))
    for name in ("secrets/signing.key", "token", "pilotage.db")
}
report["others"] = {
    folder: attempt(lambda folder=folder: os.listdir(folder))
    for folder in (os.environ["OTHER_ACCOUNT"], os.environ["OTHER_PAYLOAD"])
}
places = ("/tmp/pilotage*", "..", "../..")
report["leftovers"] = [path for place in places for path in glob.glob(place + "/*.pyz")]
report["http"] = {path: fetch(path) for path in ("/v1/jobs", "/v1/pilot.pyz", "/v1/policy")}
report["http"]["guessed token"] = fetch("/v1/jobs", "x" * 43)
print(json.dumps(report))
