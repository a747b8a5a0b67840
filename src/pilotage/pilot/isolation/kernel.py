"""The system calls for namespaces, mounts and capabilities, which Python 3.9 lacks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from typing import Optional

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME = 32, 1024, 2048
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE, MS_RELATIME = 4096, 16384, 1 << 18, 1 << 19, 1 << 21
MNT_DETACH = 2

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES = 64
"""Numbers of capabilities that are tried; the kernel rejects numbers above its own."""
_CAPABILITY_VERSION = 0x20080522
_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "riscv64": 219, "s390x": 280}
"""The number of the system call `keyctl` by machine; the C library has no function for it."""

_libc = ctypes.CDLL(None, use_errno=True)


class KernelRefused(OSError):
    """A system call failed; the message names it."""


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise KernelRefused(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: Optional[str], flags: int, data: str = "") -> None:
    encoded = (os.fsencode(source), os.fsencode(target), os.fsencode(kind) if kind else None)
    _check(_libc.mount(*encoded, ctypes.c_ulong(flags), os.fsencode(data)), f"mount {target}")


def unmount(target: str) -> None:
    """Detach a mount with everything below it."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    _check(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), "pivot_root")


def set_dumpable(dumpable: bool) -> None:
    """Without it the files of this process in /proc belong to root, and it cannot write its own ID maps."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(dumpable), 0, 0, 0), "prctl")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def limit_capabilities() -> None:
    """Drop all capabilities from the bounding set, so that no program can gain one."""
    for number in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)


def drop_privileges() -> None:
    """Drop all capabilities, and gain none by programs with the setuid bit."""
    _check(_libc.capset(ctypes.byref(_Header(_CAPABILITY_VERSION, 0)), (_Sets * 2)()), "capset")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def leave_session_keyring() -> None:
    """Begin an empty session keyring: the inherited one may hold credentials of the account."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError):
            _libc.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None)
