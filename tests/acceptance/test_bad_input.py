"""Clear errors, and nothing lost: what people and programs get wrong."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pilotage.core.errors import InvalidInput
from pilotage.server.process.home import Home, file_system_of
from pilotage.wire.uploads import MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES, bundle_header
from tests.deadlines import PATIENCE
from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("bad")) as instance:
        yield instance


@pytest.fixture
def raw(pool: Instance) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {(pool.home / 'token').read_text().strip()}"}
    with httpx.Client(base_url=pool.client().url, headers=headers, timeout=PATIENCE) as client:
        yield client


def _up(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilotage.main", "up", "--home", str(home), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)


def test_a_second_server_on_the_same_home_is_refused_and_the_first_goes_on(pool: Instance) -> None:
    second = _up(pool.home, "--port", "0")
    assert second.returncode == 5
    assert "another server runs on this home: process " in second.stderr
    assert str(pool.process.pid if pool.process else "") in second.stderr
    assert "Traceback" not in second.stderr
    assert pool.client().whoami().user


def test_a_port_in_use_is_named_with_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = _up(tmp_path / "home", "--port", str(port))
    assert refused.returncode == 5
    assert str(port) in refused.stderr
    assert "--port" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_detached_start_that_fails_says_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = _up(tmp_path / "home", "--detach", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 5
    assert "cannot be used" in refused.stderr


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "fuse.sshfs"])
def test_a_database_on_a_network_file_system_is_refused_with_a_proposal(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path}/far\\040away {kind} rw 0 0\n")
    far = tmp_path / "far away" / "home"
    assert file_system_of(far, mounts.read_text()) == kind
    with pytest.raises(InvalidInput, match=r"network file system .* --database"):
        Home.at(far, str(far / "pilotage.db")).check_disk(str(mounts))
    Home.at(far, str(tmp_path / "local" / "pilotage.db")).check_disk(str(mounts))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "pilotage.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    refused = _up(home)
    assert refused.returncode == 2
    assert "no usable database" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_home_keeps_to_its_own_database(tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "pool.db"
    instance = Instance(tmp_path)
    try:
        instance.start("--database", str(elsewhere))
        job = instance.client().submit({"executable": "echo", "arguments": ["first"]}).first
        instance.reaches(job, "Done")
        instance.stop_server()
        other = _up(instance.home, "--database", str(tmp_path / "other.db"))
        assert other.returncode == 5
        assert str(elsewhere) in other.stderr
        assert not (tmp_path / "other.db").exists()
        instance.start()
        assert instance.client().log(job).data == b"first\n"
        assert instance.cli("db", "backup", str(tmp_path / "copy.db")).returncode == 0
    finally:
        instance.close()


def test_pilots_cannot_be_cancelled_without_a_server(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        instance.stop_server()
        refused = instance.cli("down", "--cancel-pilots")
        assert refused.returncode == 6
        assert "pilotage up" in refused.stderr
        assert instance.cli("down").returncode == 0


def test_a_policy_with_a_typo_is_refused_with_its_line_and_the_old_one_stays(
    pool: Instance, tmp_path: Path
) -> None:
    before = pool.client().policy()
    file = tmp_path / "policy.toml"
    file.write_text(pool.policy.replace("heartbeat", "heartbaet"))
    refused = pool.cli("policy", "apply", str(file))
    assert refused.returncode == 2
    assert "heartbaet" in refused.stderr
    assert "heartbeat" in refused.stderr
    line = file.read_text().splitlines().index("heartbaet = 0.5") + 1
    assert f"line {line}" in refused.stderr
    assert pool.client().policy() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[ Executable = 1 + ; ]", "line 1"),
        ('[\nExecutable = "true";\nCPUTmie = 100;\n]', "CPUTime"),
        ('[ Executable = "true"; Site = "Nowhere"; ]', "Nowhere"),
        ('[ Executable = "true"; PilotTypes = {"private"}; ForceGeneric = true; ]', "orce"),
        ('[ Executable = "true"; OutputSandbox = {"../../etc/passwd"}; ]', "passwd"),
        ('[ Executable = "true"; OutputData = {"LFN:/x"}; ]', "OutputData"),
        ('[ Executable = "true"; CPUTime = "soon"; ]', "CPUTime"),
        ('[ Executable = "true"; Executable = "false"; ]', "Executable"),
        ("", "xecutable"),
    ],
)
def test_wrong_jdl_is_refused_by_program_and_server_alike(
    pool: Instance, raw: httpx.Client, tmp_path: Path, text: str, told: str
) -> None:
    answer = raw.post("/v1/submissions", json={"jdl": text})
    assert answer.status_code == 400, answer.text
    assert told in answer.text
    (tmp_path / "job.jdl").write_text(text)
    refused = pool.cli("submit", str(tmp_path / "job.jdl"))
    assert refused.returncode == 2
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/submissions", b"{not json"),
        ("/v1/submissions", b"[]"),
        ("/v1/submissions", b'{"description": {"executable": "true"}, "jdl": "x"}'),
        ("/v1/submissions", b'{"description": {"executable": ["a", {"b": 1}]}}'),
        ("/v1/jobs/kill", b'{"selection": {"ids": ["x"]}}'),
        ("/v1/jobs/frobnicate", b'{"selection": {}}'),
        ("/v1/pilot/enrol", b"\xff\xfe"),
        ("/v1/pilot/enrol", b'{"secret": 1}'),
        ("/v1/pilot/exchange", b'{"incarnation": "one"}'),
    ],
)
def test_bodies_that_are_not_the_wanted_json_are_refused(raw: httpx.Client, path: str, body: bytes) -> None:
    answer = raw.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    told = answer.json()
    assert told["code"] == "invalid-input"
    assert told["message"]


def test_a_hundred_megabytes_of_json_are_refused_unread(pool: Instance, raw: httpx.Client) -> None:
    body = b'{"description": {"executable": "' + b"x" * 100_000_000 + b'"}}'
    for path in ("/v1/submissions", "/v1/pilot/exchange"):
        try:
            assert raw.post(path, content=body).status_code == 413
        except httpx.WriteError:
            continue  # It has closed the connection rather than read on.
    chunked = raw.post("/v1/submissions", content=(part for part in [b"{", b"}"]))
    assert chunked.status_code == 413
    assert pool.client().whoami().user


def test_a_pilot_of_another_protocol_is_told_so(raw: httpx.Client) -> None:
    answer = raw.post("/v1/pilot/enrol", json={"secret": "s", "index": 0, "nonce": "n", "protocol": 99})
    assert answer.status_code == 426
    assert "protocol 99" in answer.json()["message"]
    newer = {"secret": "s", "index": 0, "nonce": "n", "protocol": 1, "a_field_of_tomorrow": 1}
    assert raw.post("/v1/pilot/enrol", json=newer).json()["code"] == "not-authenticated"


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../b", "a//b", "", "a\x00b"])
def test_path_tricks_in_input_names_are_refused(raw: httpx.Client, name: str) -> None:
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert raw.put(f"/v1/uploads/{digest}", content=b"").status_code == 201
    body = {
        "description": {"executable": "true", "input_sandbox": ["x"]},
        "inputs": [{"name": name, "digest": digest, "size": 0}],
    }
    assert raw.post("/v1/submissions", json=body).status_code == 400


def test_uploads_are_checked_against_their_digest_and_size(pool: Instance, raw: httpx.Client) -> None:
    assert raw.put("/v1/uploads/" + "0" * 64, content=b"other bytes").status_code == 400
    assert raw.put("/v1/uploads/..%2F..%2Fescape", content=b"x").status_code in (400, 404)
    small = pool.policy + "max_input_file = 1000\n"
    pool.client().apply_policy(small)
    try:
        refused = raw.put("/v1/uploads/" + "0" * 64, content=b"x" * 2000)
        assert refused.status_code == 413
        assert "1000" in refused.json()["message"]
    finally:
        pool.client().apply_policy(pool.policy)
    assert not list((pool.home / "sandboxes" / "partial").iterdir())


def test_many_uploads_in_one_request_are_checked_each(pool: Instance, raw: httpx.Client) -> None:
    files = [(hashlib.sha256(data).hexdigest(), data) for data in (b"of many: 1", b"of many: 2", b"x" * 900)]
    digests = [digest for digest, _ in files]

    def bundle(*given: tuple[str, bytes]) -> bytes:
        return b"".join(bundle_header(digest, len(data)) + data for digest, data in given)

    for body in (b"junk", bundle(*files)[:-1], bundle((digests[0], b"other")), bundle(("z" * 64, b""))):
        assert raw.put("/v1/uploads", content=body).status_code == 400
    assert raw.put("/v1/uploads", content=b"a" * (MAX_BUNDLE_BYTES + 1)).status_code == 413
    assert raw.put("/v1/uploads", content=bundle(files[0]) * (MAX_BUNDLE_FILES + 1)).status_code == 413
    asked = raw.post("/v1/uploads", json={"digests": digests})
    assert asked.json() == {"missing": digests, "to_storage": False}
    small = pool.policy + "max_input_file = 500\n"
    pool.client().apply_policy(small)
    try:
        assert raw.put("/v1/uploads", content=bundle(*files)).status_code == 413
    finally:
        pool.client().apply_policy(pool.policy)
    assert raw.put("/v1/uploads", content=bundle(*files)).json() == {"files": 3}
    assert raw.put("/v1/uploads", content=bundle(*files)).status_code == 201
    more = raw.post("/v1/uploads", json={"digests": [*digests, "0" * 64]})
    assert more.json() == {"missing": ["0" * 64], "to_storage": False}
    for digest, data in files:
        assert (pool.home / "sandboxes" / "inputs" / digest[:2] / digest).read_bytes() == data
    assert not list((pool.home / "sandboxes" / "partial").iterdir())


def test_a_full_disk_refuses_submissions_and_loses_nothing(tmp_path: Path) -> None:
    """A small file system of its own, if this machine lets us make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        with running(disk) as instance:
            client = instance.client()
            kept = client.submit({"executable": "true"}).first
            instance.reaches(kept, "Done")
            room = os.statvfs(disk)
            (disk / "filler").write_bytes(b"x" * (room.f_bavail * room.f_frsize - 300_000))
            refused = instance.cli("submit", "--", "true")
            assert refused.returncode == 7, refused.stderr
            assert "disk" in refused.stderr
            (disk / "filler").unlink()
            again = client.submit({"executable": "true"}).first
            instance.reaches(again, "Done")
            assert instance.job(kept).state == "Done"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("staus",), 2, "status"),
        (("submit",), 2, ""),
        (("submit", "--memory", "lots", "--", "true"), 2, "lots"),
        (("submit", "/nonexistent.jdl"), 2, "/nonexistent.jdl"),
        (("submit", "--input", "/nonexistent", "--", "true"), 2, "/nonexistent"),
        (("kill", "one"), 2, "one"),
        (("logs", "999999999"), 4, "999999999"),
        (("policy", "check", "/nonexistent"), 2, "/nonexistent"),
        (("status", "--server", "http://127.0.0.1:1"), 6, "127.0.0.1:1"),
        (("status", "--home", "/nonexistent"), 6, ""),
    ],
)
def test_mistakes_on_the_command_line(pool: Instance, words: tuple[str, ...], code: int, told: str) -> None:
    done = pool.cli(*words)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or not done.stdout.startswith("{")


def test_json_output_is_one_document_and_errors_stay_off_it(pool: Instance) -> None:
    for words in (["status"], ["queue", "list"], ["pilot", "list"], ["site", "list"], ["whoami"]):
        done = pool.cli(*words, "--json")
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)


def test_an_input_sandbox_that_is_too_large_as_a_whole_is_refused(pool: Instance, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 600)
    description = {"executable": "true", "input_sandbox": ["a", "b"]}
    pool.client().apply_policy(pool.policy + "max_input_sandbox = 1000\n")
    try:
        with pytest.raises(InvalidInput, match="1,200 bytes; the limit is 1,000"):
            pool.client().submit(description, folder=tmp_path)
    finally:
        pool.client().apply_policy(pool.policy)
    assert pool.client().submit(description, folder=tmp_path).count == 1
