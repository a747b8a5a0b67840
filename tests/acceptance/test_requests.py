"""`pilotage request` on a real server: submission, lists, verbs, and who may use them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotage.core.errors import Conflict, Forbidden, IllegalMove, InvalidInput, NotFound
from pilotage.wire.requests import RequestAssignment, RequestSites
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until
from tests.unit.server.test_grafana_board import metrics_of_board

pytestmark = pytest.mark.slow

TOY: dict[str, Any] = {
    "name": "toy",
    "team": "nobody",
    "events": 1000,
    "program": {"executable": "/bin/true"},
    "splitting": {"algorithm": "EventBased", "events_per_job": 100},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("requests")) as instance:
        yield instance


def cli(instance: Instance, *words: str, code: int = 0) -> tuple[str, str]:
    done = instance.cli(*words)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def test_a_request_from_a_file_is_submitted_shown_and_changed(shared: Instance, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    file = tmp_path / "toy.toml"
    file.write_text("""\
name = "from-a-file"
team = "nobody"
events = 1000
[program]
executable = "run.sh"
input_sandbox = ["run.sh"]
[splitting]
algorithm = "EventBased"
events_per_job = 100
time_per_event = 18
size_per_event = "2 MB"
[output]
files = ["*.npz"]
[merge]
""")
    said, _ = cli(shared, "request", "submit", str(file), "--dry-run")
    assert "about 10 jobs as group home" in said
    assert "steps: process, process.merge" in said
    assert "sandbox: 1 file of 10 B, to be uploaded" in said
    assert "time: about 5.0 core-hours of a reference core" in said
    assert "output: about 2.0 GB" in said
    assert "input:" not in said, "it generates events"
    assert list(shared.client().requests(name="from-a-file")) == []
    said, _ = cli(shared, "request", "submit", str(file), "--priority", "77", "--json")
    accepted = json.loads(said)["requests"][0]
    number = accepted["request"]["id"]
    assert (accepted["jobs"], accepted["request"]["state"], accepted["request"]["priority"]) == (
        10,
        "assigned",
        77,
    )
    detail = shared.client().request(number)
    assert [(step.name, step.type, step.output) for step in detail.steps] == [
        ("process", "Processing", f"from-a-file-{number}/process/unmerged"),
        ("process.merge", "Merge", f"from-a-file-{number}/process"),
    ]
    assert detail.steps[0].events == 1000
    said, _ = cli(shared, "request", "list")
    assert f"{number}\tfrom-a-file" in said
    cli(shared, "request", "priority", str(number), "10")
    cli(shared, "request", "sites", str(number), "--sites", "here", "--trust-input")
    said, _ = cli(shared, "request", "show", str(number))
    assert "sites\there" in said
    assert "read from elsewhere\tinput" in said
    _, told = cli(shared, "request", "sites", str(number), "--sites", "heer", code=2)
    assert "heer is not in the policy" in told
    until(lambda: list(shared.client().request_elements(number)), what="elements")
    said, _ = cli(shared, "request", "elements", str(number), "--step", "process")
    assert said.startswith("element\tstep\tstate\tagent\tsite\tjobs\tfailed\tchanged\treason\n")
    said, _ = cli(shared, "request", "elements", str(number), "--stuck", "1h", "--json")
    assert json.loads(said) == {"elements": []}
    _, told = cli(shared, "request", "elements", str(number), "--stuck", "1h", "--state", "Done", code=2)
    assert "leave out --state or --stuck" in told
    said, _ = cli(shared, "status", "--request", str(number), "--json")
    assert {job["name"].split("/")[0] for job in json.loads(said)["jobs"]} <= {"from-a-file"}
    said, _ = cli(shared, "status", "--request", "999999", "--json")
    assert json.loads(said)["jobs"] == []
    cli(shared, "request", "abort", str(number), "--reason", "no need")
    said, _ = cli(shared, "request", "history", str(number))
    for words in ("new → assignment-approved", "priority 77 → 10", "sites * → here", "→ aborted\tno need"):
        assert words in said
    said, _ = cli(shared, "request", "list", "--all", "--json")
    assert number in [row["id"] for row in json.loads(said)["requests"]]
    cli(shared, "request", "show", "999999", code=4)


def test_a_refused_request_does_not_keep_a_verb_from_the_others(shared: Instance) -> None:
    client = shared.client()
    ended, waiting = (client.submit_request({**TOY, "team": "nobody"}).request.id for _ in range(2))
    client.abort_request(ended)
    until(lambda: client.request(ended).request.state == "aborted-completed", what="the end")
    said, told = cli(shared, "request", "abort", str(ended), "999999", str(waiting), code=5)
    assert f"request {waiting} (" in said
    assert "2 of 3 requests are not changed:" in told
    assert f"request {ended}: a request in state aborted-completed cannot become aborted" in told
    assert "request 999999: there is no request 999999" in told
    assert client.request(waiting).request.state in ("aborted", "aborted-completed")


def test_mistakes_are_told_with_file_and_line(shared: Instance, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nevents: 10\nprogram:\n  executable: x\nspliting:\n  algorithm: EventBased\n")
    _, told = cli(shared, "request", "submit", str(file), code=2)
    assert str(file) in told
    assert "line 5: unknown field 'spliting' (did you mean splitting?)" in told
    file.write_text("name: bad\nevents: 10\npriority: many\nprogram: {executable: x}\nsplitting:\n"
                    "  {algorithm: EventBased, events_per_job: 5}\n")  # fmt: skip
    _, told = cli(shared, "request", "submit", str(file), code=2)
    assert told.startswith(f"pilotage: {file}: line 3: priority must be a whole number")
    _, told = cli(shared, "request", "show", "toy", code=2)
    assert told.startswith("pilotage: Invalid value for 'REQUEST': it must be a whole number")
    _, told = cli(shared, "request", "submit", str(tmp_path / "absent.toml"), code=2)
    assert "cannot read" in told
    _, told = cli(shared, "request", "list", "--state", "finished", code=2)
    assert "is no state of requests" in told


def test_a_key_makes_a_request_once(shared: Instance) -> None:
    first = shared.client().submit_request(TOY, key="once").request.id
    assert shared.client().submit_request(TOY, key="once").request.id == first
    with pytest.raises(Conflict, match="belongs to another request"):
        shared.client().submit_request({**TOY, "priority": 1}, key="once")


def test_invalid_requests_are_refused_with_the_reason(shared: Instance) -> None:
    client = shared.client()
    data = {key: value for key, value in TOY.items() if key != "events"} | {
        "input": "/no/such/data",
        "splitting": {"algorithm": "FileBased", "files_per_job": 1},
    }
    with pytest.raises(InvalidInput, match="there is no data set /no/such/data"):
        client.submit_request(data)
    with pytest.raises(InvalidInput, match="sites: moon is not in the policy"):
        client.submit_request({**TOY, "sites": ["moon"]})
    with pytest.raises(Conflict, match="about 10,000,000 jobs") as refused:
        client.submit_request({**TOY, "events": 10**9})
    assert "--yes" in refused.value.hint
    number = client.submit_request({**TOY, "events": 10**9}, confirmed=True).request.id
    client.abort_request(number)
    with pytest.raises(IllegalMove):
        client.force_complete_request(number)
    with pytest.raises(Conflict, match="cannot be changed"):
        client.set_request_priority(number, 5)
    with pytest.raises(InvalidInput, match="no list and no flag"):
        client.set_request_sites(number, RequestSites())
    output = {**TOY, "output": {"files": ["x"], "dataset": "/taken"}}
    client.submit_request(output)
    with pytest.raises(InvalidInput, match="the data set /taken exists already"):
        client.submit_request(output)


def test_a_plain_user_sees_and_changes_own_requests_only(shared: Instance, tmp_path: Path) -> None:
    alice, bob, owner = shared.client("alice"), shared.client("bob"), shared.client()
    number = alice.submit_request({**TOY, "name": "alices"}).request.id
    assert alice.request(number).request.state == "new", "she may not assign it"
    assert list(bob.requests(name="alices")) == []
    for call in (bob.request, bob.abort_request, lambda id_: list(bob.request_history(id_))):
        with pytest.raises(NotFound):
            call(number)
    for verb in (alice.approve_request, alice.reject_request):
        with pytest.raises(Forbidden, match="may not"):
            verb(number)
    with pytest.raises(Forbidden):
        alice.assign_request(number, RequestAssignment("nobody"))
    token, file = tmp_path / "token", tmp_path / "toy.json"
    token.write_text(shared.client().create_token("alice").token)
    token.chmod(0o600)
    file.write_text(json.dumps({**TOY, "name": "alices-too"}))
    said, told = cli(shared, "request", "submit", str(file), "--token-file", str(token))
    assert ": new, about 10 jobs" in said
    assert "waits for a production manager: `pilotage request approve" in told
    assert alice.set_request_priority(number, 3).priority == 3
    assert owner.assign_request(number, RequestAssignment("nobody", sites=["here"])).state == "assigned"
    kinds = [(event.kind, event.actor) for event in alice.request_history(number)]
    assert kinds[0] == ("submit", "user:alice")
    assert kinds[-1][0] == "state"
    assert alice.abort_request(number, "enough").state == "aborted"
    withdrawn = alice.submit_request({**TOY, "name": "alices"}).request.id
    assert alice.abort_request(withdrawn).state == "rejected"
    assert owner.archive_request(withdrawn).state == "rejected-archived"
    with pytest.raises(Forbidden, match="is not in group home"):
        alice.submit_request({**TOY, "group": "home"})


def test_one_verb_changes_many_requests(shared: Instance) -> None:
    client = shared.client()
    first, *others = [
        client.submit_request({**TOY, "name": "many", "team": "nobody"}).request.id for _ in range(3)
    ]
    _, told = cli(shared, "request", "priority", "77", "--name", "many", code=2)
    assert f"nothing done: priority 3 requests ({first}, {others[0]}, {others[1]})?" in told
    _, told = cli(shared, "request", "abort", str(first), "--name", "many", code=2)
    assert "both numbers and a filter" in told
    cli(shared, "request", "priority", "77", "--name", "many", "-y")
    assert {row.priority for row in client.requests(name="many")} == {77}
    cli(shared, "request", "priority", str(first), str(others[0]), "78")
    assert client.request(others[0]).request.priority == 78
    waiting = client.submit_request({**TOY, "name": "slow", "team": ""}).request.id
    larger = ("--splitting", "events_per_job=7", "--memory", "2GB", "--wall-time", "2h")
    _, told = cli(shared, "request", "assign", str(waiting), "--team", "nobody", "--splitting", "x", code=2)
    assert "--splitting x: it is written NAME=VALUE" in told
    cli(shared, "request", "assign", str(waiting), "--team", "nobody", *larger)
    cli(shared, "request", "clone", str(waiting), *larger[2:], "--name", "copied")
    said, _ = cli(shared, "request", "history", str(waiting))
    assert "events_per_job=7, processors=1 memory=2048 wall_time=7200" in said
    _, told = cli(shared, "request", "assign", str(first), *larger, code=5)
    assert "splitting and resources" in told
    said, _ = cli(shared, "request", "pause", str(first))
    assert f"request {first} (many) is " in said
    assert ", paused, priority 78" in said
    assert f"pilotage request resume {first}" in cli(shared, "why", f"request:{first}")[0]
    assert ", paused" in cli(shared, "request", "show", str(first))[0]
    cli(shared, "request", "resume", str(first))
    assert not client.request(first).request.paused
    cli(shared, "request", "abort", str(first))
    open_ones = ("--name", "many", "--state", "assigned", "--state", "acquired")
    said, _ = cli(shared, "request", "abort", *open_ones, "-y", "--json")
    assert [row["id"] for row in json.loads(said)["requests"]] == others
    metrics = httpx.get(f"{client.url}/metrics", timeout=PATIENCE).text
    assert metrics_of_board() <= set(re.findall(r"^# TYPE (\S+)", metrics, re.M))
    assert 'pilotage_requests{state="assigned"} ' in metrics
    assert 'pilotage_element_jobs{state="made"} 0\n' in metrics
    assert "aborted-completed" not in metrics
    _, told = cli(shared, "request", "abort", "--name", "many", "-y", code=4)
    assert "no request fits the filter" in told
    _, told = cli(shared, "request", "announce", str(first), code=5)


FAILING = """\
name = "copy"
team = "home"
input = "/copied"
[program]
executable = "run.sh"
input_sandbox = ["run.sh"]
[splitting]
algorithm = "FileBased"
files_per_job = 1
[output]
files = ["out.txt"]
[merge]
[retry]
max_retries = 0
"""


def _check_that_jobs_stay_in_the_request(shared: Instance, request: int, job: int) -> None:
    """No verb that runs jobs again takes a job of a request: its input would be processed twice."""
    before = shared.client().counts().total
    one, submission = str(job), ("-s", str(shared.client().job(job).job.submission))
    for words in (
        *(("rerun", one), ("rerun", *submission), ("rerun", *submission, "--failed")),
        *(("reschedule", one), ("reschedule", *submission, "-y")),
    ):
        _, told = cli(shared, *words, code=5)
        assert f"request {request}" in told, words
    _, told = cli(shared, "rerun", "--failed", "-y", code=4)
    assert "1 job of requests left out" in told
    cli(shared, "rerun", "--incomplete", "-y", code=4)
    assert shared.client().counts().total == before


def _resubmit_by_page(instance: Instance, number: int, program: bytes) -> int:
    """The request that a person makes of the failed parts, with a mended program that has another name."""
    address = f"/requests/{number}/resubmit"
    own = {"Sec-Fetch-Site": "same-origin"}
    url = instance.client().url
    with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as browser:
        token = (instance.home / "token").read_text().strip()
        assert browser.post("/signin", data={"token": token}, headers=own).status_code == 303
        page = browser.get(address).text
        assert 'enctype="multipart/form-data"' in page
        form_token, *_ = re.findall(r'name="form_token" value="([^"]+)"', page)
        proof, files = {"form_token": form_token}, {"file": ("mended.sh", program)}
        assert browser.post(address, files=files, data={"value": "run.sh"}).status_code == 403, "no token"
        other = browser.post(address, files=files, data=proof)
        assert (other.status_code, "input file mended.sh" in other.text) == (400, True)
        assert browser.post(address, data={**proof, "value": "run.sh"}).status_code == 400, "no file"
        large = {"file": ("mended.sh", b"x" * 4_000_000)}
        assert browser.post(address, files=large, data=proof).status_code == 413
        answer = browser.post(address, files=files, data={**proof, "value": "run.sh"})
        assert answer.status_code == 303
        return int(answer.headers["location"].rsplit("/", 1)[1])


def test_failed_jobs_are_shown_with_their_stderr_and_resubmitted(shared: Instance, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("a/1", "a/2", "b/3"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(name)
    script = tmp_path / "run.sh"
    script.write_text("""\
#!/bin/sh
if grep -q a/2 "$PILOTAGE_FILE_LIST"; then
    echo "no calibration for a/2" >&2
    exit 3
fi
cp "$PILOTAGE_FILE_LIST" out.txt
""")
    file = tmp_path / "copy.toml"
    file.write_text(FAILING)
    cli(shared, "dataset", "add", "/copied", str(data))
    said, _ = cli(shared, "request", "submit", str(file), "--dry-run")
    assert f"  input: 1 data set with 3 files of 9 B\n  sandbox: 1 file of {script.stat().st_size} B" in said
    said, _ = cli(shared, "request", "submit", str(file), "--wait", "--json", code=1)
    number = json.loads(said)["requests"][0]["request"]["id"]
    detail = shared.client().request(number)
    # Two jobs are done and merged, and the third one has failed.
    assert (detail.request.state, detail.request.done_jobs, detail.request.failed_jobs) == ("completed", 3, 1)
    [error] = detail.errors
    assert (error.exit_code, error.count, error.exhausted) == (3, 1, 1)
    assert error.stderr == "no calibration for a/2\n"
    said, _ = cli(shared, "request", "show", str(number))
    assert "exit code 3 in process: 1 job, 1 for good" in said
    assert "no calibration for a/2" in said
    assert error.job is not None
    _check_that_jobs_stay_in_the_request(shared, number, error.job)
    _, told = cli(shared, "request", "resubmit", str(number), "--program", str(file), code=2)
    assert "no program of the request has the input file copy.toml" in told
    assert "it has: run.sh" in told
    mended = tmp_path / "mended.sh"
    mended.write_text('#!/bin/sh\ncp "$PILOTAGE_FILE_LIST" out.txt\n')
    program = ("--program", f"{mended}=run.sh")
    cli(shared, "request", "resubmit", str(number), *program, *program, code=2)
    again = {"id": _resubmit_by_page(shared, number, mended.read_bytes())}
    cli(shared, "request", "wait", str(again["id"]), "--timeout", f"{2 * PATIENCE:g}s")
    detail = shared.client().request(again["id"])
    assert [(step.name, step.jobs) for step in detail.steps] == [
        ("process", {"done": 1}),
        ("process.merge", {}),
        ("process.merge.rest", {"done": 1}),
    ]
    # Its output joins that of the first request, which has become whole.
    result = shared.client().dataset(f"copy-{number}/process").dataset
    assert (detail.steps[2].output, result.files, result.open) == (result.name, 2, False)
    _, told = cli(shared, "request", "resubmit", str(again["id"]), code=5)
    assert "has failed for good" in told
    _, told = cli(shared, "request", "resubmit", str(number), code=5)
    assert f"each failed part of request {number} has a resubmission: 1 in request {again['id']}" in told
    said, _ = cli(shared, "request", "show", str(number))
    assert f"1 of 1 failed part in request {again['id']} (completed)" in said
    said, _ = cli(shared, "request", "clone", str(number), *program, "--json")
    said, _ = cli(shared, "request", "wait", str(json.loads(said)["id"]), "--timeout", f"{2 * PATIENCE:g}s")
    assert "completed" in said
