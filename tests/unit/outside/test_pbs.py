"""PBS and Torque in odd moments: servers that are away, answers that are cut, and jobs that change behind our back."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.pilots.handover import Seen
from pilotage.core.pilots.waits import WaitClass
from pilotage.core.policy import parse
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission, Shape
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.pbs import nodes, output
from pilotage.outside.batch.pbs.records import read_records
from pilotage.outside.batch.pbs.wait_reasons import classify_comment, describe_hold, plain_comment
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
"""
STAMP = "pilotage-0123456789abcdef"
SLEEP = "#!/bin/sh\nexec sleep 60\n"


@pytest.fixture(params=["pbs", "torque"])
def made(request: pytest.FixtureRequest) -> Iterator[Double]:
    with doubles.double(request.param) as double:
        yield double


def adapter(made: Double, **options: str) -> BatchAdapter:
    lines = "\n".join(f'{key} = "{value}"' for key, value in options.items())
    text = f'{POLICY}type = "{made.system}"\nwall = 600\n[ces.ce.{made.system}]\n{lines}\n'
    machine = ServerMachine(made.environment, getpass.getuser(), Path("/nowhere"))
    return make_adapter_of(parse(text).ces["ce"], machine)


def submission(count: int = 1, stamp: str = STAMP, flags: tuple[str, ...] = ()) -> BatchSubmission:
    return BatchSubmission(stamp, count, Shape(2, 100, 90.5), SLEEP, {"owner": "ada"}, flags=flags)


def test_the_request_is_in_the_words_of_the_dialect(made: Double) -> None:
    own = {"resources": "model=epyc"} if made.system == "pbs" else {"properties": "fast"}
    flags = ("-l", "si00=600") if made.system == "pbs" else ("-l", "fast:si00_600")
    adapter(made, account="physics", **own).submit(submission(3, flags=(*flags, "-p", "5")))
    with locked(made.state) as cluster:
        [job] = cluster.jobs.values()
    words = " ".join(job["arguments"])
    assert "-A physics" in words
    assert "-p 5" in words
    assert "-l walltime=91" in words
    if made.system == "pbs":
        assert "-l select=1:ncpus=2:mem=100mb:model=epyc:si00=600" in words
        assert f"-N {STAMP}" in words
        assert "-r y -J 0-2" in words, "PBS takes no arrays that are not rerunnable"
    else:
        assert "-l nodes=1:ppn=2:fast:si00_600" in words
        assert f"-N {STAMP[:15]} " in words
        assert "-r n" in words


@pytest.mark.parametrize(
    "order",
    [
        {"errors": "qstat: cannot connect to server pbs1 (errno=15010)\n", "status": 255},
        {"errors": "Communication failure.\n", "status": 1},
        {"cut": 900},
        {"cut": 0},
        {"replace": ["Job Id: ", "Auftrag: "]},
        {"replace": ["job_state = H", "job_estate = H"]},
        {"replace": ["[0].pbs1", "[0].pb*"]},
        {"replace": ["Job Id: 1", "Job Id: 77"]},
    ],
)
def test_an_answer_that_is_odd_proves_nothing(made: Double, order: dict[str, Any]) -> None:
    batch = adapter(made)
    batch.submit(submission(2))
    with made.faulty("qstat", **order):
        listing = batch.list_pilots([STAMP])
        assert not listing.complete
        assert listing.find(STAMP, 0)[0] is Seen.UNKNOWN
    assert batch.list_pilots([STAMP]).find(STAMP, 0)[0] is Seen.SEEN


def test_a_version_that_shows_a_table_only_proves_nothing(made: Double) -> None:
    batch = adapter(made)
    batch.submit(submission())
    with made.faulty("qstat", replace=["Job Id:", "Job ID          Username Queue"]):
        assert "cut" in batch.list_pilots().failure or "not a line" in batch.list_pilots().failure


@pytest.mark.parametrize(
    ("order", "refusal"),
    [
        ({"errors": "qsub: cannot connect to server pbs1 (errno=15010)\n", "status": 255}, "in-doubt"),
        ({"errors": "qsub: Communication failure.\n", "status": 1, "after": True}, "in-doubt"),
        ({"errors": "", "status": 1, "after": True}, "in-doubt"),
        ({"errors": "", "after": True, "killed": True}, "in-doubt"),
        ({"errors": "qsub: Maximum number of jobs already in queue workq\n", "status": 1}, "full"),
        ({"errors": "qsub: would exceed queue workq's per-user limit\n", "status": 1}, "full"),
        ({"errors": "qsub: would exceed limit on resource ncpus in queue workq\n", "status": 1}, "full"),
        ({"errors": "qsub: Job violates queue and/or server resource limits\n", "status": 188}, "refused"),
        ({"errors": "qsub: Unauthorized Request \n", "status": 159}, "refused"),
        ({"replace": [".", "!"]}, "in-doubt"),
    ],
)
def test_a_failed_submission_is_in_doubt_unless_pbs_says_otherwise(
    made: Double, order: dict[str, Any], refusal: str
) -> None:
    batch = adapter(made)
    with made.faulty("qsub", **order), pytest.raises(SubmissionFailed) as failed:
        batch.submit(submission(2))
    assert failed.value.refusal is SubmissionRefusal(refusal)
    assert failed.value.reason
    if order.get("after"):
        assert batch.list_pilots([STAMP]).find(STAMP, 1)[0] is Seen.SEEN, "its stamp finds it"


def test_a_job_that_was_removed_is_absent(made: Double) -> None:
    batch = adapter(made)
    receipt = batch.submit(submission(2))
    made.run("qdel", receipt.batch_ids[1])
    listing = batch.list_pilots([STAMP])
    assert listing.complete
    assert listing.find(STAMP, 0)[0] is Seen.SEEN
    assert listing.find(STAMP, 1)[0] is Seen.ABSENT
    made.run("qdel", receipt.array)
    assert batch.list_pilots([STAMP]).find(STAMP)[0] is Seen.ABSENT
    batch.cancel([STAMP])
    batch.release([STAMP])


def test_a_hold_of_the_system_is_an_error(made: Double) -> None:
    batch = adapter(made)
    batch.submit(submission(2))
    made.change("1", hold="s", comment="job held, too many failed attempts to run")
    tasks = batch.list_pilots([STAMP]).tasks
    assert {task.state for task in tasks} == {NativeState.HELD}
    assert {task.wait for task in tasks} == {WaitClass.ERROR}
    assert all("too many failed attempts" in task.reason for task in tasks)


def test_a_job_that_was_requeued_waits_again(made: Double) -> None:
    batch = adapter(made)
    batch.submit(submission())
    batch.release([STAMP])
    assert batch.list_pilots([STAMP]).tasks[0].state is NativeState.RUNNING
    made.kill("1")
    with locked(made.state) as cluster:
        cluster.jobs["1"].update(hold="u", tasks={"": {"state": "waiting", "starts": 1}})
    [task] = batch.list_pilots([STAMP]).tasks
    assert task.state is NativeState.HELD
    assert task.index == 0


def test_an_id_that_was_given_again_is_left_alone(made: Double) -> None:
    batch = adapter(made)
    receipt = batch.submit(submission(2))
    epoch = batch.list_pilots().epoch
    made.change("1", variables={}, name="a-job-of-mine")
    batch.cancel_tasks([receipt.array, *receipt.batch_ids], epoch)
    batch.cancel([STAMP])
    [*names] = {task.stamp for task in batch.list_pilots().tasks if task.state is NativeState.HELD}
    assert names == ["a-job-of-mine"] or all(name.startswith("a-job-of-mine-") for name in names)


def test_odd_variables_of_other_jobs_do_no_harm(made: Double) -> None:
    batch = adapter(made)
    batch.submit(submission())
    odd = 'BASH_FUNC_ml%%=() {\n eval $(\\x1b "\\q\\,PILOTAGE_STAMP=pilotage-fake" \\,\n}'
    text = odd if made.system == "torque" else odd.replace("\n", "\\n")
    with locked(made.state) as cluster:
        cluster.jobs["1"]["own_variables"]["ODD"] = text
    listing = batch.list_pilots([STAMP])
    assert listing.complete, listing.failure
    assert [task.stamp for task in listing.tasks] == [STAMP]
    assert batch.properties()[STAMP, 0]["owner"] == "ada"


def test_an_end_is_told_by_its_status(made: Double) -> None:
    batch = adapter(made)
    batch.submit(BatchSubmission(STAMP, 1, Shape(1), "#!/bin/sh\nexit 3\n"))
    batch.release([STAMP])

    def ended() -> list[str]:
        return [task.reason for task in batch.list_accounted([STAMP], 60) if task.state is NativeState.ENDED]

    until(lambda: ended() == ["exit code 3"], what="its end")


def test_a_server_without_history_has_no_accounting() -> None:
    with doubles.double("pbs") as made:
        (made.state / "no-history").touch()
        batch = adapter(made)
        batch.submit(submission())
        assert batch.list_accounted([STAMP], 60) == []
        with made.faulty("qstat", errors="qstat: Communication failure.\n"), pytest.raises(Unreachable):
            batch.list_accounted([STAMP], 60)


FOLDED = (
    "Job Id: 12.pbs1\n    Job_Name = pilotage-0\n    Job_Owner = me@pbs1\n    job_state = Q\n"
    "    Variable_List = PBS_O_HOME=/home/me,PBS_O_PATH=/usr/bin:\n\t/bin,PILOTAGE_STAMP=pilotage-012\n\t3456789,"
    "PILOTAGE_PROPERTIES=owner=ada;stamp=x\n    comment = Not Running: Insufficient amount of resource: ncpus (R: 4"
    " A\n\t: 0 T: 16)\n\n"
)
"""As `qstat -f` prints it without -w: lines are broken anywhere."""


def test_broken_lines_are_joined() -> None:
    records = output.read_jobs(FOLDED, "me")
    [task] = output.read_tasks(records)
    assert (task.stamp, task.index, task.state) == ("pilotage-0123456789", 0, NativeState.WAITING)
    assert task.reason == "Insufficient amount of resource: ncpus (R: 4 A: 0 T: 16)"
    assert task.wait is WaitClass.TRANSIENT
    assert output.read_job_properties(records[0]) == {"owner": "ada", "stamp": "x"}
    assert output.read_jobs(FOLDED, "another") == []
    with pytest.raises(UnreadableOutput, match="cut"):
        read_records(FOLDED[:-1], "Job Id:")


def test_a_name_is_the_stamp_of_a_job_without_variables() -> None:
    [task] = output.read_tasks(
        output.read_jobs("Job Id: 5.x\n    Job_Name = calc\n    job_state = R\n\n", "me")
    )
    assert (task.stamp, task.index) == ("calc", None)


def test_an_array_that_is_not_listed_in_full_is_one_task() -> None:
    text = "Job Id: 7[].x\n    Job_Name = pilotage-1\n    job_state = B\n\n"
    [task] = output.read_tasks(output.read_jobs(text, "me"))
    assert (task.stamp, task.index, task.array, task.state) == (
        *("pilotage-1", None, "7[].x"), NativeState.RUNNING
    )  # fmt: skip


@pytest.mark.parametrize(
    ("comment", "wait"),
    [
        ("Not Running: Insufficient amount of resource: ncpus (R: 2 A: 0 T: 16)", WaitClass.TRANSIENT),
        ("Not Running: Not enough free nodes available", WaitClass.TRANSIENT),
        ("Not Running: Job would break strict sorted order", WaitClass.TRANSIENT),
        ("Not Running: Queue not started.", WaitClass.SITE),
        ("Not Running: Dedicated time conflict", WaitClass.SITE),
        ("Not Running: User has reached server running job limit.", WaitClass.POLICY),
        ("Not Running: would exceed user ada's limit on resource ncpus in complex", WaitClass.POLICY),
        ("Can Never Run: Insufficient amount of resource: mem (R: 1tb A: 8gb T: 8gb)", WaitClass.IMPOSSIBLE),
        ("Can Never Run: Not enough total nodes available", WaitClass.IMPOSSIBLE),
        ("Not Running: PBS Error: Execution server rejected request", WaitClass.ERROR),
        ("", WaitClass.TRANSIENT),
        ("a word that no scheduler has said before", WaitClass.UNKNOWN),
    ],
)
def test_comments_have_a_class(comment: str, wait: WaitClass) -> None:
    assert classify_comment(comment) is wait
    assert not plain_comment(comment).startswith("Not Running")


def test_holds_are_told_in_plain_words() -> None:
    assert describe_hold("u", "") == ("held by its user", WaitClass.USER)
    assert describe_hold("os", "Not Running: x") == ("held by an operator; held by PBS; x", WaitClass.ERROR)


@pytest.mark.parametrize(
    ("text", "size"),
    [("65853536kb", 65853536 << 10), ("4gb", 4 << 30), ("10mw", 80 << 20), ("5", 5), ("x", None)],
)
def test_sizes_have_units(text: str, size: int | None) -> None:
    assert nodes.read_memory(text) == size


def test_hosts_that_start_nothing_are_not_counted() -> None:
    text = (
        "n1\n     state = free\n     pcpus = 8\n     resources_available.ncpus = 8\n"
        "     resources_available.mem = 8gb\n     resources_available.bigmem = True\n\n"
        "n2\n     state = down,offline\n     resources_available.ncpus = 8\n     comment = node down: no answer\n\n"
        "n3\n     state = job-exclusive\n     np = 4\n     properties = fast,big\n     jobs = 0-2/1.x,3/2.x\n"
        "     status = physmem=2048mb,ncpus=4\n\n"
    )
    one, two, three = nodes.read_hosts(text)
    assert (one.usable, one.processors, one.memory, one.attributes["bigmem"]) == (True, 8, 8192, True)
    assert not two.usable
    assert (three.usable, three.used, three.memory) == (True, 4, 2048)
    assert three.attributes[nodes.PROPERTIES] == ("big", "fast")


def queue(**lines: str) -> nodes.PbsQueue:
    values = {"queue_type": "Execution", "enabled": "True", "started": "True", **lines}
    text = "Queue: q\n" + "".join(f"    {key} = {value}\n" for key, value in values.items()) + "\n"
    return nodes.read_queues(text)[0]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: queue(enabled="False"), "not enabled"),
        (lambda: queue(**{"resources_max.walltime": "00:01:00"}), "at most 60 s"),
        (lambda: queue(**{"resources_max.ncpus": "1"}), "at most 1 cores"),
        (lambda: queue(), "no host of the queue q has 2 cores"),
    ],
)
def test_a_pilot_that_fits_nowhere_is_refused(made: Callable[[], nodes.PbsQueue], reason: str) -> None:
    assert reason in nodes.why_refused(Shape(2, 100, 90), made(), [])
