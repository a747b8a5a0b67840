"""Starts the process of a payload: builds its environment and command line, then spawns it.

Only the setup lines of a job are interpreted by a shell, as they are shell commands. The command itself is never
parsed by a shell; after setup lines it is passed as positional parameters. Its texts may be any bytes: bytes that
are not UTF-8 are halves of surrogate pairs here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from pilotage.wire.pilot import Payload

from .batch_script import OWN_PID, batch_command, batch_variables, script_order
from .cannot_run import NOT_EXECUTABLE, NOT_FOUND, CannotRun
from .events import Key
from .folders import stays_inside

_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
_KEPT_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)
_KEPT_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
CE_VARIABLE = "PILOTAGE_CE"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_DEFAULT_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_NO_INPUT = 1
"""The exit code if standard input cannot be opened, as of a shell."""
_BUSY_TRIES = 1000
"""A script may be open for writing for a moment, in a child of another thread that has not begun its program."""
_SETUP_SCRIPT = "setup.sh"


class DataAccess(Protocol):
    """How the command of a job of a request reaches its input data."""

    environment: Dict[str, str]
    folders: List[str]


@dataclass(frozen=True)
class Command:
    program: str
    argv: List[str]
    environment: Dict[str, str]
    standard_input: str = ""
    """A file, seen from the folder in which it runs; empty: it reads nothing."""
    warning: Tuple[int, bool] = (signal.SIGUSR1, False)
    """The signal before its end, and whether its first process alone gets it."""
    own_pid: str = ""
    """The variable that gets the number of its process; empty: none does."""


def base_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """The variables that payloads inherit from the pilot: none of the batch system's, and no secrets."""
    kept = {
        name: environment[name]
        for name in (*_KEPT_VARIABLES, *_KEPT_DEVICES, *_KEPT_NETWORK, CE_VARIABLE)
        if name in environment
    }
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept


def build_command(
    payload: Payload,
    key: Key,
    folder: str,
    tmp: str,
    base: Mapping[str, str],
    *,
    isolated: bool = False,
    data: Optional[DataAccess] = None,
) -> Command:
    """The command to run in `folder`. Raises CannotRun.

    An isolated payload cannot see the home of the account. Its program is found later, among the visible files.
    """
    environment = dict(base)
    if isolated:
        environment["HOME"] = tmp
    environment.update(dict.fromkeys(_THREADS, str(payload.processors)))
    environment.update(payload.environment)
    if data is not None:
        environment.update(data.environment)
    environment.update(
        TMPDIR=tmp,
        PILOTAGE_JOB=str(key[0]),
        PILOTAGE_EPOCH=str(key[1]),
        PILOTAGE_PROCESSORS=str(payload.processors),
        PILOTAGE_LOG_LEVEL=payload.log_level,
        PILOTAGE_CE=base.get(CE_VARIABLE, ""),
    )
    try:
        batch = script_order(payload)
    except ValueError as error:
        raise CannotRun(f"batch script: {error}", NOT_EXECUTABLE) from None
    given = [payload.executable, *payload.arguments]
    if batch is not None:
        environment.update(batch_variables(batch, payload, environment))
        given = batch_command(batch, tmp, "python3" if isolated else sys.executable)
    path = environment.get("PATH") or _DEFAULT_PATH
    own = (_executable_in_place if payload.folder else _payload_executable)(given[0], folder)
    argv = [own or given[0], *given[1:]]
    if payload.setup_lines:
        argv = ["/bin/bash", "-l", _write_setup(payload.setup_lines, tmp), *argv]
    if payload.container:
        shown = data.folders if data is not None else ()
        return _in_container(payload.container, argv, environment, folder, tmp, base, shown)
    program = argv[0] if payload.setup_lines or isolated else find_program(argv[0], folder, path)
    if batch is None:
        return Command(program, argv, environment)
    if not isolated:
        argv[0] = program  # as in Slurm
    warning = (getattr(signal, f"SIG{batch.signal or 'USR1'}"), batch.is_for_script)
    return Command(program, argv, environment, batch.standard_input, warning, OWN_PID)


def _payload_executable(name: str, folder: str) -> str:
    """Make a file of the payload's folder executable and return ./name; "" if the folder has no such file."""
    if not stays_inside(name):
        return ""
    path = os.path.join(folder, name)
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        os.chmod(path, mode | stat.S_IXUSR)
    elif not os.path.isfile(path):
        return ""
    return f"./{os.path.normpath(name)}"


def _executable_in_place(name: str, folder: str) -> str:
    """./name for an executable file of a folder that is the user's: its mode stays as it is. "": there is none."""
    path = os.path.join(folder, name)
    is_there = stays_inside(name) and os.path.isfile(path) and os.access(path, os.X_OK)
    return f"./{os.path.normpath(name)}" if is_there else ""


def find_program(name: str, folder: str, path: str) -> str:
    """The path of a program, as a shell would find it. Raises CannotRun."""
    path = path or _DEFAULT_PATH
    if "/" in name:
        candidate = os.path.join(folder, name)
    else:
        for part in path.split(":"):
            candidate = os.path.join(folder, part or ".", name)
            if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
        raise CannotRun(f"{name}: command not found", NOT_FOUND)
    try:
        mode = os.stat(candidate).st_mode
    except (OSError, ValueError):
        raise CannotRun(f"{name}: no such file", NOT_FOUND) from None
    if stat.S_ISDIR(mode) or not os.access(candidate, os.X_OK):
        raise CannotRun(f"{name}: not executable", NOT_EXECUTABLE)
    return candidate


def _write_setup(lines: List[str], tmp: str) -> str:
    path = os.path.join(tmp, _SETUP_SCRIPT)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join([*lines, 'exec "$@"', ""]))
    return path


def _in_container(
    image: str,
    argv: List[str],
    environment: Dict[str, str],
    folder: str,
    tmp: str,
    base: Mapping[str, str],
    shown: Sequence[str] = (),
) -> Command:
    """Wrap the command in a container. The payload gets its own environment and sees only two folders of the node.

    `shown`: folders of input files, which it sees too, read-only.
    """
    if image.startswith("-"):
        raise CannotRun(f"{image}: not the name of an image", failure="input")
    for name in ("apptainer", "singularity"):
        runtime = shutil.which(name, path=base.get("PATH", _DEFAULT_PATH))
        if runtime:
            break
    else:
        raise CannotRun("neither apptainer nor singularity on this node", failure="node")
    prefix = name.upper() + "ENV_"
    passed = {f"{prefix}{key}": value for key, value in environment.items() if key not in ("PATH", "HOME")}
    options = ["--containall", "--cleanenv", "--bind", folder, "--bind", tmp, "--pwd", folder]
    for path in shown:
        options += ["--bind", f"{path}:{path}:ro"]
    if environment.get("CUDA_VISIBLE_DEVICES"):
        options.append("--nv")
    return Command(
        runtime,
        [runtime, "exec", *options, image, *argv],
        {**base, **passed, "TMPDIR": tmp, **_identity_variables(environment)},
    )


def _identity_variables(environment: Mapping[str, str]) -> Dict[str, str]:
    """Variables by which `orphans` attributes a process to its payload after its parents have ended."""
    return {name: environment[name] for name in ("PILOTAGE_JOB", "PILOTAGE_EPOCH")}


def spawn(
    command: Command, folder: str, files: Tuple[int, int, int], cores: Tuple[int, ...], umask: int = -1
) -> int:
    """Start the command in a session of its own, on these cores (empty: any); returns its pid. Raises CannotRun.

    The child inherits directory, affinity and umask, so the calling thread changes them for a moment and restores them.
    Thus no code has to run between fork and exec. `umask`: negative for that of the pilot.
    """
    home = _home()
    before = os.sched_getaffinity(0) if cores else None
    own_umask = os.umask(umask) if umask >= 0 else -1
    try:
        os.chdir(folder)
        if cores:
            os.sched_setaffinity(0, cores)
        with input_of(command, files) as opened:
            return _spawn_here(command, opened)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise CannotRun(f"{command.argv[0]}: {error.strerror}", NOT_FOUND) from None
        raise CannotRun(f"{command.argv[0]}: {error.strerror}", NOT_EXECUTABLE) from None
    except ValueError as error:
        raise CannotRun(f"{command.argv[0]}: {error}", NOT_EXECUTABLE) from None
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)
        if own_umask >= 0:
            os.umask(own_umask)
        os.fchdir(home)


@lru_cache(maxsize=1)
def _home() -> int:
    """A descriptor of the pilot's own working directory, which stays the same."""
    return os.open(".", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def input_of(command: Command, files: Tuple[int, int, int]) -> Iterator[Tuple[int, int, int]]:
    """`files` with the standard input that the command names. Raises CannotRun."""
    if not command.standard_input:
        yield files
        return
    try:
        # Non-blocking: a FIFO would wait for its writer.
        path = encoded(command.standard_input)
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        os.set_blocking(number, True)
    except OSError as error:
        raise CannotRun(f"standard input: {command.standard_input}: {error.strerror}", _NO_INPUT) from None
    try:
        yield (number, *files[1:])
    finally:
        os.close(number)


def _spawn_here(command: Command, files: Tuple[int, int, int]) -> int:
    try:
        return _spawn_unless_busy(command, files)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without an interpreter line: run it with sh, as a shell would.
    return _start(replace(command, program="/bin/sh", argv=["sh", command.program, *command.argv[1:]]), files)


def _spawn_unless_busy(command: Command, files: Tuple[int, int, int]) -> int:
    for _ in range(_BUSY_TRIES):
        try:
            return _start(command, files)
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
            time.sleep(0.001)
    return _start(command, files)


def _start(command: Command, files: Tuple[int, int, int]) -> int:
    if command.own_pid:
        return _popen(command, files)
    try:
        return _posix_spawn(command, files)
    except NotImplementedError:  # a Python built against an old C library has no setsid for posix_spawn
        return _popen(command, files)


def encoded(text: str) -> bytes:
    """The bytes of a text of the user."""
    return text.encode("utf-8", "surrogateescape")


def encoded_environment(command: Command) -> Dict[bytes, bytes]:
    return {encoded(name): encoded(value) for name, value in command.environment.items()}


def _posix_spawn(command: Command, files: Tuple[int, int, int]) -> int:
    return os.posix_spawn(
        encoded(command.program),
        [encoded(word) for word in command.argv],
        encoded_environment(command),
        file_actions=[(os.POSIX_SPAWN_DUP2, number, standard) for standard, number in enumerate(files)],
        setsid=True,
        setsigmask=[],
        setsigdef=_DEFAULT_SIGNALS,
    )


def _popen(command: Command, files: Tuple[int, int, int]) -> int:
    """The same with code between fork and exec, which is slower."""
    environment = encoded_environment(command)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in _DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if command.own_pid:
            environment[encoded(command.own_pid)] = b"%d" % os.getpid()
        # The program is started with the present environment, as none is named below.
        os.environb.clear()
        os.environb.update(environment)

    with warnings.catch_warnings():
        # Python warns of threads: the lines above take no lock that another thread could hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = subprocess.Popen(
            [encoded(word) for word in command.argv],
            executable=encoded(command.program),
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            start_new_session=True,
            preexec_fn=prepare,
        )
    pid = process.pid
    # The pilot's loop reaps the process; the object must neither wait for it nor warn.
    with contextlib.suppress(AttributeError):
        process.returncode = 0
    return pid
