"""The program on a plain machine: it starts, lists and ends pilots. Its source is sent, so it is Python 3.9 alone.

It keeps no state: a pilot is found by its stamp among the arguments of its process, as on the server's own machine.
The request is the first argument, a JSON object; the answer is a line of JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Set

FOLDER = Path("/tmp") / f"pilotage-{os.getuid()}"  # noqa: S108
"""The output of pilots, and notes about them. Only this account may enter it."""

_STAMP = re.compile(r"pilotage-[A-Za-z0-9-]+/[0-9]+")

KEPT = 86400.0
"""Seconds for which the output of an ended pilot is kept."""


def boot() -> str:
    """Identifies the start of the machine: process ids are used again after another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def pilots() -> List[Dict[str, Any]]:
    """The pilots of this account: of each the process that leads its session, or the oldest one that is left."""
    by_stamp: Dict[str, Dict[str, Any]] = {}
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            owner = re.search(r"^Uid:\t([0-9]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        except OSError:
            continue
        stamp = next((word for word in words if _STAMP.fullmatch(word)), "")
        if not stamp or fields[0] in "ZX" or owner is None or int(owner[1]) != os.getuid():
            continue
        if stamp not in by_stamp or fields[3] == str(pid):
            by_stamp[stamp] = {"stamp": stamp, "pid": pid, "started": int(fields[19])}
    return list(by_stamp.values())


def cores_of(pid: int) -> Set[int]:
    try:
        return os.sched_getaffinity(pid)
    except OSError:
        return set()


def allowed(most: int) -> List[int]:
    """The cores that pilots may use."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[:most] if most else cores


def free_cores(most: int) -> List[int]:
    """Cores that no pilot is bound to."""
    used = [core for pilot in pilots() for core in cores_of(pilot["pid"])]
    return [core for core in allowed(most) if core not in used]


def name_of(stamp: str) -> str:
    return stamp.replace("/", "-")


def survey(request: Dict[str, Any]) -> Dict[str, Any]:
    """The machine and its pilots."""
    running = pilots()
    for pilot in running:
        try:
            pilot["properties"] = (FOLDER / f"{name_of(pilot['stamp'])}.properties").read_text()
        except OSError:
            pilot["properties"] = ""
    memory = re.search(r"^MemTotal:\s+([0-9]+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "boot": boot(),
        "host": socket.gethostname(),
        "architecture": platform.machine(),
        "cores": len(allowed(request["cores"])),
        "free": len(free_cores(request["cores"])),
        "memory": int(memory[1]) >> 10 if memory else 0,
        "pilots": running,
    }


def start(request: Dict[str, Any]) -> Dict[str, Any]:
    """Start the pilots of these indexes, each on cores of its own. None starts if there are too few cores."""
    script = sys.stdin.read()
    prepare_folder()
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        free, each = free_cores(request["cores"]), request["processors"]
        if len(free) < each * len(request["indexes"]):
            return {"full": f"{len(free)} of {len(allowed(request['cores']))} cores are free"}
        started = [
            start_one(request, index, set(free[number * each : (number + 1) * each]), script)
            for number, index in enumerate(request["indexes"])
        ]
    return {"boot": boot(), "started": started}


def start_one(request: Dict[str, Any], index: int, cores: Set[int], script: str) -> Dict[str, int]:
    stamp = f"{request['stamp']}/{index}"
    (FOLDER / f"{name_of(stamp)}.properties").write_text(request["properties"])
    environment = {**os.environ, "PILOTAGE_INDEX": str(index)}
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        with (FOLDER / f"{name_of(stamp)}.log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-s", stamp],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
    finally:
        os.sched_setaffinity(0, all_cores)
    assert process.stdin is not None
    try:
        process.stdin.write(script.encode())
        process.stdin.close()
    except BrokenPipeError:
        pass  # It has ended: the next survey lacks it.
    return {"index": index, "pid": process.pid, "started": start_of(process.pid)}


def start_of(pid: int) -> int:
    """When a process was started, in clock ticks since boot; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def prepare_folder() -> None:
    """Make the folder, and remove old output. Another account may not have made it."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    state = FOLDER.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o77 or FOLDER.is_symlink():
        raise PermissionError(f"{FOLDER} is open to another account")
    living = {name_of(pilot["stamp"]) for pilot in pilots()}
    for file in FOLDER.glob("pilotage-*"):
        if file.stem not in living and time.time() - file.stat().st_mtime > KEPT:
            file.unlink()


def end(request: Dict[str, Any]) -> Dict[str, Any]:
    """Ask pilots to leave, by the stamps of submissions or by ids. Repeated requests change nothing."""
    ended = 0
    for pilot in pilots():
        submission = pilot["stamp"].partition("/")[0]
        name = f"{pilot['pid']}:{pilot['started']}:{boot()}"
        if submission in request["stamps"] or name in request["ids"]:
            os.kill(pilot["pid"], signal.SIGTERM)
            ended += 1
    return {"ended": ended}


def tail(request: Dict[str, Any]) -> Dict[str, Any]:
    """The end of a pilot's output."""
    try:
        with (FOLDER / f"{name_of(request['stamp'])}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - request["most"]))
            return {"output": log.read().decode(errors="replace")}
    except OSError:
        return {"output": ""}


def main() -> None:
    request = json.loads(sys.argv[1])
    actions = {"survey": survey, "start": start, "end": end, "tail": tail}
    try:
        answer = actions[request["action"]](request)
    except OSError as error:
        answer = {"failure": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
