"""Commands over ssh: words arrive exactly, and every end of a session is told apart from that of the command.

`ssh` is a double that runs the shell's text as sshd does: by the login shell of the account.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.core.errors import Unreachable
from pilotage.core.policy.reach import SshReach
from pilotage.outside.batch.adapter import Receipt
from pilotage.outside.batch.command_batch import read_receipt
from pilotage.outside.batch.command_client import CommandClient, UnreadableOutput
from pilotage.outside.batch.runner import MISSING
from pilotage.outside.batch.sge.cell import FarCell
from pilotage.outside.batch.ssh import runner as ssh_runner
from pilotage.outside.batch.ssh.connection import SHELL, SshConnection
from pilotage.outside.batch.ssh.runner import SshRunner, far_line
from pilotage.outside.batch.submission import SubmissionFailed, SubmissionRefusal
from tests.deadlines import PATIENCE
from tests.instance import until

PRINT = [
    sys.executable,
    "-c",
    "import sys; sys.stdout.buffer.write('\\0'.join(sys.argv[1:]).encode('utf-8', 'surrogateescape'))",
]

LOGIN_SHELLS = [name for name in ("sh", "bash", "dash", "zsh", "tcsh", "csh", "fish") if shutil.which(name)]

words = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=5)


@settings(max_examples=100, deadline=None)
@given(words)
def test_every_word_arrives_exactly(given: list[str]) -> None:
    line = far_line([*PRINT, *given], {"SOME": "a'b\nc"}, 60.0)
    done = subprocess.run(
        ["/bin/sh", "-c", SHELL], input=line, capture_output=True, check=True, timeout=PATIENCE
    )
    assert done.stdout.partition(b"pilotage-ready\n")[2].decode() == "\0".join(given)
    assert done.stderr.endswith(b"\npilotage-end 0\n")


@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_every_login_shell_passes_the_words_on(shell: str) -> None:
    given = ["a b", "it's", '"$HOME"', "!x", "\\n", "a\nb\n", "*", "", "~", "%s", "ä€"]
    done = subprocess.run(
        [shell, "-c", SHELL],
        input=far_line([*PRINT, *given], {}, 60.0),
        capture_output=True,
        timeout=PATIENCE,
    )
    assert done.stdout.partition(b"pilotage-ready\n")[2].decode() == "\0".join(given)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[SshConnection]:
    yield from ssh_double(tmp_path, 'echo >> begun; for text; do :; done; exec sh -c "$text"')


def ssh_double(folder: Path, script: str) -> Iterator[SshConnection]:
    """A connection whose ssh is this script; its control socket exists."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "ssh").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    made = SshConnection(SshReach("login"), folder, environment)
    control = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(folder)
    try:
        control.bind(made.socket)
    finally:
        os.chdir(before)
    yield made
    made.close()
    control.close()


def test_a_command_gets_its_input_and_its_output_comes_back(connection: SshConnection) -> None:
    runner = SshRunner(connection, {"SETTING": "x y"})
    text = "line\n" * 100_000
    result = runner.run(["sh", "-c", 'cat; echo "$SETTING" >&2; exit 3'], text=text)
    assert (result.status, result.output, result.errors) == (3, text, "x y\n")
    assert not result.unreached


def test_the_session_of_the_next_command_waits_for_it(connection: SshConnection) -> None:
    assert SshRunner(connection, {}).run(["echo", "hello"]).output == "hello\n"
    # The session of the next command has begun: its shell has read the program to the end.
    until(lambda: len((connection.folder / "begun").read_text()) == 2, what="two sessions")
    (connection.folder / "bin/ssh").unlink()
    (connection.folder / "bin/ssh").write_text("#!/bin/sh\nexit 1\n")
    (connection.folder / "bin/ssh").chmod(0o755)
    assert SshRunner(connection, {}).run(["echo", "again"]).output == "again\n"
    assert "broke" in SshRunner(connection, {}).run(["true"]).unreached


def test_each_command_is_one_session_of_the_open_connection(connection: SshConnection) -> None:
    """One session is begun before its command, so a command costs one round trip. None authenticates again."""
    # The last word is the shell's text, and has lines.
    program = '#!/bin/sh\necho "$*" | head -n 1 >> begun\nfor text; do :; done; exec sh -c "$text"\n'
    (connection.folder / "bin/ssh").write_text(program)
    runner = SshRunner(connection, {})
    for number in range(5):
        assert runner.run(["echo", str(number)]).output == f"{number}\n"
    begun = connection.folder / "begun"
    until(lambda: len(begun.read_text().splitlines()) == 6, what="five sessions and that of the next command")
    for line in begun.read_text().splitlines():
        assert line.startswith(f"-S ./{connection.socket} -T -o ControlMaster=no -o BatchMode=yes"), line
        assert "-o ProxyCommand=/bin/false" in line


@pytest.mark.parametrize("status", [1, 100, 126, 127, 255])
def test_the_commands_own_exit_code_is_told(connection: SshConnection, status: int) -> None:
    result = SshRunner(connection, {}).run(["sh", "-c", f"exit {status}"])
    assert result.status == (MISSING if status in (126, 127) else status)
    assert bool(result.unreached) == (result.status == MISSING)


def test_a_signal_is_told_as_by_a_local_runner(connection: SshConnection) -> None:
    assert SshRunner(connection, {}).run(["sh", "-c", "kill -TERM $$"]).status == -15


def test_a_command_that_is_not_installed_there_names_the_host(connection: SshConnection) -> None:
    result = SshRunner(connection, {}).run(["no-such-command"])
    assert result.status == MISSING
    assert "not installed on login" in result.unreached


def test_profiles_that_print_change_no_output(tmp_path: Path) -> None:
    script = 'echo Welcome; echo motd >&2; for text; do :; done; exec sh -c "$text"'
    for connection in ssh_double(tmp_path, script):
        result = SshRunner(connection, {}).run(["sh", "-c", "echo out; echo err >&2"])
        assert (result.output, result.errors) == ("out\n", "err\n")


def test_a_time_out_ends_the_session_and_the_far_command(connection: SshConnection, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    result = SshRunner(connection, {}).run(["sh", "-c", f"echo $$ > {mark}; sleep 1000"], timeout=5.0)
    assert result.status is None
    assert not result.unreached


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Connection closed by UNKNOWN port 65535' >&2; exit 255", "pilotage ce login"),
        ("echo 'mux_client_request_session: Session open refused by peer' >&2; exit 255", "MaxSessions"),
        ("echo pilotage-ready; echo pilotage-ready >&2; read line; echo out; exit 255", "broke"),
        ("echo 'This account is currently not available.' >&2; exit 1", "not available"),
    ],
)  # fmt: skip
def test_a_session_that_ends_without_a_status_is_no_answer(tmp_path: Path, script: str, words: str) -> None:
    for connection in ssh_double(tmp_path, script):
        result = SshRunner(connection, {}).run(["true"])
        assert result.status is None
        assert words in result.unreached
        assert not result.never_began, "the command was sent at once, so it may have begun"


REFUSED = "echo 'Connection closed by UNKNOWN port 65535' >&2; exit 255"
NOT_READY = "echo pilotage-rea; sleep 0.1; exit 255"
BROKEN = 'echo pilotage-ready; IFS= read -r line; echo "$line" > received; exit 255'
CUT = "printf pilotage-; sleep 0.1; echo ready; cat > received; kill -KILL $$"


@pytest.mark.parametrize(
    ("script", "never_began"),
    [(REFUSED, True), (NOT_READY, True), (BROKEN, False), (CUT, False)],
)
def test_a_command_with_input_never_began_if_its_session_was_not_ready(
    tmp_path: Path, script: str, never_began: bool
) -> None:
    """Such a command submits something: without doubt nothing was submitted if nothing was sent."""
    for connection in ssh_double(tmp_path, script):
        result = SshRunner(connection, {}).run(["sbatch"], text="script", timeout=PATIENCE)
        received = tmp_path / "received"
        was_sent = received.exists() and "sbatch" in received.read_text()
        assert (result.status, result.never_began, was_sent) == (None, never_began, not never_began)
        assert result.unreached


def test_a_session_that_is_not_ready_in_time_gets_no_command_with_input(tmp_path: Path) -> None:
    for connection in ssh_double(tmp_path, "exec cat > received"):
        result = SshRunner(connection, {}).run(["sbatch"], text="script", timeout=0.5)
        assert result.never_began
        assert "did not begin a session in time" in result.unreached
        assert (tmp_path / "received").read_text() == ""


def test_a_command_that_did_not_end_in_time_may_have_begun(connection: SshConnection) -> None:
    result = SshRunner(connection, {}).run(["sleep", "1000"], text="script", timeout=3.0)
    assert (result.status, result.never_began) == (None, False)


class Unread:
    """Reads an answer that nobody has printed."""

    def classify(self, status: int | None, errors: str) -> tuple[SubmissionRefusal, str]:
        return SubmissionRefusal.IN_DOUBT, errors

    def read(self, text: str) -> Receipt:
        raise UnreadableOutput(text)


@pytest.mark.parametrize(
    ("script", "refusal"), [(REFUSED, SubmissionRefusal.UNREACHED), (BROKEN, SubmissionRefusal.IN_DOUBT)]
)
def test_a_submission_is_in_doubt_unless_it_certainly_never_began(
    tmp_path: Path, script: str, refusal: SubmissionRefusal
) -> None:
    for connection in ssh_double(tmp_path, script):
        result = SshRunner(connection, {}).run(["sbatch"], text="script", timeout=PATIENCE)
        with pytest.raises(SubmissionFailed) as failed:
            read_receipt(result, Unread().classify, Unread().read)
        assert failed.value.refusal is refusal


def test_without_a_control_socket_ssh_is_not_even_started(tmp_path: Path) -> None:
    connection = SshConnection(SshReach("login"), tmp_path, {"PATH": "/nonexistent"})
    result = SshRunner(connection, {}).run(["true"])
    assert (result.status, result.never_began) == (None, True)
    assert "pilotage ce login" in result.unreached


def test_output_is_bounded(connection: SshConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_runner, "MOST_OUTPUT", 1 << 20)
    result = SshRunner(connection, {}).run(["cat", "/dev/zero"])
    assert result.status is None
    assert "printed more than 1 MB" in result.unreached


def test_a_closed_runner_starts_nothing(connection: SshConnection) -> None:
    runner = SshRunner(connection, {})
    runner.close()
    result = runner.run(["true"])
    assert (result.status, result.never_began) == (None, True)


def test_the_control_socket_has_a_short_name_in_any_home(tmp_path: Path) -> None:
    reach = SshReach("somebody@" + "login-node." * 20 + "example.org", ("-p", "2222"))
    assert len(SshConnection(reach, tmp_path, {}).socket) < 60


def test_the_master_of_a_cell_is_read_where_the_commands_run(
    connection: SshConnection, tmp_path: Path
) -> None:
    common = tmp_path / "sge" / "physics" / "common"
    common.mkdir(parents=True)
    variables = {
        "SGE_ROOT": str(tmp_path / "sge"),
        "SGE_CELL": "physics",
        "SGE_QMASTER_PORT": "7000",
    }
    cell = FarCell(SshRunner(connection, variables))
    with pytest.raises(Unreachable, match=r"act_qmaster: No such file .* \(set SGE_ROOT"):
        cell.locate()
    (common / "act_qmaster").write_text("\n")
    with pytest.raises(Unreachable, match="names no master"):
        cell.locate()
    (common / "act_qmaster").write_text("head.example.org\n")
    assert cell.locate() == ("head.example.org", 7000, str(common.parent))


def test_the_end_of_a_pilots_output_is_read_where_it_lies(connection: SshConnection, tmp_path: Path) -> None:
    client = CommandClient(SshRunner(connection, {}), "Slurm", "Slurm's controller", "", PATIENCE)
    log = tmp_path / "pilotage-1-3.log"
    assert client.read_log_tail(str(tmp_path), "pilotage-1", 3, 10) == ""
    log.write_text("first line\n" + "ä" * 100)
    assert client.read_log_tail(str(tmp_path), "pilotage-1", 3, 5) == "ä" * 5
    assert client.read_log_tail("", "pilotage-1", 3, 5) == ""
    log.rename(tmp_path / "secret")
    log.symlink_to(tmp_path / "secret")
    assert client.read_log_tail(str(tmp_path), "pilotage-1", 3, 5) == "", "a payload may have made the link"
