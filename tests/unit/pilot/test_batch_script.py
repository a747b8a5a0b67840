"""Batch scripts get the bytes, files and signals of their submission, and no shell stands between."""

from __future__ import annotations

import base64
import json
import os
import signal
import zlib
from pathlib import Path

import pytest

from pilotage.pilot.cannot_run import CannotRun
from pilotage.pilot.launch import build_command, spawn
from pilotage.wire.batch_script import PROGRAM, ScriptOrder, in_pieces, packed, unpacked
from pilotage.wire.pilot import Payload

BASE = {"PATH": os.environ["PATH"], "PILOTAGE_CE": "b"}


def payload(order: ScriptOrder) -> Payload:
    return Payload(PROGRAM, in_pieces(packed(order)))


def run(order: ScriptOrder, folder: Path, **environment: str) -> bytes:
    """What its standard output and error say."""
    job = payload(order)
    job.environment = environment
    command = build_command(job, (12, 1), str(folder), str(folder), BASE)
    with open(os.devnull, "rb") as null, (folder / "output").open("wb") as output:
        pid = spawn(command, str(folder), (null.fileno(), output.fileno(), output.fileno()), ())
    os.waitpid(pid, 0)
    return (folder / "output").read_bytes()


def test_bytes_that_are_not_utf8_arrive(tmp_path: Path) -> None:
    text = b"a\xff\xed\xa0\x80".decode("utf-8", "surrogateescape")
    script = "#!/bin/sh\nprintf '%s|%s|'" + f' "$1" "$X"\nprintf {text}'
    order = ScriptOrder(script, [text, "", "two words"], {"X": text})
    assert unpacked(in_pieces(packed(order))) == order
    assert run(order, tmp_path) == b"|".join([b"a\xff\xed\xa0\x80"] * 3)


def test_variables_that_a_shell_keeps_for_itself_arrive(tmp_path: Path) -> None:
    variables = {"UID": "7", "SHELLOPTS": "x", "odd-name": "1", "BASH_FUNC_f%%": "() { echo hi; }"}
    order = ScriptOrder("#!/usr/bin/env -S cat /proc/self/environ\n", [], variables)
    found = run(order, tmp_path).split(b"\0")
    assert {f"{name}={value}".encode() for name, value in variables.items()} <= set(found)


def test_the_variables_of_slurm(tmp_path: Path) -> None:
    names = "$SLURM_JOB_ID $SLURM_ARRAY_JOB_ID $SLURM_JOB_PARTITION $SLURM_RESTART_COUNT"
    order = ScriptOrder(
        f'#!/bin/sh\necho {names}\n[ "$$" = "$SLURM_TASK_PID" ] && echo own\n',
        partitions={"short": ["a"], "long": ["b"]},
    )
    said = run(order, tmp_path, SLURM_ARRAY_TASK_ID="5", PILOTAGE_ARRAY_POSITION="2")
    assert said == b"12 10 long\nown\n"


def test_standard_input_is_a_file_and_every_signal_has_its_default(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("line\n")
    script = "#!/bin/bash\ncat\ntrap 'echo INT' INT\ntrap 'echo USR1' USR1\nkill -INT $$\nkill -USR1 $$\n"
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert run(ScriptOrder(script, standard_input="in.txt"), tmp_path) == b"line\nINT\nUSR1\n"
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(CannotRun, match=r"standard input: absent.txt: No such file"):
        run(ScriptOrder(script, standard_input="absent.txt"), tmp_path)


def test_several_tasks_of_a_command(tmp_path: Path) -> None:
    lines = "echo $SLURM_PROCID $X; [ $$ = $SLURM_TASK_PID ] && exit $SLURM_PROCID"
    order = ScriptOrder("", ["sh", "-c", lines], {"X": "x"}, tasks=3)
    said = sorted(run(order, tmp_path).decode().splitlines())
    assert said[:3] == ["0 x", "1 x", "2 x"]
    assert [line.partition("task ")[2] for line in said[3:]] == [
        "1: Exited with exit code 1",
        "2: Exited with exit code 2",
    ]
    absent = run(ScriptOrder("", ["no-such-command"], tasks=2), tmp_path).decode()
    assert absent.count("execve(): no-such-command: No such file or directory") == 2


@pytest.mark.parametrize(
    "order",
    [
        {"script": 1},
        {"script": ""},
        {"script": "#!", "arguments": "text"},
        {"script": "#!", "arguments": [1]},
        {"script": "#!", "variables": ["a"]},
        {"script": "#!", "variables": {"a": 1}},
        {"script": "#!", "partitions": {"a": {}}},
        {"script": "#!", "signal": "NOSUCH"},
        {"script": "#!", "is_for_script": 1},
        {"script": "#!", "unknown": ""},
        {"script": "", "arguments": ["true"], "tasks": "2"},
        [],
        "cut",
        "none",
    ],
)
def test_an_order_that_nobody_packed_is_the_fault_of_the_job(order: object, tmp_path: Path) -> None:
    data = zlib.compress(json.dumps(order).encode())
    sent = {"cut": data[:-3], "none": b"x"}.get(str(order), data)
    job = Payload(PROGRAM, [base64.b64encode(sent).decode()])
    with pytest.raises(CannotRun) as caught:
        build_command(job, (1, 1), str(tmp_path), str(tmp_path), BASE)
    assert (caught.value.exit_code, caught.value.failure) == (126, "")
