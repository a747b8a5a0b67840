"""LSF in odd moments: a master that is away, answers that are cut, and jobs that change behind our back."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.pilots.handover import Seen
from pilotage.core.pilots.waits import WaitClass
from pilotage.core.policy import parse
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission, Shape
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.lsf import hosts, output
from pilotage.outside.batch.lsf.wait_reasons import classify_wait
from pilotage.outside.batch.registry import ServerMachine, make_adapter_of
from pilotage.outside.batch.submission import NativeState, SubmissionFailed, SubmissionRefusal
from tests.doubles import cluster as doubles
from tests.doubles.cluster import Double
from tests.doubles.jobs import locked
from tests.instance import until

POLICY = """
[groups.all]
[users.ada]
groups = ["all"]
[sites.here]
[ces.ce]
site = "here"
type = "lsf"
wall = 600
[ces.ce.lsf]
"""
STAMP = "pilotage-0123456789abcdef"


@pytest.fixture
def made() -> Iterator[Double]:
    with doubles.double("lsf") as double:
        yield double


def adapter(made: Double, **options: str) -> BatchAdapter:
    lines = "\n".join(f'{key} = "{value}"' for key, value in options.items())
    machine = ServerMachine(made.environment, getpass.getuser(), Path("/nowhere"))
    return make_adapter_of(parse(f"{POLICY}{lines}\n").ces["ce"], machine)


def submission(count: int = 1, flags: tuple[str, ...] = ()) -> BatchSubmission:
    return BatchSubmission(
        STAMP, count, Shape(2, 100, 90.5), "exec sleep 60\n", {"owner": "ada"}, flags=flags
    )


def test_every_size_has_its_unit(made: Double) -> None:
    flags = ("-R", "select[maxmem>=4000MB&&(fast||si00_800)]", "-m", "hosta hostb")
    adapter(made, requirements="select[fast]", project="physics").submit(submission(3, flags))
    with locked(made.state) as cluster:
        [job] = cluster.jobs.values()
    options = job["options"]
    assert (options["-n"], options["-M"], options["-W"]) == ("2", "100MB", "2")
    assert (options["-P"], options["-m"], options["-J"]) == ("physics", "hosta hostb", f"{STAMP}[1-3]")


@pytest.mark.parametrize(
    "order",
    [
        {"errors": "LSF is down. Please wait ...\n", "status": 255},
        {"errors": "Failed in an LSF library call: Communication time out\n", "status": 255},
        {"errors": "", "status": 255},
        {"cut": 300},
        {"cut": 0},
        {"replace": ['"JOBS": 2', '"JOBS": 3']},
        {"replace": ['"RECORDS"', '"ENTRIES"']},
        {"replace": ['"STAT": "PSUSP"', '"STAT": ""']},
        {"replace": ['"JOBID": "1"', '"JOBID": "12*"']},
    ],
)
def test_an_answer_that_is_odd_proves_nothing(made: Double, order: dict[str, Any]) -> None:
    batch = adapter(made)
    batch.submit(submission(2))
    with made.faulty("bjobs", **order):
        listing = batch.list_pilots([STAMP])
        assert not listing.complete
        assert listing.find(STAMP, 0)[0] is Seen.UNKNOWN
    assert batch.list_pilots([STAMP]).find(STAMP, 0)[0] is Seen.SEEN


def test_an_account_without_jobs_has_a_whole_listing(made: Double) -> None:
    with made.faulty("bjobs", errors="No job found\n", status=255):
        assert adapter(made).list_pilots().complete


@pytest.mark.parametrize(
    ("order", "refusal"),
    [
        ({"errors": "LSF is down. Please wait ...\n", "status": 255}, "in-doubt"),
        ({"errors": "", "after": True, "killed": True}, "in-doubt"),
        ({"errors": "Communication time out\n", "status": 255, "after": True}, "in-doubt"),
        ({"errors": "Pending job threshold reached. Retrying in 60 seconds...\n", "status": 255}, "full"),
        ({"errors": "User has reached the per-user job limit. Job not submitted.\n", "status": 255}, "full"),
        ({"errors": "normal: No such queue. Job not submitted.\n", "status": 255}, "refused"),
        ({"errors": "Request aborted by esub. Job not submitted.\n", "status": 255}, "refused"),
        ({"replace": ["Job <", "Auftrag <"]}, "in-doubt"),
    ],
)
def test_a_failed_submission_is_in_doubt_unless_lsf_says_otherwise(
    made: Double, order: dict[str, Any], refusal: str
) -> None:
    batch = adapter(made)
    with made.faulty("bsub", **order), pytest.raises(SubmissionFailed) as failed:
        batch.submit(submission(2))
    assert failed.value.refusal is SubmissionRefusal(refusal)
    assert failed.value.reason
    if order.get("after"):
        assert batch.list_pilots([STAMP]).find(STAMP, 1)[0] is Seen.SEEN, "its stamp finds it"


def test_an_id_that_was_given_again_is_left_alone(made: Double) -> None:
    batch = adapter(made)
    receipt = batch.submit(submission(2))
    epoch = batch.list_pilots().epoch
    made.change("1", name="a-job-of-mine")
    batch.cancel_tasks([receipt.array, *receipt.batch_ids], epoch)
    batch.cancel([STAMP])
    assert {task.stamp for task in batch.list_pilots().tasks if task.state is NativeState.HELD} == {
        "a-job-of-mine"
    }


def test_a_job_that_was_removed_is_absent(made: Double) -> None:
    batch = adapter(made)
    receipt = batch.submit(submission(2))
    made.run("bkill", receipt.batch_ids[1])
    listing = batch.list_pilots([STAMP])
    assert (listing.find(STAMP, 0)[0], listing.find(STAMP, 1)[0]) == (Seen.SEEN, Seen.ABSENT)
    made.run("bkill", receipt.array)
    batch.cancel([STAMP])
    batch.release([STAMP])
    with made.faulty("bkill", errors="LSF is down. Please wait ...\n"), pytest.raises(Unreachable):
        batch.cancel([STAMP])


def test_an_end_is_told_by_its_status(made: Double) -> None:
    batch = adapter(made)
    batch.submit(BatchSubmission(STAMP, 1, Shape(1), "#!/bin/sh\nexit 3\n"))
    batch.release([STAMP])

    def reasons() -> list[str]:
        return [task.reason for task in batch.list_accounted([STAMP], 60) if task.state is NativeState.ENDED]

    until(lambda: reasons() == ["exit code 3"], what="its end")


def row(**fields: str) -> output.Row:
    return {"JOBID": "5", "JOBINDEX": "0", "STAT": "PEND", "JOB_NAME": "x", **fields}


def test_rows_of_all_kinds_are_read() -> None:
    task = output.read_task(row(JOBINDEX="3", JOB_NAME="pilotage-1[3]", STAT="RUN", EXEC_HOST="4*h1:2*h2"))
    assert (task.stamp, task.index, task.batch_id, task.node) == ("pilotage-1", 2, "5[3]", "h1")
    assert output.read_task(row(STAT="UNKWN")).state is NativeState.UNKNOWN
    ended = output.read_accounted(
        row(STAT="EXIT", EXIT_CODE="137", EXIT_REASON="TERM_MEMLIMIT: job killed after reaching its limit")
    )
    assert ended is not None
    assert ended.reason == "signal 9, job killed after reaching its limit"
    assert output.read_accounted(row()) is None
    text = json.dumps({"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{"JOBID": "5", "ERROR": "Job not found"}]})
    with pytest.raises(UnreadableOutput):
        output.read_rows(text)


@pytest.mark.parametrize(
    ("reason", "wait"),
    [
        ("New job is waiting for scheduling;", WaitClass.TRANSIENT),
        ("Job was suspended by the user while pending;", WaitClass.USER),
        ("Not enough job slots: 4 hosts; Closed by LSF administrator: 2 hosts;", WaitClass.TRANSIENT),
        ("Closed by LSF administrator: 2 hosts;", WaitClass.SITE),
        ("The queue has been inactivated by its time windows;", WaitClass.SITE),
        ("User has reached the pre-user job slot limit of the queue;", WaitClass.POLICY),
        ("Job's requirements for resource reservation not satisfied: 3 hosts;", WaitClass.TRANSIENT),
        ("Job's resource requirements not satisfied: 3 hosts;", WaitClass.UNKNOWN),
        ("Resource requirements can never be satisfied;", WaitClass.IMPOSSIBLE),
        ("Something that no master has said before;", WaitClass.UNKNOWN),
        ("", WaitClass.TRANSIENT),
    ],
)
def test_reasons_have_a_class(reason: str, wait: WaitClass) -> None:
    assert classify_wait(reason) is wait


def test_queues_tell_their_limits_and_hosts() -> None:
    text = (
        "\nQUEUE: long\n  -- Long jobs.\n\nPARAMETERS/STATISTICS\n"
        "PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS\n"
        " 30    0  Closed:Active     -    -    -    -    12     7     5     0     0    0     7\n\n"
        "DEFAULT LIMITS:\n RUNLIMIT\n 60.0 min\n\nMAXIMUM LIMITS:\n RUNLIMIT\n 1440.0 min of h1\n\nHOSTS:  h1+2 h2 \n"
    )
    [queue] = hosts.read_queues(text)
    assert (queue.wall, queue.hosts, queue.running, queue.waiting) == (86400.0, {"h1", "h2"}, 5, 7)
    assert "Closed" in hosts.why_refused(Shape(1), queue, [])
    with pytest.raises(UnreadableOutput):
        hosts.read_queues("LSF is down. Please wait ...")


def test_an_answer_without_hosts_is_unreadable() -> None:
    with pytest.raises(UnreadableOutput):
        hosts.read_hosts("", "")
