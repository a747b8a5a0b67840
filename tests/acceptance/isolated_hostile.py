"""A payload that tries to leave its isolation, and prints the outcome of each attempt as JSON. Run as a job."""

import ctypes
import glob
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNS, NEWPID = 0x10000000, 0x20000, 0x20000000
REMOUNT_BIND = 32 | 4096
PTRACE_ATTACH = 16
SHOWN = os.environ["SHOWN"]


def attempt(act: Callable[[], Any]) -> str:
    """The name of the error, or "done: RESULT"."""
    try:
        return f"done: {act()}"
    except (OSError, subprocess.SubprocessError) as error:
        return type(error).__name__


def call(name: str, *arguments: Any) -> int:
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def read(path: str) -> int:
    with open(path, "rb") as file:
        return len(file.read(100))


def write(path: str) -> int:
    with open(path, "ab") as file:
        return file.write(b"changed")


def fetch(path: str) -> int:
    try:
        return int(urllib.request.urlopen(os.environ["SERVER"] + path, timeout=600).status)
    except urllib.error.HTTPError as error:
        return error.code


def run(*command: str) -> int:
    """Bytes that the command has printed. Some commands of Slurm end with 0 after an error."""
    done = subprocess.run(command, capture_output=True, check=True, timeout=600)
    if not done.stdout:
        raise OSError(done.stderr.decode())
    return len(done.stdout)


def in_namespaces(act: Callable[[], Any]) -> str:
    """The outcome in nested user and mount namespaces, where this process has all capabilities."""
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            user, group = os.getuid(), os.getgid()
            call("unshare", NEWUSER | NEWNS)
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"0 {user} 1"),
                ("gid_map", f"0 {group} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
            os.write(ends[1], attempt(act).encode())
        except OSError as error:
            os.write(ends[1], f"no namespace: {error}".encode())
        finally:
            os._exit(0)
    os.close(ends[1])
    os.waitpid(child, 0)
    with os.fdopen(ends[0]) as file:
        return file.read()


def remount() -> int:
    call("mount", b"none", SHOWN.encode(), None, ctypes.c_ulong(REMOUNT_BIND), None)
    return write(SHOWN + "/file")


def unmount_all() -> list[str]:
    for path in (SHOWN, "/usr", "/tmp", "/proc", "/"):
        LIBC.umount2(path.encode(), 2)
    return [path for path in HIDDEN if os.path.exists(path)]


def leave_root() -> list[str]:
    """The classic way out of chroot: hold the old root open while the root is below it."""
    root = os.open("/", os.O_RDONLY)
    os.makedirs("/tmp/jail", exist_ok=True)
    os.chroot("/tmp/jail")
    os.fchdir(root)
    for _ in range(20):
        os.chdir("..")
    os.chroot(".")
    return [path for path in HIDDEN if os.path.exists(path)]


def enter(name: str) -> int:
    return call("setns", os.open(f"/proc/1/ns/{name}", os.O_RDONLY), 0)


HIDDEN = os.environ["HIDDEN"].split(":")
outside = int(os.environ["OUTSIDE"])
report = {
    "hidden": {path: attempt(lambda path=path: os.stat(path).st_ino) for path in HIDDEN},
    "folder above": attempt(lambda: [name for name in os.listdir("..") if name.startswith("payload")]),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "environment": dict(os.environ),
    "init": {name: attempt(lambda name=name: read(f"/proc/1/{name}")) for name in ("environ", "mem", "maps")},
    "init's files": attempt(lambda: os.listdir("/proc/1/fd")),
    "init's root": attempt(lambda: os.listdir("/proc/1/root/")),
    "init's command": read("/proc/1/cmdline"),
    "trace init": attempt(lambda: call("ptrace", PTRACE_ATTACH, 1, None, None)),
    "kill outside": attempt(lambda: os.kill(outside, signal.SIGKILL)),
    "enter init's namespaces": [attempt(lambda name=name: enter(name)) for name in ("mnt", "user")],
    "read shown": attempt(lambda: read(SHOWN + "/file")),
    "write shown": attempt(lambda: write(SHOWN + "/file")),
    "write system": [
        attempt(lambda path=path: write(path)) for path in ("/usr/bin/env", "/etc/hosts", "/new")
    ],
    "write kernel": attempt(lambda: write("/proc/sys/kernel/core_pattern")),
    "mount": attempt(lambda: call("mount", b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None)),
    "remount": attempt(remount),
    "chroot": attempt(lambda: os.chroot("/tmp")),
    "nested remount": in_namespaces(remount),
    "nested unmount": in_namespaces(unmount_all),
    "nested chroot": in_namespaces(leave_root),
    "device": attempt(lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0))),
    "disks": glob.glob("/dev/[svnx]d*") + glob.glob("/dev/mem") + glob.glob("/dev/nvme*"),
    "root by sudo": attempt(lambda: run("su", "-c", "id")),
    "munge": attempt(lambda: run("munge", "-n", "-S", os.environ.get("MUNGE", "/run/munge/munge.socket.2"))),
    "batch script": attempt(
        lambda: run("scontrol", "write", "batch_script", os.environ.get("BATCH_JOB", "1"), "-")
    ),
    "queue": attempt(lambda: run("squeue", "-h")),
    "server": {path: fetch(path) for path in ("/v1/jobs", "/v1/policy")},
}
subprocess.Popen(["sleep", os.environ["MARK"]], start_new_session=True)
json.dump(report, sys.stdout)
