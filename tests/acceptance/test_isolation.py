"""A hostile payload in isolation: in pilots of this machine and of a real Slurm, under an ordinary account."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from pilotage.client.in_place import folder_fields
from pilotage.wire.batch_script import PROGRAM, ScriptOrder, in_pieces, packed
from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

NOBODY = 65534
ACCOUNT = NOBODY if os.getuid() == 0 else None
PYTHON = "/usr/bin/python3"
ISOLATED = 'isolation = "require"\nvisible = [{visible}]\n'


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every account may enter, with a folder `shown` and a file in it."""
    folder = Path(tempfile.mkdtemp(prefix="isolated-"))
    folder.chmod(0o711)
    try:
        (folder / "shown").mkdir()
        (folder / "shown/file").write_text("data")
        if ACCOUNT is not None:
            os.chown(folder / "shown", ACCOUNT, ACCOUNT)
            os.chown(folder / "shown/file", ACCOUNT, ACCOUNT)
        yield folder
    finally:
        shutil.rmtree(folder)


def batch_job_of(instance: Instance, pilot: int) -> str:
    """The array whose task is this pilot."""
    return instance.client().pilot(pilot).pilot.batch_id.partition("_")[0]


def run_hostile(instance: Instance, folder: Path, hidden: list[str], **environment: str) -> dict[str, Any]:
    """The hostile payload's report. Another user's payload runs beside it, in the same pilot."""
    alice, bob = instance.client("alice"), instance.client("bob")
    neighbour = alice.submit({"executable": "sh", "arguments": ["-c", "pwd; sleep 600"]}).first
    instance.reaches(neighbour, "Running")
    other = until(lambda: alice.log(neighbour).data.decode().strip(), what="the neighbour's folder")
    assert Path(other).is_dir() or "slurm" in instance.policy
    pilot = instance.job(neighbour).pilot
    assert pilot is not None
    mark = f"{os.getpid()}.125"
    script = Path(__file__).with_name("isolated_hostile.py")
    sent = bob.submit(
        {
            "executable": PYTHON,
            "arguments": [script.name],
            "input_sandbox": [script.name],
            "tags": ["isolated"],
            "environment": {
                "SERVER": bob.url,
                "SHOWN": str(folder / "shown"),
                "HIDDEN": ":".join([other, str(Path(other).parent / "inputs"), *hidden]),
                "OUTSIDE": str(os.getpid()),
                "MARK": mark,
                "BATCH_JOB": batch_job_of(instance, pilot),
                **environment,
            },
        },
        folder=script.parent,
    )
    done = instance.reaches(sent.first, "Done", "Failed")
    assert done.state == "Done", bob.log(sent.first, stream="stderr").data
    if "slurm" in instance.policy:
        assert done.pilot == pilot, "a pilot that isolates serves several owners at the same time"
    assert {one.owner for one in instance.client().pilots()} == {""}, "no pilot is bound"
    assert instance.job(neighbour).state == "Running", "the neighbour survived"
    until(lambda: not _running(mark), what="the end of the daemon")
    alice.kill([neighbour])
    report: dict[str, Any] = json.loads(bob.log(sent.first).data)
    return report


def _running(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[1:2] == [mark.encode()]:
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def finds_nothing(report: dict[str, Any], folder: Path) -> None:
    assert set(report["hidden"].values()) == {"FileNotFoundError"}, report["hidden"]
    assert report["processes"][:1] == [1], "the first process is its own namespace's"
    assert len(report["processes"]) == 2
    assert set(report["init"].values()) == {"PermissionError"}, report["init"]
    assert report["init's files"] == report["init's root"] == "PermissionError"
    assert report["trace init"] == "PermissionError"
    assert report["kill outside"] == "ProcessLookupError"
    assert set(report["enter init's namespaces"]) <= {"PermissionError", "OSError"}
    assert report["read shown"] == "done: 4"
    assert report["write shown"] == "OSError", "read-only file system"
    assert not [outcome for outcome in report["write system"] if outcome.startswith("done")]
    for act in ("write kernel", "mount", "remount", "chroot", "root by sudo", "device"):
        assert not report[act].startswith("done"), act
    assert not report["nested remount"].startswith("done"), report["nested remount"]
    for act in ("nested unmount", "nested chroot"):
        assert report[act] in ("done: []", "PermissionError") or report[act].startswith("no namespace"), act
    assert report["disks"] == []
    for act in ("munge", "batch script", "queue"):
        assert not report[act].startswith("done"), act
    assert set(report["server"].values()) == {401}, "the network is shared, and the server asks for a token"
    names = report["environment"]
    assert not [name for name in names if name.startswith(("SLURM", "MUNGE_"))]
    assert not [name for name, value in names.items() if name.startswith("PILOTAGE_") and len(value) > 20]
    assert (folder / "shown/file").read_text() == "data"


def test_a_hostile_payload_stays_in_its_namespaces() -> None:
    with public_folder() as folder, running_isolated(folder) as instance:
        home = [str(instance.home), str(instance.home / "token"), str(instance.home / "secrets/signing.key")]
        report = run_hostile(instance, folder, home)
        finds_nothing(report, folder)


@contextmanager
def running_isolated(folder: Path, **environment: str) -> Iterator[Instance]:
    instance = Instance(folder, ACCOUNT, owners="any")
    instance.environment = environment
    visible = ISOLATED.format(visible=f'"{folder}/shown"')
    instance.policy = instance.policy.replace('owners = "any"\n', visible)
    try:
        instance.start()
        instance.apply()
        yield instance
    finally:
        instance.close()


IN_PLACE = """\
import json, os

def look(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return type(error).__name__

def attempt(path):
    try:
        open(path, "a").close()
        return "written"
    except OSError as error:
        return type(error).__name__

places = json.loads(os.environ["PLACES"])
json.dump(
    {
        "seen": {path: look(path) for path in places},
        "written": {name: attempt(name) for name in ("result.txt", "below/new", "../beside/stray")},
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "folder": os.getcwd(),
        "stray": attempt("../stray"),
        "temporary": attempt(os.path.join(os.environ["TMPDIR"], "new")),
    },
    open("report.json", "w"),
)
os.symlink(os.environ["SECRET"], "stolen.txt")
print("done in place")
"""


def test_an_isolated_job_in_place_sees_its_folder_alone() -> None:
    """The folder lies in the home of the account, which isolated payloads do not see."""
    with public_folder() as folder, running_isolated(folder, HOME=f"{folder}/shared") as instance:
        shared = folder / "shared"
        place, beside = shared / "place", shared / "beside"
        for path in (shared, place, place / "below", beside):
            path.mkdir(mode=0o755)
            if ACCOUNT is not None:
                os.chown(path, ACCOUNT, ACCOUNT)
        (beside / "file").write_text("private")
        (place / "job.py").write_text(IN_PLACE)
        instance.policy = instance.policy.replace(
            "[ces.local]\n", f'[ces.local]\nshared_folders = ["{shared}"]\n'
        )
        instance.apply()
        secret = instance.home / "token"
        places = [str(path) for path in (shared, place, beside, folder / "shown", instance.home)]
        sent = instance.client().submit(
            {
                "executable": PYTHON,
                "arguments": ["job.py"],
                "stdout_file": "out-%j.txt",
                "output_sandbox": ["result.txt", "stolen.txt"],
                "tags": ["isolated"],
                "environment": {"PLACES": json.dumps(places), "SECRET": str(secret)},
                **folder_fields(place),
            }
        )
        ended = instance.reaches(sent.first, "Done", "Failed")
        assert ended.state == "Done", instance.cli("status", str(sent.first)).stdout
        report = json.loads((place / "report.json").read_text())
        assert report["seen"] == {
            str(shared): ["place"],
            str(place): ["below", "job.py", f"out-{sent.first}.txt"],
            str(beside): "FileNotFoundError",
            str(folder / "shown"): ["file"],
            str(instance.home): "FileNotFoundError",
        }
        assert report["written"] == {
            "result.txt": "written",
            "below/new": "written",
            "../beside/stray": "FileNotFoundError",
        }
        assert sorted(path.name for path in shared.iterdir()) == ["beside", "place"], "it writes nowhere else"
        assert (report["folder"], report["temporary"]) == (str(place), "written")
        assert report["processes"] == 2
        assert (place / f"out-{sent.first}.txt").read_text() == "done in place\n"
        assert (place / "below/new").stat().st_uid == (ACCOUNT if ACCOUNT is not None else os.getuid())
        detail = instance.client().job(sent.first)
        assert {output.name for output in detail.outputs} == {"result.txt", "stdout", "stderr"}
        assert [output.name for output in detail.refused_outputs] == ["stolen.txt"], (
            "its target is not in the folder"
        )
        other = instance.client("alice").submit({"executable": "true", **folder_fields(place)}).first
        until(
            lambda: "account" in instance.client("alice").why(other).detail, what="the refusal of the account"
        )


BATCH: Final = """\
#!/bin/bash
cat
trap 'echo script is warned' USR2
[ "$$" = "$SLURM_TASK_PID" ] && echo own number
sh -c 'echo $$; exec sleep 600' > child &
until [ -s child ]; do :; done
wait
kill "$(cat child)" && echo child lives
"""


def test_an_isolated_batch_script_alone_gets_its_signal_and_no_file_from_outside() -> None:
    with public_folder() as folder, running_isolated(folder) as instance:
        (folder / "in.txt").write_text("input\n")
        client = instance.client()

        def ended(standard_input: str) -> tuple[str, str]:
            order = ScriptOrder(BATCH, standard_input=standard_input, signal="USR2", is_for_script=True)
            job = {
                "executable": PROGRAM,
                "arguments": in_pieces(packed(order)),
                "wall_time": 600,
                "warn": 597,
            }
            sent = client.submit({**job, "input_sandbox": ["in.txt"], "tags": ["isolated"]}, folder=folder)
            state = instance.reaches(sent.first, "Done", "Failed").state
            return state, client.log(sent.first).data.decode()

        assert ended("in.txt") == ("Done", "input\nown number\nscript is warned\nchild lives\n")
        assert ended(str(instance.home / "token")) == ("Failed", "")


def test_a_ce_that_requires_isolation_shows_why_its_node_cannot() -> None:
    with public_folder() as folder, running(folder, user=ACCOUNT, owners="any") as instance:
        # Other pilots' folders would be visible.
        visible = ISOLATED.format(visible='"/tmp"')
        instance.policy = instance.policy.replace('owners = "any"\n', visible)
        instance.apply()
        job = instance.client("alice").submit({"executable": "true"}).first
        client = instance.client()
        [failure, *_] = until(lambda: client.ce("local").failures, what="the failed pilot")
        assert "cannot isolate payloads" in failure.reason
        assert "contains the work folders of pilots" in failure.reason
        assert instance.job(job).state == "Waiting"


def test_a_hostile_payload_in_a_slurm_job_reaches_neither_munge_nor_the_batch_script() -> None:
    with public_folder() as folder, slurm.cluster(nodes=1, processors=4) as cluster:
        munge = cluster.folder / "run/munge.sock"
        # The configuration is visible, so only munge keeps the payload from the controller.
        visible = f'["{folder}/shown", "{cluster.folder}/slurm.conf"]'
        with instance_on(
            cluster,
            folder / "server",
            user=ACCOUNT,
            isolation='"require"',
            visible=visible,
            owners='"any"',
            max_running="1",
            # Slurm deletes the script of a pilot that has ended.
            idle="120",
            pilot_types='["generic"]',
        ) as instance:
            hidden = [str(munge), str(cluster.folder / "spool"), str(cluster.folder / "state")]
            hidden += [str(cluster.folder / "log"), str(instance.home)]
            report = run_hostile(
                instance,
                folder,
                hidden,
                MUNGE=str(munge),
                SLURM_CONF=f"{cluster.folder}/slurm.conf",
            )
            del report["environment"]["SLURM_CONF"]
            finds_nothing(report, folder)
            batch_job = batch_job_of(instance, next(iter(instance.client().pilots())).id)
            # Outside of isolation the same account gets both.
            for command in (
                ["munge", "-n", "-S", str(munge)],
                ["scontrol", "write", "batch_script", batch_job, "-"],
            ):
                done = subprocess.run(
                    command,
                    env=cluster.environment,
                    capture_output=True,
                    user=ACCOUNT,
                    group=ACCOUNT,
                    check=False,
                    timeout=PATIENCE,
                )
                assert done.returncode == 0, done.stderr
                assert len(done.stdout) > 100, done.stderr
