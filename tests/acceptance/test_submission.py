"""Submission against a real server: what it is warned of, and what its jobs get."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotage.core.jobs.per_job_inputs import PerJobFile, encode_file
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("submission")) as found:
        yield found


def pilotage(
    instance: Instance, folder: Path, *words: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilotage.main", *map(str, words), "--home", str(instance.home)]
    if "--" in words:
        place = words.index("--")
        command[3:] = [*map(str, words[:place]), "--home", str(instance.home), *map(str, words[place:])]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )


IMPOSSIBLE = """\
executable: "true"
tags: [GPU-that-nobody-has]
platforms: [el4]
requirements: Memory > 10000000
processors: 512
banned_sites: [nowhere]
pilot_types: [private]
arguments: ["%s"]
"""


def test_a_dry_run_tells_what_the_submission_tells_and_stores_nothing(
    instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(IMPOSSIBLE)
    before = [job.id for job in instance.client().jobs()]
    trial = pilotage(instance, tmp_path, "submit", "--dry-run", "job.yaml")
    assert trial.returncode == 0
    assert [job.id for job in instance.client().jobs()] == before
    real = pilotage(instance, tmp_path, "submit", "job.yaml")
    assert real.returncode == 0
    assert trial.stderr == real.stderr
    warnings = real.stderr.splitlines()
    assert len(warnings) == 3
    for part in ("the tag GPU-that-nobody-has", "the platform el4", "512 processors", "Requirements"):
        assert part in warnings[2]
    job = max(job.id for job in instance.client().jobs())
    assert job not in before
    instance.client().kill([job])


def test_a_dry_run_is_refused_as_the_submission_is(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "job.jdl").write_text('Executable = "true"; Site = {"mars", "venus"}; GridCE = "none";')
    trial = pilotage(instance, tmp_path, "submit", "--dry-run", "job.jdl")
    real = pilotage(instance, tmp_path, "submit", "job.jdl")
    assert (trial.returncode, trial.stderr) == (real.returncode, real.stderr)
    assert real.returncode == 2
    for part in (
        "3 mistakes",
        "Site: mars is not in the policy",
        "Site: venus is not in the policy",
        "GridCE: none is not in the policy",
    ):
        assert part in real.stderr


def test_exported_variables_and_named_files_reach_the_job_as_they_are(
    instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "show.py").write_text(
        "import json, os, sys\n"
        "names = ('ODD', 'PLAIN', 'LEFT', 'VIRTUAL_ENV')\n"
        "print(json.dumps([{n: os.environ.get(n) for n in names}, open(sys.argv[1]).read()]))\n"
    )
    (tmp_path / "data.txt").write_text("data")
    odd = "a b;$(touch pwned) `id` 'x' \"y\" * \\ é"
    here = {"PATH": "/usr/bin:/bin", "ODD": odd, "PLAIN": "p", "LEFT": "l", "VIRTUAL_ENV": "/venv"}
    words = (
        "submit",
        "--json",
        "--export",
        "ODD,PLAIN",
        "--setup",
        "true",
        "--",
        "python3",
        "show.py",
        "data.txt",
    )
    sent = pilotage(instance, tmp_path, *words, environment=here)
    assert sent.returncode == 0, sent.stderr
    assert "sending show.py, data.txt" in sent.stderr
    job = json.loads(sent.stdout)["submissions"][0]["first"]
    instance.reaches(job, "Done")
    found: Any = json.loads(instance.client().log(job).data)
    assert found == [{"ODD": odd, "PLAIN": "p", "LEFT": None, "VIRTUAL_ENV": None}, "data"]


def test_each_job_gets_its_own_file_under_one_name(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    for n in range(3):
        (tmp_path / "inputs" / f"in-{n}.json").write_text(f"content {n}")
    (tmp_path / "inputs" / "in-2.json").chmod(0o755)
    words = ("submit", "--json", "--count", "3", "--name", "sim-%s", "-i", "inputs/in-%s.json=in.json")
    sent = pilotage(instance, tmp_path, *words, "--", "sh", "-c", "cat in.json; test -x in.json; echo $?")
    assert sent.returncode == 0, sent.stderr
    first = json.loads(sent.stdout)["submissions"][0]["first"]
    for n in range(3):
        instance.reaches(first + n, "Done")
        assert instance.client().log(first + n).data == f"content {n}{0 if n == 2 else 1}\n".encode()
    found = pilotage(instance, tmp_path, "status", "--json", "--name", "sim-1")
    assert [job["id"] for job in json.loads(found.stdout)["jobs"]] == [first + 1]


def test_files_of_the_rows_of_a_table_in_chunks(instance: Instance, tmp_path: Path) -> None:
    count = 1203  # more than two chunks of rows that name files
    (tmp_path / "d").mkdir()
    lines = ["n,file"]
    for n in range(count):
        (tmp_path / "d" / f"{n}.txt").write_text(f"row {n}")
        lines.append(f"{n},d/{n}.txt")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    words = ("submit", "--json", "--table", "rows.csv", "--key", "files", "-i", "%(file)s=in.txt")
    command = ("--", "sh", "-c", 'test "$(cat in.txt)" = "row %(n)s"')
    sent = pilotage(instance, tmp_path, *words, *command)
    assert sent.returncode == 0, sent.stderr
    made = json.loads(sent.stdout)["submissions"][0]
    assert made["count"] == count
    again = pilotage(instance, tmp_path, *words, *command)
    assert json.loads(again.stdout)["submissions"][0] == made
    for n in (0, 499, 500, count - 1):
        instance.reaches(made["first"] + n, "Done")
    instance.client().kill(Selection(submission=made["submission"]))
    (tmp_path / "d" / "7.txt").unlink()
    broken = pilotage(instance, tmp_path, *words[:-4], "--key", "other", *words[-2:], *command)
    assert broken.returncode == 2
    assert "row 8: there is no file d/7.txt" in broken.stderr


def test_a_row_reaches_no_file_of_another_owner(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the home's secret")
    instance.client().submit({"executable": "true", "input_sandbox": ["secret"]}, folder=tmp_path)
    value = encode_file(PerJobFile(hashlib.sha256(b"the home's secret").hexdigest(), 17, False))
    description = {"executable": "cat", "arguments": ["f"], "input_sandbox": [{"path": "f", "name": "f"}]}
    token = instance.client().create_token("bob").token
    address = instance.client().url
    with httpx.Client(
        base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE
    ) as raw:
        body: dict[str, Any] = {
            "description": description,
            "parameters": {"names": ["@0"], "rows": [[value]]},
        }
        answer = raw.post("/v1/submissions", json=body)
        assert (answer.status_code, "was not uploaded" in answer.text) == (400, True), answer.text
        opened = raw.post(
            "/v1/submissions/open",
            json={"description": description, "names": ["@0"], "key": "x", "expected": 1},
        ).json()
        chunk = raw.put(f"/v1/submissions/{opened['submission']}/chunks/0", json=[[value]])
        assert (chunk.status_code, "was not uploaded" in chunk.text) == (400, True)
        for wrong in ("@1", "@x"):
            body["parameters"]["names"] = [wrong]
            assert raw.post("/v1/submissions", json=body).status_code == 400
