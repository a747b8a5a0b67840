"""The server's process, where it runs on this machine: whether it starts, is suspended, has ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from pilotage.client.credentials import KnownServer
from pilotage.core.errors import Unreachable

POLL_INTERVAL = 0.05


def process_state(pid: int) -> str:
    """The letter of /proc/PID/stat (R, S, T, Z ...); empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_this_machine(host: str) -> bool:
    if host in ("", os.uname().nodename):
        return True
    import socket  # here, as few commands need it

    return host == socket.getfqdn()


def refuse_suspended(place: KnownServer) -> None:
    """Raise Unreachable if the server's process is suspended: it takes connections and never answers them."""
    if place.pid is not None and is_this_machine(place.host) and process_state(place.pid) in ("T", "t"):
        raise Unreachable(
            f"the server's process {place.pid} is suspended and answers nobody",
            hint=f"`kill -CONT {place.pid}` lets it go on; then `pilotage down` stops it",
        )


def await_start(home: Path, seconds: float) -> None:
    """Return when no server is just starting in `home`, or after `seconds`."""
    until = time.monotonic() + seconds
    while _is_starting(home) and time.monotonic() < until:
        time.sleep(POLL_INTERVAL)


def _is_starting(home: Path) -> bool:
    """Whether a living process holds the home that has not written its address yet."""
    holder, announced = _facts(home / "lock"), _facts(home / "server.json")
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid == announced.get("pid"):
        return False
    return is_this_machine(str(holder.get("host", ""))) and process_state(pid) not in ("", "Z", "T")


def _facts(path: Path) -> dict[str, object]:
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
