"""Why a job waits, asked of a real server; and what helps, done."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pilotage.core.errors import NotFound
from pilotage.wire.why import Why
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("why"), owners="any") as instance:
        yield instance


def answered(pool: Instance, job: int, reason: str) -> Why:
    """The answer, once the director has looked at the machine."""

    def look() -> Why | None:
        answer = pool.client().why(job)
        return answer if answer.reason == reason else None

    return until(look, what=f"why job {job} waits: {reason}")


def test_a_job_that_asks_for_too_much_runs_with_the_change_that_why_names(pool: Instance) -> None:
    too_much = {"executable": "true", "memory": 100_000}
    waiting = pool.client().submit(too_much).first
    answer = answered(pool, waiting, "needs")
    assert answer.detail == "memory"
    [site] = answer.refused
    assert site.site == "here"
    for opening in answer.openings:
        assert (opening.attribute, list(opening.sites)) == ("memory", ["here"])
        changed = pool.client().submit({**too_much, "memory": int(opening.value)}).first
        pool.reaches(changed, "Done")
        told = pool.client().why(changed)
        assert (told.state, told.reason) == ("Done", "")
    assert {opening.text for opening in answer.openings} == {"memory <= 6144 MB", "memory <= 3072 MB"}
    assert pool.job(waiting).state == "Waiting"


def test_the_history_is_kept_over_a_restart(pool: Instance) -> None:
    job = pool.client().submit({"executable": "true", "tags": ["nowhere"]}).first
    queue = pool.job(job).queue

    def written() -> list[str]:
        return [entry.reason for entry in pool.client().why_queue(queue).history]

    until(written, within=2 * PATIENCE, what="a look at the queues")
    before = pool.client().why_queue(queue).history
    assert before[-1].reason == "needs"
    pool.stop_server()
    pool.start()
    assert pool.client().why_queue(queue).history[: len(before)] == before


def test_the_command_line_tells_the_same(pool: Instance) -> None:
    job = pool.client().submit({"executable": "true", "processors": 64}).first
    answered(pool, job, "needs")
    told = pool.cli("why", str(job))
    assert told.returncode == 0
    assert "processors <= 2\t1\there 1" in told.stdout
    document = json.loads(pool.cli("why", f"queue:{pool.job(job).queue}", "--json").stdout)
    assert "processors <= 2" in {opening["text"] for opening in document["openings"]}
    unknown = pool.cli("why", "123456")
    assert (unknown.returncode, unknown.stdout) == (4, "")
    assert unknown.stderr.startswith("pilotage: there is no job 123456\n")


def test_the_jobs_and_queues_of_others_are_as_if_there_were_none(pool: Instance) -> None:
    mine = pool.client("alice").submit({"executable": "true", "tags": ["nowhere"]}).first
    queue = pool.job(mine).queue
    assert pool.client("alice").why(mine).reason
    for ask, number in ((pool.client("bob").why, mine), (pool.client("bob").why_queue, queue)):
        with pytest.raises(NotFound) as theirs:
            ask(number)
        with pytest.raises(NotFound) as nobodys:
            ask(10**9)
        assert theirs.value.message.replace(str(number), "N") == nobodys.value.message.replace(
            str(10**9), "N"
        )
    assert pool.client().why(mine).needs["owner"] == "alice", "administrators see all"


@pytest.mark.parametrize("number", ["0", "-1", "99999999999999999999999", "abc", "1.5"])
def test_bad_ids_are_told_and_never_a_fault(pool: Instance, number: str) -> None:
    for kind in ("jobs", "queues"):
        answer = pool.client()._transport
        with pytest.raises(Exception, match=r"there is no|must be"):
            answer.request("GET", f"/v1/{kind}/{number}/why")
    assert "Traceback" not in pool.log()
