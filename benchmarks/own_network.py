"""A network of the benchmark's own, where a server can listen off loopback and nobody else can reach it."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import sys

from benchmarks.shapes import Absent

ADDRESS = "198.51.100.1"
"""An address off loopback: a server that listens there talks TLS. RFC 5737 keeps it free for documentation."""

_INSIDE = "PILOTAGE_BENCH_NETWORK"
_SET_ADDRESS, _SET_FLAGS = 0x8916, 0x8914
"""SIOCSIFADDR and SIOCSIFFLAGS of Linux."""
_UP = 1


def enter() -> None:
    """Start this benchmark again in a network namespace, unless it runs in one, and give the namespace `ADDRESS`."""
    if os.environ.get(_INSIDE) == str(os.getppid()):
        _configure()
        return
    program = shutil.which("unshare")
    if program is None:
        raise Absent("no network of its own for TLS: the command unshare (util-linux) is missing")
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [program, *as_user, "--net", sys.executable, "-m", "benchmarks", *sys.argv[1:]]
    sys.stdout.flush()
    os.environ[_INSIDE] = str(os.getppid())
    os.execv(program, command)


def _configure() -> None:
    """Bring loopback up; the kernel then gives it 127.0.0.1. `ADDRESS` becomes its second address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
            address = socket.inet_aton(ADDRESS)
            fcntl.ioctl(control, _SET_ADDRESS, struct.pack("16sHxx4s8x", b"lo:1", socket.AF_INET, address))
        except OSError as error:
            raise Absent(f"no network of its own for TLS: {error.strerror}") from None
