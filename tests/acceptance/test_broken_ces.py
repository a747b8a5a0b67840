"""Broken CEs of all batch systems at one server: each tells its reason and the next step, and the other CEs go on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pilotage.outside.batch.registry import adapter_makers
from pilotage.wire.jobs import Selection
from tests.instance import Instance, started, until

pytestmark = pytest.mark.slow

QUICK = 'owners = "any"\nwall = 1200\nlisting_period = 0.5\nsettle = 0.5'

SAID = {
    "condor": "AUTHENTICATE:1004:Failed to authenticate using IDTOKENS",
    "slurm": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "pbs": "qselect: cannot connect to server nosuch (errno=15034)",
    "torque": "qstat: Unauthorized Request  MSG=not permitted",
    "lsf": "Failed in an LSF library call: Fail to contact LIM.",
    "sge": 'denied: host "laptop" is neither submit nor admin host',
}
"""The answers of the commands, by the beginning of their names or the variable that tells the system."""

BROKEN = {
    "arc": ('url = "https://127.0.0.1:1/arex"', "", "no connection to 127.0.0.1", "`url`"),
    "htcondor": ("", "", "AUTHENTICATE:1004", "`token_folder`"),
    "lsf": ("", "", "contact LIM", "`envdir`"),
    "machines": ('hosts = ["nosuch.invalid"]', "", "nosuch.invalid is away", "resolve hostname"),
    "pbs": ('server = "nosuch"', "", "cannot connect to server nosuch", "`server`"),
    "sge": ('root = "ROOT"', "", "neither submit nor admin host", "qconf -as"),
    "slurm": ("", 'reach = "ssh nosuch.invalid"', "no connection to nosuch.invalid", "pilotage ce login"),
    "torque": ('server = "other"', "", "Unauthorized Request", "let the account"),
}
"""By batch system: its options, keys of the CE, words of the reason and of the next step."""

COMMANDS = {
    "condor": ("condor_q", "condor_submit", "condor_status", "condor_rm", "condor_release"),
    "lsf": ("bsub", "bjobs", "bkill", "bresume", "lsid", "bqueues", "bhosts", "lshosts"),
}
SHARED = ("qsub", "qstat", "qselect", "qdel", "qrls", "pbsnodes", "qconf", "qhost", "qping", "qacct")
"""Commands of PBS, Torque and Grid Engine."""


def test_the_table_has_every_adapter() -> None:
    assert BROKEN.keys() == adapter_makers().keys() - {"local"}


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("server")
    programs, cell = folder / "bin", folder / "sge" / "default" / "common"
    for path in (programs, cell):
        path.mkdir(parents=True)
    (cell / "act_qmaster").write_text("nosuch\n")
    said = {name: f"echo {shlex.quote(SAID[name])} >&2; exit 1" for name in SAID}
    for system, commands in COMMANDS.items():
        for name in commands:
            write_program(programs / name, said[system])
    for name in SHARED:
        asked = f'case "$PBS_SERVER$PBS_DEFAULT" in nosuch) {said["pbs"]};; other) {said["torque"]};; esac'
        write_program(programs / name, f"{asked}; {said['sge']}")
    server = Instance(tmp_path_factory.mktemp("home"))
    server.environment = {
        **server.environment,
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder),
        "BEARER_TOKEN": "word",
    }
    sections = [
        f'[ces.{system}]\nsite = "here"\ntype = "{system}"\n{more}\n{QUICK}\n'
        f"[ces.{system}.{system}]\n{options.replace('ROOT', str(folder / 'sge'))}\n"
        for system, (options, more, _, _) in BROKEN.items()
    ]
    server.policy += '[director]\ndemand = "matched"\n' + "".join(sections)
    with started(server):
        yield server


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def told(instance: Instance, *words: str) -> str:
    """All that a command prints, on one line."""
    done = instance.cli(*words)
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def probes(instance: Instance) -> dict[str, CompletedProcess[str]]:
    """The end of `ce test` of each CE. Each waits for a further listing, so they run beside each other."""
    with ThreadPoolExecutor(len(BROKEN)) as threads:
        return dict(
            zip(BROKEN, threads.map(lambda system: instance.cli("ce", "test", system), BROKEN), strict=True)
        )


@pytest.mark.parametrize("system", sorted(BROKEN))
def test_every_view_tells_the_reason_and_the_next_step(
    instance: Instance, probes: dict[str, CompletedProcess[str]], system: str
) -> None:
    _, _, reason, step = BROKEN[system]
    client = instance.client()
    sent = client.submit({"executable": "true", "grid_ces": [system]})
    for words in (("ce", "show", system), ("ce", "list"), ("why", str(sent.first))):
        until(lambda words=words: reason in told(instance, *words), what=f"{reason} in {words}")
        assert step in told(instance, *words), words
    tested = probes[system]
    assert tested.returncode
    said = " ".join((tested.stdout + tested.stderr).split())
    assert reason in said
    assert step in said
    state = json.loads(instance.cli("ce", "show", system, "--json").stdout)["ce"]["state"]
    assert state == "unreachable"
    [line] = [line for line in instance.log().splitlines() if f"CE {system}: " in line]
    assert reason in line, "the log has it once"
    assert not [pilot for pilot in client.pilots() if pilot.ce == system], "nothing was submitted"
    assert client.job(sent.first).job.state == "Waiting"
    client.kill(Selection(submission=sent.submission))


def test_the_other_ces_go_on(instance: Instance) -> None:
    client = instance.client()
    sent = client.submit({"executable": "true"})
    until(lambda: client.job(sent.first).job.state == "Done", what="the end of the job")
