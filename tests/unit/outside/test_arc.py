"""What the adapter makes of an ARC CE's answers: right ones, lost ones, wrong ones and those of other versions."""

from __future__ import annotations

import http.client
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.pilots.handover import Seen
from pilotage.core.pilots.waits import WaitClass
from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.arc.adapter import MOST_JOBS
from pilotage.outside.batch.arc.description import describe_pilots
from pilotage.outside.batch.https_connection import HttpReply, NoConnection
from pilotage.outside.batch.submission import NativeState, SubmissionFailed, SubmissionRefusal
from tests.arc_double import DoubledArc, adapter

STAMP = "pilotage-1a2b"
SHAPE = Shape(2, 1000, 3600.0)


def submission(count: int = 1, **properties: str) -> BatchSubmission:
    return BatchSubmission(STAMP, count, SHAPE, "#!/bin/sh\nkey=secret\n", properties)


def test_many_pilots_are_one_request_and_each_gets_its_script() -> None:
    ce = DoubledArc()
    receipt = adapter(ce).submit(submission(MOST_JOBS + 1))
    assert len(set(receipt.batch_ids)) == MOST_JOBS + 1
    assert receipt.array == receipt.batch_ids[0]
    assert len(ce.targets("POST")) == 2, "one for each hundred"
    assert {job.files["pilot.sh"] for job in ce.jobs.values()} == {b"#!/bin/sh\nkey=secret\n"}
    assert [job.name for job in ce.jobs.values()] == [f"{STAMP}/{index}" for index in range(MOST_JOBS + 1)]


def test_a_description_holds_no_secret_and_no_markup_of_others() -> None:
    text = describe_pilots(submission(1, owner="</Annotation>&"), [0], ArcOptions(rte="ENV/PROXY"))
    assert "secret" not in text
    assert "owner=%3C%2FAnnotation%3E%26" in text
    assert "<NumberOfSlots>2</NumberOfSlots><SlotsPerHost>2</SlotsPerHost>" in text
    assert f"<IndividualPhysicalMemory>{500 * 1024 * 1024}</IndividualPhysicalMemory>" in text
    assert "<WallTime>3600</WallTime>" in text
    assert "<RuntimeEnvironment><Name>ENV/PROXY</Name></RuntimeEnvironment>" in text
    assert "QueueName" not in text


def test_flags_of_the_hook_replace_queue_and_runtime_environments() -> None:
    ordered = BatchSubmission(STAMP, 1, SHAPE, "", flags=("--queue=long", "--rte=APPS/X-1,ENV/RTE"))
    text = describe_pilots(ordered, [0], ArcOptions(queue="short", rte="ENV/PROXY"))
    assert "<QueueName>long</QueueName>" in text
    assert "<Name>APPS/X-1</Name>" in text
    assert "ENV/PROXY" not in text


UNREACHED = SubmissionRefusal.UNREACHED
LOST = http.client.RemoteDisconnected("Remote end closed connection without response")
REFUSED, DOUBT, FULL = SubmissionRefusal.REFUSED, SubmissionRefusal.IN_DOUBT, SubmissionRefusal.FULL


@pytest.mark.parametrize(
    ("fault", "refusal", "words"),
    [
        (NoConnection(111, "Connection refused"), UNREACHED, "no connection to ce.example.org at port 8443"),
        (LOST, DOUBT, "the answer of ce.example.org was cut off"),
        (http.client.IncompleteRead(b"<jobs>"), DOUBT, "cut off"),
        (TimeoutError(), DOUBT, "did not answer within 30 s"),
        (HttpReply(403, "User can't be assigned configuration"), REFUSED, "403 User can't be assigned"),
        (HttpReply(401, "Unauthorized"), REFUSED, "the site gives no access to the token in BEARER_TOKEN"),
        (HttpReply(404, "Version Not Supported"), REFUSED, "404 Version Not Supported"),
        (HttpReply(500, "No more jobs allowed"), FULL, "No more jobs allowed"),
        (HttpReply(500, "Failed processing"), DOUBT, "500 Failed processing"),
        (HttpReply(503, "Service Unavailable"), DOUBT, "503 Service Unavailable"),
        (HttpReply(201, "Created", b""), DOUBT, "not XML"),
        (HttpReply(201, "Created", b"<jobs><job><status-code>201</sta"), DOUBT, "not XML"),
        (HttpReply(201, "Created", b'{"job": {"id": "x"}}'), DOUBT, "not XML"),
        (HttpReply(200, "OK", b"<html><body>login</body></html>"), DOUBT, "the answer is <html>"),
        (HttpReply(201, "Created", b"<jobs/>"), DOUBT, "0 ids for 1 pilots"),
    ],
)  # fmt: skip
def test_a_submission_without_its_answer(
    fault: HttpReply | Exception, refusal: SubmissionRefusal, words: str
) -> None:
    ce = DoubledArc(faults={"POST /arex/rest/1.0/jobs?action=new": fault})
    with pytest.raises(SubmissionFailed) as failed:
        adapter(ce).submit(submission())
    assert (failed.value.refusal, words in failed.value.reason) == (refusal, True), failed.value.reason
    assert "word" not in failed.value.reason.split(), "the token stands in no message"


def test_a_submission_whose_answer_was_lost_is_found_by_its_stamp() -> None:
    ce = DoubledArc(after={"action=new": LOST})
    batch = adapter(ce)
    with pytest.raises(SubmissionFailed) as failed:
        batch.submit(submission(2))
    assert failed.value.refusal is DOUBT
    ce.after.clear()
    listing = batch.list_pilots([STAMP])
    assert [listing.find(STAMP, index)[0] for index in range(3)] == [Seen.SEEN, Seen.SEEN, Seen.ABSENT]
    assert Counter(task.state for task in listing.tasks) == {NativeState.WAITING: 2}


@pytest.mark.parametrize("fault", [TimeoutError(), NoConnection(111, "refused"), HttpReply(403, "Forbidden")])
def test_an_upload_that_fails_leaves_the_submission_in_doubt(fault: HttpReply | Exception) -> None:
    """The CE has jobs of it, and the first of them may start."""
    ce = DoubledArc(faults={"PUT": fault})
    with pytest.raises(SubmissionFailed) as failed:
        adapter(ce).submit(submission(2))
    assert failed.value.refusal is DOUBT


def test_a_refusal_of_all_differs_from_a_refusal_of_some() -> None:
    ce = DoubledArc(refuse=lambda number: "adl parsing error")
    with pytest.raises(SubmissionFailed) as failed:
        adapter(ce).submit(submission(2))
    assert failed.value.refusal is REFUSED
    assert "adl parsing error" in failed.value.reason
    ce.refuse = lambda number: "no space" if number else ""
    with pytest.raises(SubmissionFailed) as failed:
        adapter(ce).submit(submission(2))
    assert failed.value.refusal is DOUBT
    [job] = ce.jobs.values()
    assert job.files, "the accepted pilot may start"


@pytest.mark.parametrize(
    ("state", "published", "expected", "wait"),
    [
        ("ACCEPTING", "", NativeState.WAITING, WaitClass.TRANSIENT),
        ("PREPARING", "ACCEPTED", NativeState.WAITING, WaitClass.STAGING),
        ("SUBMITTING", "PREPARING", NativeState.WAITING, WaitClass.TRANSIENT),
        ("RUNNING", "PREPARING", NativeState.WAITING, WaitClass.TRANSIENT),
        ("RUNNING", "QUEUING", NativeState.WAITING, WaitClass.TRANSIENT),
        ("RUNNING", "HELD", NativeState.WAITING, WaitClass.USER),
        ("RUNNING", "RUNNING", NativeState.RUNNING, None),
        ("RUNNING", "EXITINGLRMS", NativeState.RUNNING, None),
        ("KILLING", "RUNNING", NativeState.RUNNING, None),
        ("FINISHING", "RUNNING", NativeState.ENDED, None),
        ("FINISHED", "RUNNING", NativeState.ENDED, None),
        ("FAILED", "PREPARING", NativeState.ENDED, None),
        ("SOMETHING NEW", "", NativeState.UNKNOWN, None),
    ],
)
def test_the_records_of_the_ce_decide_and_late_documents_add_to_them(
    state: str, published: str, expected: NativeState, wait: WaitClass | None
) -> None:
    ce = DoubledArc()
    ce.jobs[ce.add(f"{STAMP}/0", state, published)].files["pilot.sh"] = b"exit"
    [task] = adapter(ce).list_pilots().tasks
    assert (task.stamp, task.index, task.state, task.wait) == (STAMP, 0, expected, wait)


def test_a_pilot_whose_script_was_never_uploaded_can_not_start() -> None:
    """The answer with the ids was lost, so no server knows where to upload the script."""
    ce = DoubledArc()
    batch = adapter(ce)
    ce.after["action=new"] = TimeoutError()
    with pytest.raises(SubmissionFailed):
        batch.submit(submission(1))
    ce.after.clear()
    batch.submit(replace(submission(1), stamp="pilotage-whole"))
    tasks = {task.stamp: task for task in batch.list_pilots().tasks}
    assert tasks["pilotage-whole"].wait is WaitClass.TRANSIENT
    assert (tasks[STAMP].state, tasks[STAMP].wait) == (NativeState.WAITING, WaitClass.IMPOSSIBLE)
    assert "never uploaded" in tasks[STAMP].reason
    asked = ce.targets("HEAD")
    assert len(asked) == 1, "the adapter knows the scripts that it has uploaded"
    assert {task.wait for task in adapter(ce).list_pilots().tasks} == {task.wait for task in tasks.values()}


def test_a_ce_that_does_not_tell_of_a_script_keeps_its_pilots() -> None:
    ce = DoubledArc(faults={"HEAD": HttpReply(500, "Not implemented")})
    ce.add(f"{STAMP}/0", "ACCEPTED")
    [task] = adapter(ce).list_pilots().tasks
    assert task.wait is WaitClass.TRANSIENT


def test_an_interface_of_another_version_is_found_again() -> None:
    """The CE was upgraded, and the server has not been started again."""
    ce = DoubledArc()
    batch = adapter(ce)
    assert batch.list_pilots().complete
    ce.versions, ce.faults["GET /arex/rest/1.0/"] = (
        ce.versions.replace("1.0", "2.0"),
        HttpReply(404, "Not Found"),
    )
    failures = [batch.list_pilots().failure for _ in range(2)]
    assert "404" in failures[0]
    assert "version 2.0 of the REST interface" in failures[1]
    ce.versions, ce.faults = ce.versions.replace("2.0", "1.0"), {}
    assert batch.list_pilots().complete


def test_names_come_from_documents_else_from_records_and_are_asked_for_once() -> None:
    ce = DoubledArc()
    ce.add(f"{STAMP}/0", "RUNNING", "RUNNING")
    ce.add("somebody's job", "ACCEPTING")
    ce.add("", "ACCEPTING")
    batch = adapter(ce)
    listing = batch.list_pilots()
    assert [(task.stamp, task.index) for task in listing.tasks] == [
        (STAMP, 0), ("somebody's job", None), ("", None),
    ]  # fmt: skip
    assert len([target for target in ce.targets("GET") if "local" in target]) == 2
    before = len(ce.calls)
    batch.list_pilots()
    asked = [target for _, target, _ in ce.calls[before:]]
    assert not [target for target in asked if "id1" in target or "id2" in target]


def test_a_job_that_goes_during_a_listing_does_no_harm() -> None:
    ce = DoubledArc(faults={"local": HttpReply(404, "Job not found")})
    ce.add(f"{STAMP}/0", "ACCEPTING")
    listing = adapter(ce).list_pilots([STAMP])
    assert listing.complete
    assert not listing.tasks


@pytest.mark.parametrize(
    "reply",
    [
        HttpReply(200, "OK", b""),
        HttpReply(200, "OK", b"<jobs><job><id>a</id>"),
        HttpReply(200, "OK", b"<jobs><job></job></jobs>"),
        HttpReply(200, "OK", b"<jobs><job><id>../../etc</id></job></jobs>"),
        HttpReply(200, "OK", b'<!DOCTYPE x [<!ENTITY a "b">]><jobs/>'),
        HttpReply(200, "OK", b'{"job":[]}'),
        HttpReply(502, "Bad Gateway", b"<html/>"),
        LOST,
    ],
)
def test_a_listing_that_is_no_whole_answer_proves_nothing(reply: HttpReply | Exception) -> None:
    ce = DoubledArc(faults={"GET /arex/rest/1.0/jobs": reply})
    listing = adapter(ce).list_pilots()
    assert not listing.complete
    assert listing.failure
    assert listing.find(STAMP) == (Seen.UNKNOWN, "")


def test_an_empty_listing_is_complete() -> None:
    assert adapter(DoubledArc()).list_pilots().complete


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ("<versions><version>2.0</version></versions>", "version 2.0 of the REST interface, and Pilotage knows 1.0"),
        ("<versions/>", "names no version"),
        ("<html>welcome</html>", "https://ce.example.org:8443/arex is no REST interface of ARC"),
    ],
)  # fmt: skip
def test_another_version_or_another_server_is_told(versions: str, words: str) -> None:
    failure = adapter(DoubledArc(versions=versions)).list_pilots().failure
    assert words in failure


def test_the_name_decides_where_an_id_is_anothers() -> None:
    ce = DoubledArc()
    ours, others = (
        ce.add(f"{STAMP}/0", "RUNNING", "RUNNING"),
        ce.add("pilotage-other/0", "RUNNING", "RUNNING"),
    )
    listing = adapter(ce).status({f"{STAMP}/0": others})
    assert listing.find(STAMP, 0) == (Seen.SEEN, ours)


def test_cancel_kills_the_live_jobs_of_its_stamps_alone() -> None:
    ce = DoubledArc()
    waits, runs = ce.add(f"{STAMP}/0", "ACCEPTED"), ce.add(f"{STAMP}/1", "RUNNING", "RUNNING")
    other = ce.add(f"{STAMP}0/0", "RUNNING", "RUNNING")
    batch = adapter(ce)
    batch.cancel([STAMP], waiting_only=True)
    assert (ce.jobs[waits].state, ce.jobs[runs].state) == ("FAILED", "RUNNING")
    batch.cancel([STAMP])
    assert (ce.jobs[runs].state, ce.jobs[other].state) == ("FAILED", "RUNNING")
    [failed, *_] = batch.list_pilots([STAMP]).tasks
    assert failed.reason == "Job is canceled by external request"


def test_a_kill_without_effect_is_told() -> None:
    answer = "<jobs><job><status-code>505</status-code><reason>no</reason><id>id1</id></job></jobs>"
    ce = DoubledArc(faults={"action=kill": HttpReply(201, "Created", answer.encode())})
    ce.add(f"{STAMP}/0", "ACCEPTED")
    with pytest.raises(Unreachable, match="could not kill job id1: no"):
        adapter(ce).cancel([STAMP])


def test_a_job_that_cannot_be_killed_and_an_output_that_cannot_be_read_keep_no_other_job(
    tmp_path: Path,
) -> None:
    answer = "<jobs><job><status-code>505</status-code><reason>no</reason><id>id1</id></job></jobs>"
    ce = DoubledArc(faults={"action=kill": HttpReply(201, "Created", answer.encode())})
    runs, ended = ce.add(f"{STAMP}/0", "RUNNING", "RUNNING"), ce.add(f"{STAMP}/1", "FINISHED")
    ce.faults["pilot.log"] = HttpReply(500, "Failed to open file")
    batch = adapter(ce, log_folder=str(tmp_path))
    with pytest.raises(Unreachable, match="could not kill job id1: no"):
        batch.cancel_tasks([runs, ended], batch.list_pilots().epoch)
    assert set(ce.jobs) == {runs}


def test_ended_jobs_are_removed_with_their_output_kept(tmp_path: Path) -> None:
    ce = DoubledArc()
    ended, runs = ce.add(f"{STAMP}/3", "FINISHED"), ce.add(f"{STAMP}/4", "RUNNING", "RUNNING")
    leaves = ce.add(f"{STAMP}/5", "FINISHING")
    ce.jobs[ended].files["pilot.log"] = "said \u00fc\n".encode()
    batch = adapter(ce, log_folder=str(tmp_path))
    epoch = batch.list_pilots().epoch
    with pytest.raises(Unreachable, match="started again"):
        batch.cancel_tasks([ended], "an earlier epoch")
    batch.cancel_tasks([ended, runs, leaves, "unknown"], epoch)
    assert set(ce.jobs) == {runs, leaves}
    assert (ce.jobs[runs].state, ce.jobs[leaves].state) == ("FAILED", "FINISHING")
    assert (tmp_path / f"{STAMP}-3.log").read_text() == "said \u00fc\n"
    assert batch.output(STAMP, 3, 3) == " \u00fc\n"


def test_the_token_goes_to_the_ce_with_each_call_and_nowhere_else() -> None:
    ce = DoubledArc()
    adapter(ce).submit(submission())
    assert {headers["authorization"] for _, _, headers in ce.calls} == {"Bearer word"}
    assert not [job for job in ce.jobs.values() if b"Bearer" in b"".join(job.files.values())]
