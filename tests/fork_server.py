"""A program that has imported Pilotage, and forks for each program that a test starts.

The start of an interpreter and the imports take seconds of a processor for a server, and half a second for a command.
A fork of this process starts at once. It then has its own arguments, environment, folder and files, and ends as any
interpreter does. `tests/forked.py` is its client.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any

LIBRARIES = (
    "alembic.command",
    "alembic.script",
    "anyio._backends._asyncio",
    "anyio._core._fileio",
    "click.core",
    "cryptography.x509",
    "encodings.ascii",
    "encodings.idna",
    "encodings.unicode_escape",
    "httptools",
    "importlib.resources.readers",
    "numpy.random",
    "psycopg.types.json",
    "rich.console",
    "rich.table",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
"""Libraries that Pilotage imports at their first use."""

CLONE_NEWNET = 0x40000000

NUMBER = struct.Struct("=q")
"""A number in the messages to the client: the id of a process, then its status."""

FILES = 4
"""Descriptors with each order: of its own socket, and of the standard input, output and error output."""


def import_all() -> None:
    """Import every module that a command or a server may need."""
    import pilotage

    for module in pkgutil.walk_packages(pilotage.__path__, "pilotage."):
        # A `__main__` runs when it is imported, and alembic loads migrations by itself.
        if not module.name.endswith(".__main__") and ".migrations" not in module.name:
            with suppress(ImportError):  # an optional library
                importlib.import_module(module.name)
    for name in LIBRARIES:
        importlib.import_module(name)
    from pilotage.outside.batch.script import pilot_program

    for compiled in (False, True):
        pilot_program(compiled=compiled)


def serve(orders: socket.socket) -> dict[str, Any]:
    """Fork for each order until the client closes its end. Returns in each fork only, with the order."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ctrl-C is for the tests and what they have started. A test run in the background may ignore it itself.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([orders.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _report_ends(running)
        if orders.fileno() in ready:
            message, files, _, _ = socket.recv_fds(orders, 1, FILES)
            if not message:
                sys.exit()
            own = socket.socket(fileno=files[0])
            pid = os.fork()
            if pid == 0:
                return _take_order(own, files[1:], interrupt)
            for file in files[1:]:
                os.close(file)
            running[pid] = own
            with suppress(OSError):
                own.sendall(NUMBER.pack(pid))


def _report_ends(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as own, suppress(OSError):
            own.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _take_order(own: socket.socket, files: list[int], interrupt: Any) -> dict[str, Any]:
    """Become a process as a new interpreter would be: its files, signals, environment, folder."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, interrupt)
    with own.makefile("rb") as stream:
        order: dict[str, Any] = json.loads(stream.readline())
    for target, file in enumerate(files):
        os.dup2(file, target)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.close(int(name))
    own.detach()
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    if order["network"]:
        _enter_network(order["network"])
    os.umask(order["umask"])
    os.chdir(order["folder"])
    _renew_streams()
    return order


def _enter_network(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", path)


def _renew_streams() -> None:
    """Make the standard streams as the interpreter makes them at its start."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        is_output, direct = number > 0, old.write_through
        buffering = 0 if direct and is_output else -1
        file = os.fdopen(number, "wb" if is_output else "rb", buffering, closefd=False)
        getattr(file, "raw", file).name = old.name
        stream = io.TextIOWrapper(
            file,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n" if is_output else None,
            line_buffering=not direct and (number == 2 or file.isatty()),
            write_through=direct,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(words: list[str]) -> None:
    """Run what an interpreter with these arguments would: `-m MODULE ...` or `FILE ...`."""
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def end(code: int) -> None:
    """End as the interpreter does, without its last step: to free each object copies all memory of the fork."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):  # the interpreter tries again and tells it
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code & 255)


if __name__ == "__main__":
    del sys.path[0]  # this folder, which the programs do not see
    import_all()
    gc.collect()
    gc.freeze()
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        run(order["words"])
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            end(ended.code or 0)
        raise
