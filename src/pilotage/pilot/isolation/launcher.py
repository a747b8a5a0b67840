"""The launcher: a small process that starts isolated payloads for the pilot.

It is forked from the pilot before the secret is read and before any thread exists, so it holds no secret and may
fork. A payload has three processes:

- the *outer* process, in the node's PID namespace. It becomes a child of the pilot, and stands for the
  payload: it takes its signals, and ends with its resource use and exit status.
- the *init* process, PID 1 of the payload's own PID namespace. When it ends, the kernel kills all the others there.
- the payload itself, in a session of its own.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import resource
import signal
import socket
import struct
from typing import Any, Dict, List, NoReturn, Sequence, Tuple

from ..cannot_run import NOT_EXECUTABLE, NOT_FOUND, CannotRun
from ..launch import Command, encoded, encoded_environment, find_program, input_of
from ..system import die_with_parent, forbid_dumps
from .kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    drop_privileges,
    leave_session_keyring,
    limit_capabilities,
    set_dumpable,
    unshare,
)
from .root_folder import enter_root, parse_visible

UNPRIVILEGED = 65534
"""User and group of payloads if the pilot runs as root: nobody."""
_LENGTH = struct.Struct("!I")
_FORWARDED = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT),
)
_ALWAYS = frozenset({signal.SIGKILL, signal.SIGSTOP})
_SETUP_FAILED = 125

Request = Dict[str, Any]


def send_request(connection: socket.socket, request: Request, files: Sequence[int]) -> None:
    """Send a request and file descriptors: standard input, output, error, and the pipe for the report."""
    body = json.dumps(request).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    connection.sendmsg([_LENGTH.pack(len(body))], rights)
    connection.sendall(body)


def _receive_request(connection: socket.socket) -> Tuple[Request, List[int]]:
    """The next request and its file descriptors. Raises EOFError when the pilot has ended."""
    room = socket.CMSG_SPACE(4 * array.array("i").itemsize)
    head, rights, _, _ = connection.recvmsg(_LENGTH.size, room, socket.MSG_CMSG_CLOEXEC | socket.MSG_WAITALL)
    if len(head) < _LENGTH.size:
        raise EOFError
    files = array.array("i")
    for _, _, data in rights:
        files.frombytes(data[: len(data) - len(data) % files.itemsize])
    missing = _LENGTH.unpack(head)[0]
    body = bytearray()
    while len(body) < missing:
        piece = connection.recv(missing - len(body))
        if not piece:
            raise EOFError
        body += piece
    return json.loads(body), list(files)


def serve(connection: socket.socket) -> NoReturn:
    """Start payloads until the pilot closes its end of the connection."""
    die_with_parent(signal.SIGKILL)
    for forwarded in _FORWARDED:
        signal.signal(forwarded, signal.SIG_IGN)
    # The guardian has blocked the signals that ask the pilot to leave.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    while True:
        try:
            request, files = _receive_request(connection)
        except (EOFError, OSError):
            os._exit(0)
        try:
            child = os.fork()
            if child == 0:
                # A payload that held it would let the pilot wait for a launcher that has died.
                connection.close()
                _start(request, files)
            os.waitpid(child, 0)
        except OSError as error:
            _report(files[3], "error", str(error))
        finally:
            for number in files:
                os.close(number)


def _report(pipe: int, *words: str) -> None:
    with contextlib.suppress(OSError):
        os.write(pipe, json.dumps(words).encode() + b"\n")


def _start(request: Request, files: List[int]) -> NoReturn:
    """Fork the outer process and end, so that the pilot, a subreaper, becomes its parent."""
    try:
        outer = os.fork()
    except OSError as error:
        _report(files[3], "error", str(error))
        os._exit(1)
    if outer:
        _report(files[3], "pid", str(outer))
        os._exit(0)
    try:
        _run_outer(request, files)
    except BaseException as error:
        _report(files[3], "error", str(error) or repr(error))
    os._exit(_SETUP_FAILED)


def _run_outer(request: Request, files: List[int]) -> None:
    """Create the namespaces, fork init, wait for it, and end as the payload has ended."""
    os.setsid()
    for ignored in set(signal.Signals) - _ALWAYS - {signal.SIGCHLD}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(ignored, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if request["cores"]:
        os.sched_setaffinity(0, request["cores"])
    privileged = os.geteuid() == 0
    if privileged:
        _give_away(request["folder"], request["tmp"])
        unshare(CLONE_NEWPID | CLONE_NEWIPC)
    else:
        _unshare_user()
    status, status_end = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(status)
        _run_init(request, files, status_end, privileged=privileged)
    os.close(status_end)
    for number in files:
        os.close(number)
    files[:] = [os.open(os.devnull, os.O_WRONLY)] * 4
    os.waitpid(init, 0)
    data = os.read(status, 4)
    _end_as(int.from_bytes(data, "little") if len(data) == 4 else int(signal.SIGKILL))


def _give_away(*folders: str) -> None:
    """Let the unprivileged account own the payload's folders. Nothing in them is the work of a payload yet."""
    for folder in folders:
        for path, names, others in os.walk(folder):
            for name in (*names, *others):
                os.lchown(os.path.join(path, name), UNPRIVILEGED, UNPRIVILEGED)
        os.lchown(folder, UNPRIVILEGED, UNPRIVILEGED)


def _unshare_user() -> None:
    """Create a user namespace in which this account keeps its numbers, and namespaces that it owns."""
    user, group = os.geteuid(), os.getegid()
    set_dumpable(True)
    unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    set_dumpable(False)


def _end_as(status: int) -> NoReturn:
    """End this process with the exit code or the signal of the payload."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in _ALWAYS:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else _SETUP_FAILED)


def _run_init(request: Request, files: List[int], status_end: int, *, privileged: bool) -> NoReturn:
    """Be PID 1: build the root, start the payload, reap, and end when the payload's first process ends."""
    try:
        unshare(CLONE_NEWNS)
        visible = [parse_visible(text) for text in request["visible"]]
        enter_root(request["folder"], request["tmp"], visible, request["hidden"])
        limit_capabilities()
        if privileged:
            os.setgroups([])
            os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
            os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        drop_privileges()
        leave_session_keyring()
        # A change of the account clears both.
        forbid_dumps()
        die_with_parent(signal.SIGKILL)
        leader = os.fork()
        if leader == 0:
            _run_payload(request, files)
        for number in files:
            os.close(number)
        _forward_signals(leader, *request["warning"])
        os.write(status_end, _reap_until_end(leader).to_bytes(4, "little"))
    except BaseException as error:
        _report(files[3], "error", str(error) or repr(error))
        os._exit(_SETUP_FAILED)
    os._exit(0)


def _forward_signals(leader: int, warning: int, is_for_first: bool) -> None:
    """Pass the signals that the pilot sends to the payload's process group; SIGUSR1 stands for its warning."""

    def forward(number: int, frame: Any) -> None:
        is_warning = number == signal.SIGUSR1
        with contextlib.suppress(OSError):
            (os.kill if is_warning and is_for_first else os.killpg)(leader, warning if is_warning else number)

    for number in _FORWARDED:
        signal.signal(number, forward)


def _reap_until_end(leader: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == leader:
            return status


def _run_payload(request: Request, files: List[int]) -> NoReturn:
    """Become the program. Reports the error if that fails."""
    report = files[3]
    try:
        os.setsid()
        for handled in set(signal.Signals) - _ALWAYS:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(handled, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for name, limit in request["limits"].items():
            resource.setrlimit(getattr(resource, name), tuple(limit))
        os.chdir(request["runs_in"])
        own_pid = {request["own_pid"]: str(os.getpid())} if request["own_pid"] else {}
        environment = {**request["environment"], **own_pid}
        command = Command("", request["argv"], environment, request["standard_input"])
        with input_of(command, (files[0], files[1], files[2])) as opened:
            for standard, number in enumerate(opened):
                os.dup2(number, standard)
        if request["umask"] >= 0:
            os.umask(request["umask"])
        _execute(command, request["runs_in"])
    except CannotRun as error:
        _report(report, "cannot run", str(error), str(error.exit_code))
    except OSError as error:
        code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        _report(report, "cannot run", f"{request['argv'][0]}: {error.strerror}", str(code))
    except BaseException as error:
        _report(report, "cannot run", repr(error), str(NOT_EXECUTABLE))
    os._exit(NOT_EXECUTABLE)


def _execute(command: Command, folder: str) -> None:
    program = encoded(find_program(command.argv[0], folder, command.environment.get("PATH", "")))
    argv, environment = [encoded(word) for word in command.argv], encoded_environment(command)
    try:
        os.execve(program, argv, environment)  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without an interpreter line: run it with sh, as a shell would.
    os.execve("/bin/sh", [b"sh", program, *argv[1:]], environment)  # noqa: S606
