"""`match-ce` about jobs of a real server that do not wait."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest

from tests.instance import Instance, running


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("match")) as made:
        yield made


def test_an_ended_job_is_answered_for_a_new_job_like_it(instance: Instance) -> None:
    needs = {"executable": "true", "memory": 1000, "requirements": "other.GlueHostBenchmarkSI00 =!= 7"}
    done = instance.client().submit(needs).first
    instance.reaches(done, "Done")
    told = instance.cli("match-ce", str(done))
    assert told.returncode == 0, told.stderr
    assert "note: the job has ended (Done): the answer is for a new job like it" in told.stderr
    before = json.loads(instance.cli("match-ce", str(done), "--json").stdout)
    assert before["job_state"] == "Done"
    assert "gluehostbenchmarksi00 =!= 7" in before["requirements"]

    instance.stop_server()
    with sqlite3.connect(next(instance.home.glob("*.db"))) as database:
        database.execute("DELETE FROM queues")
    instance.start()
    for words in (("match-ce", str(done)), ("job", "ad", str(done))):
        told = instance.cli(*words, "--json")
        assert told.returncode == 0, told.stderr
        answer = json.loads(told.stdout)
        assert answer["ad"] == before["ad"] or words[0] == "job"
        assert "gluehostbenchmarksi00 =!= 7" in answer["ad"].lower()


def test_a_waiting_job_has_no_note(instance: Instance) -> None:
    waiting = instance.client().submit({"executable": "true", "tags": ["nowhere"]}).first
    told = instance.cli("match-ce", str(waiting))
    assert told.returncode == 0, told.stderr
    assert "a new job" not in told.stderr
