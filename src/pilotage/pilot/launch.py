"""From a payload's description to a running process: environment, command line, spawn.

Nothing of a job's description reaches a shell, except its setup lines, which are shell by nature; the command
itself goes to that shell as positional parameters.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple

from pilotage.wire.pilot import Payload

from .events import Key
from .folders import stays_inside

NOT_EXECUTABLE = 126
NOT_FOUND = 127

_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
_KEPT_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)
_KEPT_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGCHLD,
)
_SETUP_SCRIPT = "setup.sh"


class CannotRun(Exception):
    """With an exit code: as a shell would say it. With a failure class: the node's fault, not the payload's."""

    def __init__(self, message: str, exit_code: Optional[int] = None, failure: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.failure = failure


@dataclass(frozen=True)
class Command:
    program: str
    argv: List[str]
    environment: Dict[str, str]


def base_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """What every payload gets of the pilot's environment: nothing of the batch system's, no secrets."""
    kept = {
        name: environment[name]
        for name in (*_KEPT_VARIABLES, *_KEPT_DEVICES, *_KEPT_NETWORK)
        if name in environment
    }
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept


def build_command(payload: Payload, key: Key, folder: str, tmp: str, base: Mapping[str, str]) -> Command:
    """The command to run in `folder`. Raises CannotRun."""
    environment = dict(base)
    environment.update(dict.fromkeys(_THREADS, str(payload.processors)))
    environment.update(payload.environment)
    environment.update(
        TMPDIR=tmp,
        PILOTAGE_JOB=str(key[0]),
        PILOTAGE_EPOCH=str(key[1]),
        PILOTAGE_PROCESSORS=str(payload.processors),
    )
    path = environment.get("PATH") or _DEFAULT_PATH
    own = _payload_executable(payload.executable, folder)
    argv = [own or payload.executable, *payload.arguments]
    if payload.setup_lines:
        argv = ["/bin/bash", "-l", _write_setup(payload.setup_lines, tmp), *argv]
    if payload.container:
        return _in_container(payload.container, argv, environment, folder, tmp, base)
    program = argv[0] if payload.setup_lines else _find_program(argv[0], folder, path)
    return Command(program, argv, environment)


def _payload_executable(name: str, folder: str) -> str:
    """./name if it is a file of the payload's folder, made executable; "" if it is not."""
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


def _find_program(name: str, folder: str, path: str) -> str:
    if "/" in name:
        candidate = os.path.join(folder, name)
    else:
        for part in path.split(":"):
            candidate = os.path.join(folder, part or ".", name)
            if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
        raise CannotRun(f"{name}: command not found", NOT_FOUND)
    if not os.path.exists(candidate):
        raise CannotRun(f"{name}: no such file", NOT_FOUND)
    if os.path.isdir(candidate) or not os.access(candidate, os.X_OK):
        raise CannotRun(f"{name}: not executable", NOT_EXECUTABLE)
    return candidate


def _write_setup(lines: List[str], tmp: str) -> str:
    path = os.path.join(tmp, _SETUP_SCRIPT)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join([*lines, 'exec "$@"', ""]))
    return path


def _in_container(
    image: str, argv: List[str], environment: Dict[str, str], folder: str, tmp: str, base: Mapping[str, str]
) -> Command:
    """The runtime gets the clean environment, the inside gets the payload's and sees of the node only two folders."""
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
    if environment.get("CUDA_VISIBLE_DEVICES"):
        options.append("--nv")
    return Command(
        runtime,
        [runtime, "exec", *options, image, *argv],
        {**base, **passed, "TMPDIR": tmp, **_identity_variables(environment)},
    )


def _identity_variables(environment: Mapping[str, str]) -> Dict[str, str]:
    """By these the processes of a payload are known again when they have run away from their parents."""
    return {name: environment[name] for name in ("PILOTAGE_JOB", "PILOTAGE_EPOCH")}


def spawn(command: Command, folder: str, files: Tuple[int, int, int], cores: Tuple[int, ...]) -> int:
    """Start the command in a session of its own, on these cores (empty: wherever), and give its pid.

    The calling thread's directory and affinity are changed for a moment and put back: both are inherited by the
    child, and so nothing has to run between fork and exec. Raises CannotRun.
    """
    home = os.open(".", os.O_RDONLY)
    before = os.sched_getaffinity(0) if cores else None
    try:
        os.chdir(folder)
        if cores:
            os.sched_setaffinity(0, cores)
        return _spawn_here(command, files)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise CannotRun(f"{command.argv[0]}: {error.strerror}", NOT_FOUND) from None
        raise CannotRun(f"{command.argv[0]}: {error.strerror}", NOT_EXECUTABLE) from None
    except ValueError as error:
        raise CannotRun(f"{command.argv[0]}: {error}", NOT_EXECUTABLE) from None
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)
        os.fchdir(home)
        os.close(home)


def _spawn_here(command: Command, files: Tuple[int, int, int]) -> int:
    try:
        return _posix_spawn(command.program, command.argv, command.environment, files)
    except NotImplementedError:  # a Python that was built against an old C library knows no setsid here
        return _popen(command, files)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a first line that names its interpreter: a shell would run it itself.
    return _posix_spawn("/bin/sh", ["sh", command.program, *command.argv[1:]], command.environment, files)


def _posix_spawn(
    program: str, argv: List[str], environment: Dict[str, str], files: Tuple[int, int, int]
) -> int:
    return os.posix_spawn(
        program,
        argv,
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, number, standard) for standard, number in enumerate(files)],
        setsid=True,
        setsigmask=[],
        setsigdef=_DEFAULT_SIGNALS,
    )


def _popen(command: Command, files: Tuple[int, int, int]) -> int:
    process = subprocess.Popen(
        command.argv,
        executable=command.program,
        env=command.environment,
        stdin=files[0],
        stdout=files[1],
        stderr=files[2],
        start_new_session=True,
    )
    pid = process.pid
    # The pilot's own loop reaps it; the object must neither wait for it nor complain.
    with contextlib.suppress(AttributeError):
        process.returncode = 0
    return pid
