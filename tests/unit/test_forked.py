"""A fork of the fork server behaves as a new interpreter: the tests rely on it for servers and commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests import forked
from tests.deadlines import PATIENCE
from tests.forked import ForkedProcess

pytestmark = pytest.mark.slow

FACTS = """\
import json, os, signal, sys, threading
facts = {
    "arguments": sys.argv,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "umask": os.umask(0),
    "descriptors": [n for n in sorted(map(int, os.listdir("/proc/self/fd"))) if os.path.exists(f"/proc/self/fd/{n}")],
    "threads": [thread.name for thread in threading.enumerate()],
    "signals": [str(signal.getsignal(number)) for number in (2, 13, 15, 17)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "group": os.getpgrp(),
    "session": os.getsid(0),
    "name": __name__,
    "input": sys.stdin.read(),
}
for stream in (sys.stdin, sys.stdout, sys.stderr):
    facts[stream.name] = [stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.fileno()]
print(json.dumps(facts, sort_keys=True))
"""

BOTH_ENDS = """\
import atexit, sys, threading
atexit.register(lambda: print("at exit"))
def last():
    threading.main_thread().join()
    print("thread")
threading.Thread(target=last).start()
print("begun", flush=True)
exec(sys.argv[1])
"""


def start_new(
    words: list[str], environment: dict[str, str], folder: Path, stdin: IO[str] | int
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=folder, stdin=stdin, text=True, capture_output=True
    )


def start_fork(
    words: list[str], environment: dict[str, str], folder: Path, stdin: IO[str] | int
) -> subprocess.CompletedProcess[str]:
    return forked.run(words, environment=environment, folder=folder, stdin=stdin, timeout=PATIENCE)


def test_a_fork_sees_what_a_new_interpreter_sees(tmp_path: Path) -> None:
    program = tmp_path / "facts.py"
    program.write_text(FACTS)
    environment = {**os.environ, "PLACE": "caf\xe9\udcff", "TZ": "Asia/Tokyo"}
    seen = []
    for start in (start_new, start_fork):
        given = tmp_path / "input"
        given.write_text("one\ntwo\n")
        with given.open() as stdin:
            done = start([str(program), "a b", "--c"], environment, tmp_path, stdin)
        assert done.stderr == ""
        seen.append(json.loads(done.stdout))
    new, fork = seen
    assert fork == new
    assert fork["descriptors"] == [0, 1, 2]


@pytest.mark.parametrize(
    "ending",
    [
        *("pass", "sys.exit(3)", "sys.exit('a message')", "raise SystemExit", "1 / 0", "sys.exit(-1)"),
        *("raise KeyboardInterrupt", "import os; os._exit(7)", "import os; os.kill(os.getpid(), 9)"),
        "import os, time; os.kill(os.getpid(), 15); time.sleep(9)",
        "sys.stdout = open('/dev/full', 'w'); print(1); sys.exit(4)",
        "sys.stdout = sys.stderr = None; sys.exit(4)",
    ],
)
def test_a_fork_ends_as_a_new_interpreter_ends(tmp_path: Path, ending: str) -> None:
    program = tmp_path / "ends.py"
    program.write_text(BOTH_ENDS)
    words = [str(program), ending]
    new = start_new(words, dict(os.environ), tmp_path, subprocess.DEVNULL)
    fork = start_fork(words, dict(os.environ), tmp_path, subprocess.DEVNULL)
    assert fork.returncode == new.returncode
    assert sorted(fork.stdout.splitlines()) == sorted(new.stdout.splitlines())
    assert fork.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


def test_a_command_says_the_same_in_a_fork_and_in_a_new_interpreter(tmp_path: Path) -> None:
    environment = {**os.environ, "PILOTAGE_HOME": str(tmp_path / "none"), "COLUMNS": "200"}
    for command in (["--version"], ["job", "--help"], ["list"], ["no", "such"], ["submit", "--memory", "x"]):
        words = ["-m", "pilotage.main", *command]
        new = start_new(words, environment, tmp_path, subprocess.DEVNULL)
        fork = start_fork(words, environment, tmp_path, subprocess.DEVNULL)
        assert (fork.returncode, fork.stdout, fork.stderr) == (new.returncode, new.stdout, new.stderr)


def test_a_fork_is_waited_for_and_signalled_as_a_child(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text("import signal\nsignal.pause()\n")
    with open(os.devnull, "r+b") as nothing:
        file = nothing.fileno()
        process = ForkedProcess(
            [str(program)], environment=os.environ, folder="/", stdin=file, stdout=file, stderr=file
        )
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
    process.kill()  # of a process that has ended: nothing happens


def test_variables_that_count_at_the_start_of_an_interpreter_need_a_new_one() -> None:
    assert forked.can_fork({**os.environ, "PILOTAGE_HOME": "/x", "PATH": "/bin"})
    for name in ("PYTHONPATH", "PYTHONIOENCODING", "LC_ALL", "LANG", "LD_PRELOAD", "OPENSSL_CONF"):
        assert not forked.can_fork({**os.environ, name: "another"})
