"""From submission to output: a real server, real pilots, real payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.wire.jobs import Selection
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("pool")) as instance:
        yield instance


def test_a_job_runs_and_its_output_comes_back(pool: Instance, tmp_path: Path) -> None:
    answer = pool.client().submit({"executable": "echo", "arguments": ["hello", "world; rm -rf $HOME"]})
    done = pool.reaches(answer.first, "Done")
    assert (done.exit_code, done.attempt, done.site, done.ce) == (0, 1, "here", "local")
    pool.client().download(answer.first, tmp_path)
    assert (tmp_path / str(answer.first) / "stdout").read_text() == "hello world; rm -rf $HOME\n"
    assert pool.events(answer.first) == ["submitted", "offered", "confirmed", "finished"]


def test_inputs_outputs_environment_and_setup_reach_the_payload(pool: Instance, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text(
        '#!/bin/sh\ncat data/a.txt > result.txt; echo "$WHO $FROM_SETUP" >> result.txt\n'
    )
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("content\n")
    shared = tmp_path / "shared.txt"
    shared.write_text("on the node\n")
    answer = pool.client().submit(
        {
            "executable": "tool",
            "input_sandbox": ["tool", "data", f"shared:{shared}"],
            "output_sandbox": ["result.txt", "*.missing"],
            "environment": {"WHO": "pilot's guest"},
            "setup_lines": ["export FROM_SETUP=yes"],
        },
        folder=tmp_path,
    )
    pool.reaches(answer.first, "Done")
    detail = pool.client().job(answer.first)
    assert detail.missing_outputs == ["*.missing"]
    pool.client().download(answer.first, tmp_path / "out")
    text = (tmp_path / "out" / str(answer.first) / "result.txt").read_text()
    assert text == "content\npilot's guest yes\n"


def test_parametric_jobs_each_see_their_value(pool: Instance, tmp_path: Path) -> None:
    answer = pool.client().submit(
        {"executable": "echo", "arguments": ["%s", "%n", "%j"], "std_output": "out.%n"},
        values=["x", "y z", 3],
    )
    assert answer.count == 3
    for place, value in enumerate(["x", "y z", "3"]):
        job = answer.first + place
        pool.reaches(job, "Done")
        pool.client().download(job, tmp_path)
        assert (tmp_path / str(job) / f"out.{place}").read_text() == f"{value} {place} {job}\n"


def test_a_payload_that_fails_is_failed_with_its_exit_code_and_words(pool: Instance) -> None:
    answer = pool.client().submit({"executable": "sh", "arguments": ["-c", "echo sorry >&2; exit 7"]})
    failed = pool.reaches(answer.first, "Failed")
    assert failed.exit_code == 7
    assert "7" in failed.reason
    assert pool.client().log(answer.first, stream="stderr").data == b"sorry\n"


def test_a_payload_with_retries_is_tried_again_and_the_last_word_counts(
    pool: Instance, tmp_path: Path
) -> None:
    marker = tmp_path / "tries"
    script = f'echo x >> {marker}; [ "$(wc -l < {marker})" -ge 3 ]'
    answer = pool.client().submit({"executable": "sh", "arguments": ["-c", script], "retries": 2})
    done = pool.reaches(answer.first, "Done")
    assert (done.attempt, done.failures) == (3, 2)


def test_limits_end_a_payload_and_say_which(pool: Instance) -> None:
    hog = "x = b'x' * 300_000_000; import time; time.sleep(60)"
    memory = pool.client().submit({"executable": "python3", "arguments": ["-c", hog], "memory": 200})
    wall = pool.client().submit({"executable": "sleep", "arguments": ["60"], "wall_time": 1})
    assert pool.reaches(memory.first, "Failed").reason.startswith("limit-memory")
    assert pool.reaches(wall.first, "Failed").reason.startswith("limit-wall")


def test_kill_ends_a_running_payload_and_reschedule_brings_it_back(pool: Instance, tmp_path: Path) -> None:
    marker = tmp_path / "second-time"
    script = f"[ -e {marker} ] && exit 0; touch {marker}; sleep 600"
    answer = pool.client().submit({"executable": "sh", "arguments": ["-c", script]})
    pool.reaches(answer.first, "Running")
    until(marker.exists, what="the payload's start")
    assert pool.client().kill([answer.first], reason="wrong input").done == 1
    assert pool.job(answer.first).state == "Killed"
    refused = pool.client().kill([answer.first])
    assert (refused.done, len(refused.refused)) == (0, 1)
    assert pool.client().reschedule([answer.first]).done == 1
    assert pool.reaches(answer.first, "Done").attempt == 2
    assert "killed" in pool.events(answer.first)


def test_a_killed_job_keeps_what_it_printed(pool: Instance, tmp_path: Path) -> None:
    client = pool.client()
    script = (
        f"trap 'echo asked; exit 1' TERM; echo begun; echo trouble >&2; touch {tmp_path}/$1; sleep 60 & wait"
    )
    large = f"head -c 300000 /dev/zero; {script}"
    job = client.submit({"executable": "sh", "arguments": ["-c", script, "sh", "a"]}).first
    description = {"executable": "sh", "arguments": ["-c", large, "sh", "b"], "output_sandbox": ["*"]}
    one = client.submit({**description, "std_output": "all", "std_error": "all"}).first
    until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(), what="the jobs' start")
    client.kill(Selection(ids=[job, one]))
    whole = bytes(300000) + b"begun\ntrouble\nasked\n"
    until(
        lambda: {o.name: o.size for o in client.job(job).outputs} == {"stdout": 12, "stderr": 8},
        what="output",
    )
    until(lambda: {o.name: o.size for o in client.job(one).outputs} == {"all": len(whole)}, what="output")
    assert pool.job(job).state == pool.job(one).state == "Killed"
    assert (client.log(job).data, client.log(job, stream="stderr").data) == (b"begun\nasked\n", b"trouble\n")
    assert client.log(one).data == client.log(one, stream="stderr").data == whole
    client.download(one, tmp_path / "out")
    assert (tmp_path / "out" / str(one) / "all").read_bytes() == whole
    # Brought back, it is a new try with an output of its own; deleted, it has none.
    client.delete(Selection(ids=[one]))
    assert client.job(one).outputs == []
    assert b"begun" not in client.log(one).data


def test_both_streams_in_one_file_are_shown_for_both(pool: Instance, tmp_path: Path) -> None:
    client = pool.client()
    go = tmp_path / "go"
    script = f"echo 1; echo 2 >&2; while [ ! -e {go} ]; do sleep 0.05; done; echo 3"
    description = {"executable": "sh", "arguments": ["-c", script], "std_output": "all", "std_error": "all"}
    job = client.submit(description).first
    until(lambda: client.log(job).data == client.log(job, stream="stderr").data == b"1\n2\n", what="the tail")
    go.touch()
    pool.reaches(job, "Done")
    assert client.log(job).data == client.log(job, stream="stderr").data == b"1\n2\n3\n"
    assert [(output.name, output.size) for output in client.job(job).outputs] == [("all", 6)]
    client.download(job, tmp_path / "out")
    assert (tmp_path / "out" / str(job) / "all").read_bytes() == b"1\n2\n3\n"


def test_outputs_that_cannot_be_stored_are_told_and_the_job_runs_once(pool: Instance, tmp_path: Path) -> None:
    client = pool.client()
    runs = tmp_path / "runs"
    script = (
        f"echo run >> {runs}; ln -s / a; ln -s . b; mkfifo pipe; printf x > good; "
        "touch \"$(printf 'odd\\377')\" \"$(printf 'new\\nline')\""
    )
    description = {"executable": "sh", "arguments": ["-c", script], "output_sandbox": ["**", "none*"]}
    job = client.submit(description).first
    done = pool.reaches(job, "Done")
    assert done.outputs_incomplete
    assert done.reason == "no file matches the output 'none*' (and 5 more)"
    detail = client.job(job)
    assert {refused.name for refused in detail.refused_outputs} == {
        "a",
        "b",
        "pipe",
        "odd\\xff",
        "new\\nline",
    }
    assert detail.missing_outputs == ["none*"]
    assert [output.name for output in detail.outputs] == ["good", "stderr", "stdout"]
    assert [found.id for found in client.jobs(Selection(outputs_incomplete=True, ids=[job]))] == [job]
    assert client.counts(Selection(outputs_incomplete=True, ids=[job])).total == 1
    assert runs.read_text() == "run\n"


def test_logs_follow_a_running_payload(pool: Instance, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    script = f"echo first; while [ ! -e {go_on} ]; do sleep 0.05; done; echo last"
    answer = pool.client().submit({"executable": "sh", "arguments": ["-c", script]})
    pool.reaches(answer.first, "Running")
    client = pool.client()
    until(lambda: client.log(answer.first).data == b"first\n", what="the tail")
    go_on.touch()
    assert b"".join(piece.data for piece in client.logs(answer.first, follow=True)) == b"first\nlast\n"


def test_delete_removes_outputs_and_keeps_the_history(pool: Instance, tmp_path: Path) -> None:
    answer = pool.client().submit({"executable": "sh", "arguments": ["-c", "seq 9999"], "output_sandbox": []})
    pool.reaches(answer.first, "Done")
    assert pool.client().outputs(answer.first)
    assert pool.client().delete([answer.first]).done == 1
    assert pool.job(answer.first).state == "Deleted"
    assert pool.client().outputs(answer.first) == []
    assert pool.events(answer.first)[-1] == "deleted"


def test_requirements_and_impossible_memory_keep_a_job_waiting_with_a_warning(pool: Instance) -> None:
    client = pool.client()
    nowhere = client.submit({"executable": "true", "requirements": 'other.Site == "elsewhere"'})
    here = client.submit(
        {"executable": "true", "requirements": 'other.Site == "here" && other.Processors >= 1'}
    )
    huge = client.submit({"executable": "true", "memory": 900_000})
    assert any("memory" in warning for warning in huge.warnings)
    pool.reaches(here.first, "Done")
    assert pool.job(nowhere.first).state == pool.job(huge.first).state == "Waiting"
    waiting = {queue.id: queue.waiting for queue in client.queues()}
    assert waiting[pool.job(nowhere.first).queue] == 1
    assert client.kill([nowhere.first, huge.first]).done == 2


def test_the_same_key_makes_no_second_submission(pool: Instance) -> None:
    client = pool.client()
    first = client.submit({"executable": "true"}, key="once")
    again = client.submit({"executable": "true"}, key="once")
    assert (first.submission, first.first) == (again.submission, again.first)
    with pytest.raises(Conflict):
        client.submit({"executable": "false"}, key="once")


def test_a_submission_sent_again_before_its_answer_is_one(pool: Instance) -> None:
    description = {"executable": "true", "requirements": "false", "cpu_time": 5000}
    with ThreadPoolExecutor(4) as threads:
        sent = [
            threads.submit(pool.client().submit, description, values=range(20_000), key="in parallel")
            for _ in range(4)
        ]
        answers = [one.result() for one in sent]
    assert len({(answer.submission, answer.first, answer.last) for answer in answers}) == 1
    selection = Selection(submission=answers[0].submission)
    assert pool.client().counts(selection).states == {"Waiting": 20_000}
    pool.client().kill(selection)


def test_unknown_sites_and_attributes_are_refused_with_the_right_name(pool: Instance) -> None:
    with pytest.raises(InvalidInput, match="nowhere is not in the policy"):
        pool.client().submit({"executable": "true", "sites": ["nowhere"]})
    with pytest.raises(InvalidInput, match="executable"):
        pool.client().submit({"executible": "true"})
    with pytest.raises(NotFound):
        pool.client().job(10**9)


def test_a_hundred_thousand_jobs_fit_one_submission(pool: Instance) -> None:
    client = pool.client()
    description = {"executable": "true", "cpu_time": 100_000, "requirements": "false"}
    answer = client.submit(description, values=list(range(100_000)))
    assert answer.count == 100_000
    assert client.counts(Selection(submission=answer.submission)).states == {"Waiting": 100_000}
    assert client.kill(Selection(submission=answer.submission)).done == 100_000
    with pytest.raises(InvalidInput):
        client.submit(description, values=list(range(100_001)))


def test_multi_core_jobs_get_a_pilot_of_their_width(pool: Instance) -> None:
    answer = pool.client().submit(
        {"executable": "sh", "arguments": ["-c", "echo $PILOTAGE_PROCESSORS"], "processors": 2}
    )
    pool.reaches(answer.first, "Done")
    assert pool.client().log(answer.first).data == b"2\n"


def test_a_new_ce_and_new_cores_count_from_the_next_cycle(tmp_path: Path) -> None:
    with running(tmp_path, processors=1) as instance:
        wide = instance.client().submit({"executable": "true", "processors": 2})
        assert any("processors" in warning for warning in wide.warnings)
        second = '[ces.second]\nsite = "here"\nprocessors = 2\nidle = 1\n'
        instance.client().apply_policy(instance.policy + second)
        assert instance.reaches(wide.first, "Done").ce == "second"


def test_pilots_leave_when_nothing_waits(pool: Instance) -> None:
    until(lambda: not pool.pilot_pids(), what="the pilots' leaving")
    states = {pilot.state for pilot in pool.client().pilots()}
    assert states <= {"Done"}


def test_the_command_line_does_the_same(pool: Instance, tmp_path: Path) -> None:
    made = pool.cli("submit", "--name", "greeting", "--json", "--", "echo", "from the shell")
    assert made.returncode == 0, made.stderr
    assert (
        pool.cli("wait", "-s", str(json.loads(made.stdout)["submissions"][0]["submission"])).returncode == 0
    )
    listed = pool.cli("status", "--json", "--state", "Done")
    job = next(job for job in json.loads(listed.stdout)["jobs"] if job["name"] == "greeting")
    assert pool.cli("output", str(job["id"]), "--dir", str(tmp_path)).returncode == 0
    assert (tmp_path / str(job["id"]) / "stdout").read_text() == "from the shell\n"
    assert pool.cli("status", "999999").returncode == 4
