"""A broken CE tells its reason and the next step, whatever its batch system is. Each adapter has a row for each fault.

Texts are those of the batch systems. Without its rows a further adapter fails here.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.policy import Ce, parse
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission, Shape
from pilotage.outside.batch.https_connection import BatchConnection, HttpReply, NoConnection
from pilotage.outside.batch.registry import ServerMachine, adapter_makers, make_adapter_of
from pilotage.outside.batch.runner import CommandResult, Runner
from pilotage.outside.batch.ssh.connection import SshConnection
from pilotage.outside.batch.submission import SubmissionFailed, SubmissionRefusal, is_same_failure

HOST, FORBIDDEN, CERTIFICATE, VERSION = "no such host", "forbidden", "certificate", "another version"
FAULTS = (HOST, FORBIDDEN, CERTIFICATE, VERSION)


@dataclass(frozen=True)
class Broken:
    """A fault of one batch system. `answer`: to every command or call; a text is the error of a command that fails."""

    answer: str | CommandResult | HttpReply | Exception
    reason: str
    """Words of the reason."""
    step: str
    """Words of the next step."""
    options: str = ""
    """Keys of the section of the batch system."""
    refusals: tuple[SubmissionRefusal, ...] = (SubmissionRefusal.REFUSED, SubmissionRefusal.UNREACHED)
    """How a submission may fail. In doubt: the batch system does not say that it has refused it."""


DOUBT = (SubmissionRefusal.IN_DOUBT,)
NO_CERTIFICATES = "its commands use no certificates"


def untrusted() -> NoConnection:
    error = NoConnection(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "self-signed certificate"
    error.__cause__ = cause
    return error


ARC = 'url = "https://ce.example.org:8443/arex"'
PBS: Mapping[str, Broken | str] = {
    HOST: Broken(
        "Unknown Host.\nqsub: cannot connect to server nosuch (errno=15034)", "nosuch", "`server`", "", DOUBT
    ),
    FORBIDDEN: Broken("qsub: Unauthorized Request ", "Unauthorized Request", "let the account"),
    CERTIFICATE: NO_CERTIFICATES,
    VERSION: Broken(CommandResult(0, "what is this?\n"), "what is this?", "unknown version", "", DOUBT),
}
BROKEN: Mapping[str, Mapping[str, Broken | str]] = {
    "arc": {
        HOST: Broken(
            NoConnection(-2, "Name or service not known"), "no connection to ce.example.org", "`url`", ARC
        ),
        FORBIDDEN: Broken(HttpReply(403, "Forbidden"), "403 Forbidden", "administrators map identities", ARC),
        CERTIFICATE: Broken(untrusted(), "self-signed certificate", "`ca` names", ARC),
        VERSION: Broken(
            HttpReply(200, "OK", b"<versions><version>9.0</version></versions>"), "9.0", "later version", ARC
        ),
    },
    "htcondor": {
        HOST: Broken("condor_q: unknown host nosuch", "unknown host nosuch", "`schedd` and `pool`"),
        FORBIDDEN: Broken(
            "Failed to connect to queue manager x@y\nAUTHENTICATE:1003:Failed to authenticate with any method\n"
            "AUTHENTICATE:1004:Failed to authenticate using IDTOKENS",
            "AUTHENTICATE:1004",
            "`token_folder`",
        ),
        CERTIFICATE: Broken(
            "AUTHENTICATE:1004:Failed to authenticate using SSL\n"
            "SSL:certificate verify failed: self-signed certificate in certificate chain",
            "self-signed certificate",
            "CA certificates",
        ),
        VERSION: Broken(CommandResult(0, "<?xml version='1.0'?>\n"), "<?xml", "unknown version", "", DOUBT),
    },
    "lsf": {
        HOST: Broken("Failed in LSF library call: Fail to contact LIM. ", "contact LIM", "`envdir`", "", DOUBT),
        FORBIDDEN: Broken(
            "User permission denied. Job not submitted.", "User permission denied", "let the account"
        ),
        CERTIFICATE: NO_CERTIFICATES,
        VERSION: Broken(CommandResult(0, "what is this?\n"), "what is this?", "unknown version", "", DOUBT),
    },
    "machines": dict[str, Broken | str].fromkeys(FAULTS, "ssh reaches each machine: its faults have their own test"),
    "pbs": PBS,
    "sge": {
        HOST: Broken(
            "error: commlib error: can't resolve hostname\nUnable to run job: unable to contact qmaster using port 6444"
            ' on host "nosuch".',
            "nosuch",
            "`cell`",
            "",
            DOUBT,
        ),
        FORBIDDEN: Broken(
            'denied: host "laptop" is neither submit nor admin host', "neither submit nor admin host", "qconf -as"
        ),
        CERTIFICATE: NO_CERTIFICATES,
        VERSION: Broken(CommandResult(0, "what is this?\n"), "", "unknown version", "", DOUBT),
    },
    "slurm": {
        HOST: Broken(
            "sbatch: error: Unable to resolve \"nosuch\": Unknown host\nsbatch: error: Batch job submission failed:"
            " Unable to contact slurm controller (connect failure)",
            "Unable to resolve",
            "`conf`",
            "",
            DOUBT,
        ),
        FORBIDDEN: Broken(
            "sbatch: error: Batch job submission failed: Access/permission denied", "permission denied", "munge"
        ),
        CERTIFICATE: NO_CERTIFICATES,
        VERSION: Broken(CommandResult(0, "what is this?\n"), "", "unknown version", "", DOUBT),
    },
    "torque": PBS,
}  # fmt: skip


@dataclass
class Fake:
    """The machine of a server whose batch systems all answer in one way."""

    answer: str | CommandResult | HttpReply | Exception
    is_remote: bool = False
    asked: list[Sequence[str]] = field(default_factory=list)

    def close(self) -> None:
        pass

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = 60.0) -> CommandResult:
        self.asked.append(command)
        if command[0] == "sh":
            return CommandResult(0, "/a/script\n")
        assert not isinstance(self.answer, HttpReply | Exception)
        return CommandResult(1, errors=self.answer) if isinstance(self.answer, str) else self.answer

    def send(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        if isinstance(self.answer, Exception):
            raise self.answer
        assert isinstance(self.answer, HttpReply)
        return self.answer

    def runner(self, environment: Mapping[str, str]) -> Runner:
        return self

    def connect(self, host: str, port: int, context: ssl.SSLContext, timeout: float) -> BatchConnection:
        return self


POLICY = """\
[groups.physics]
[users.ada]
groups = ["physics"]
[sites.here]
[ces.x]
site = "here"
wall = 600
"""


def ce_of(system: str, options: str, more: str = "") -> Ce:
    return parse(f'{POLICY}type = "{system}"\n{more}\n[ces.x.{system}]\n{options}\n').ces["x"]


def adapter_of(system: str, broken: Broken, folder: Path) -> BatchAdapter:
    fake = Fake(broken.answer)
    cell = folder / "default" / "common"
    cell.mkdir(parents=True)
    (cell / "act_qmaster").write_text("nosuch\n")
    environment = {
        "SGE_ROOT": str(folder),
        "SGE_QMASTER_PORT": "6444",
        "BEARER_TOKEN": "word",
        "PATH": "/bin",
    }
    machine = ServerMachine(environment, "me", folder, runner=fake.runner, connect=fake.connect)
    return make_adapter_of(ce_of(system, broken.options), machine)


def test_every_adapter_has_every_fault() -> None:
    assert BROKEN.keys() == adapter_makers().keys() - {"local"}
    for system, faults in BROKEN.items():
        assert faults.keys() == set(FAULTS), system


CASES = [
    pytest.param(system, broken, id=f"{system}: {fault}")
    for system, faults in BROKEN.items()
    for fault, broken in faults.items()
    if isinstance(broken, Broken)
]


@pytest.mark.parametrize(("system", "broken"), CASES)
def test_a_broken_ce_tells_the_reason_and_the_next_step(system: str, broken: Broken, tmp_path: Path) -> None:
    adapter = adapter_of(system, broken, tmp_path)
    failures = [adapter.list_pilots().failure for _ in range(2)]
    assert is_same_failure(*failures), "the log has it once"
    check_text(failures[0], broken.reason, broken.step)
    for question in (adapter.describe, adapter.information):
        with pytest.raises(Unreachable) as unanswered:
            question()
        check_text(str(unanswered.value), broken.reason, broken.step)


@pytest.mark.parametrize(("system", "broken"), CASES)
def test_a_submission_to_a_broken_ce_says_why_it_failed(system: str, broken: Broken, tmp_path: Path) -> None:
    adapter = adapter_of(system, broken, tmp_path)
    with pytest.raises(SubmissionFailed) as failed:
        adapter.submit(BatchSubmission("pilotage-1a2b", 1, Shape(1, 100, 600.0), "#!/bin/sh\n"))
    assert failed.value.refusal in broken.refusals
    check_text(failed.value.reason, broken.reason, "")


def check_text(text: str, reason: str, step: str) -> None:
    assert reason in text
    assert step in text, text
    assert len(text.splitlines()) == 1
    assert len(text) < 700, "people read it in lists"


REACHABLE = [system for system in sorted(adapter_makers()) if system not in ("local", "arc")]


def without_connection(system: str, folder: Path) -> BatchAdapter:
    """An adapter whose commands run on a host to which nobody has opened a connection."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(
        "#!/bin/sh\necho 'ssh: Could not resolve hostname nosuch: Name not known' >&2; exit 255\n"
    )
    (programs / "ssh").chmod(0o755)
    environment = {"PATH": f"{programs}:/bin:/usr/bin"}
    machine = ServerMachine({}, "me", folder, ssh=lambda reach: SshConnection(reach, folder, environment))
    if system == "machines":
        return make_adapter_of(ce_of(system, 'hosts = ["nosuch"]'), machine)
    return make_adapter_of(ce_of(system, "", 'reach = "ssh nosuch"'), machine)


@pytest.mark.parametrize("system", REACHABLE)
def test_a_host_that_ssh_does_not_reach_is_told_and_nothing_is_in_doubt(system: str, tmp_path: Path) -> None:
    adapter = without_connection(system, tmp_path)
    step = "Could not resolve hostname nosuch" if system == "machines" else "type `pilotage ce login`"
    check_text(adapter.list_pilots().failure, "nosuch", step)
    with pytest.raises(SubmissionFailed) as failed:
        adapter.submit(BatchSubmission("pilotage-1a2b", 1, Shape(1, 100, 600.0), "#!/bin/sh\n"))
    assert failed.value.refusal in (SubmissionRefusal.UNREACHED, SubmissionRefusal.FULL)
    assert "nosuch" in failed.value.reason


@pytest.mark.parametrize("system", [system for system in REACHABLE if system != "machines"])
def test_commands_that_are_not_installed_are_named_with_the_way_to_get_them(
    system: str, tmp_path: Path
) -> None:
    missing = Broken(
        CommandResult(127, errors="No such file or directory"), "is not installed here", "install "
    )
    check_text(adapter_of(system, missing, tmp_path).list_pilots().failure, missing.reason, missing.step)
