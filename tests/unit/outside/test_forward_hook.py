"""A site's hook is run without a shell, for a bounded time, with bounded output, and alone with its environment."""

from __future__ import annotations

import contextlib
import os
import re
import select
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pilotage.core import policy
from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.hook import read_arguments
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.hook import MAX_OUTPUT, HookRunner, obstacle_to_run
from tests.deadlines import PATIENCE

PATH = {"PATH": "/usr/bin:/bin"}


def program(folder: Path, text: str, mode: int = 0o755) -> str:
    file = folder / "hook with blank; $(id)"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(mode)
    return str(file)


def test_a_hook_gets_only_its_environment(tmp_path: Path) -> None:
    hook = program(tmp_path, 'echo "--tmp=$X_Min"; env')
    environment = {**PATH, "X_Min": "5", "PILOTAGE_REQUIREMENTS": 'other.T == "$(id)`id`"'}
    lines = HookRunner().run(hook, environment).splitlines()
    assert lines[0] == "--tmp=5"
    assert 'PILOTAGE_REQUIREMENTS=other.T == "$(id)`id`"' in lines
    names = {line.partition("=")[0] for line in lines[1:]}
    assert names <= {*environment, "PWD", "SHLVL", "_", "OLDPWD"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo wrong queue >&2; exit 3", "it ended with status 3: wrong queue"),
        ("kill -9 $$", "it was killed by signal 9"),
        (f"head -c {MAX_OUTPUT + 1} /dev/zero", "printed more than"),
        ("yes", "printed more than"),
        ("printf '\\303\\244'", "not ASCII"),
    ],
)
def test_failures_have_their_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        HookRunner().run(program(tmp_path, text), PATH)


def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    for path in (str(tmp_path / "absent"), program(tmp_path, "", 0o644), str(tmp_path), "/\0"):
        with pytest.raises(InvalidInput, match="it cannot be run"):
            HookRunner().run(path, PATH)


def test_an_obstacle_is_told_before_the_first_run(tmp_path: Path) -> None:
    absent, folder = str(tmp_path / "absent"), str(tmp_path)
    assert obstacle_to_run(absent) == "it cannot be run: No such file or directory"
    assert obstacle_to_run(folder) == "it is no file"
    assert obstacle_to_run(program(tmp_path, "", 0o644)) == "it is not executable by the server"
    assert obstacle_to_run(program(tmp_path, "")) == ""


def test_a_runner_that_closes_ends_the_hook_at_once(tmp_path: Path) -> None:
    """Even if a process that left the group keeps the output open."""
    os.mkfifo(tmp_path / "started")
    hook = program(tmp_path, f"setsid sleep 30 & echo > {tmp_path}/started; exec sleep 1000")
    runner = HookRunner()
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(runner.run, hook, PATH, 1000.0)
        (tmp_path / "started").read_text()
        runner.close()
        with pytest.raises(InvalidInput, match="the server stops"):
            answer.result(PATIENCE)
    with pytest.raises(InvalidInput, match="the server stops"):
        runner.run(hook, PATH)


def test_a_hook_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hook = program(tmp_path, f"sleep 1000 & echo $! > {pid}.new; mv {pid}.new {pid}; wait")
    with pytest.raises(InvalidInput, match="did not end within"):
        HookRunner().run(hook, PATH, timeout=5.0)
    with contextlib.suppress(ProcessLookupError):
        child = os.pidfd_open(int(pid.read_text()))
        # A descriptor of a process is readable when the process has ended, also while it is a zombie.
        ended, _, _ = select.select([child], [], [], PATIENCE)
        os.close(child)
        assert ended


def test_a_child_that_keeps_the_output_open_does_not_hold_the_answer_back_for_ever(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="did not end within"):
        HookRunner().run(program(tmp_path, "sleep 1000 & exit 0"), PATH, timeout=1.0)


def test_a_hook_that_closes_its_output_ends_in_the_same_time(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="did not end within"):
        HookRunner().run(program(tmp_path, "exec >&- 2>&-; exec sleep 1000"), PATH, timeout=0.5)


@pytest.mark.parametrize("text", ["exit 0", "exit 3", "exec sleep 1000", "yes"])
def test_its_group_is_killed_while_its_id_is_its_own(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is reaped its id may be that of a foreign group."""
    is_reaped: list[bool] = []
    kill = os.killpg

    def watched(group: int, number: int) -> None:
        is_reaped.append(not Path(f"/proc/{group}").exists())
        kill(group, number)

    monkeypatch.setattr(os, "killpg", watched)
    with contextlib.suppress(InvalidInput):
        HookRunner().run(program(tmp_path, text), PATH, timeout=0.5)
    assert is_reaped == [False]


def test_no_descriptor_of_the_server_reaches_the_hook(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        os.set_inheritable(writer, False)
        assert (
            HookRunner().run(
                program(tmp_path, f"[ -e /proc/self/fd/{writer} ] && echo open; echo done"), PATH
            )
            == "done\n"
        )
    finally:
        os.close(reader)
        os.close(writer)


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "forward-requirements.md"


@pytest.mark.parametrize(
    ("variables", "printed"),
    [
        ({}, []),
        ({"PILOTAGE_VO": "EGEE"}, ["--qos=grid"]),
        ({"GlueHostMainMemoryRAMSize_Min": "64001"}, ["--reservation=large"]),
    ],
)
def test_the_hook_of_the_page_prints_arguments_that_are_allowed(
    tmp_path: Path, variables: dict[str, str], printed: list[str]
) -> None:
    script = PAGE.read_text(encoding="utf-8").partition("```sh\n")[2].partition("```")[0]
    output = HookRunner().run(program(tmp_path, script), {**PATH, **variables})
    assert output.splitlines() == printed
    assert [
        f"{option}={value}" for option, value in read_arguments(output, SlurmOptions.forwarding).items()
    ] == printed


def test_the_tables_of_the_page_are_accepted() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        system = "sge" if "ces.cell" in block else "slurm"
        name = "cell" if system == "sge" else "farm"
        table = f'[ces.{name}]\nsite = "here"\ntype = "{system}"\n'
        body = block.removeprefix(f"[ces.{name}]\n")
        policy.parse(
            f'[groups.users]\nshare = 1\n[users.ada]\ngroups = ["users"]\n[sites.here]\n{table}{body}'
        )
