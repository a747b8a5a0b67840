"""Jobs run in pilots that a real HTCondor starts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage.core.policy import parse
from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions
from pilotage.wire.jobs import Selection
from tests import htcondor
from tests.instance import Instance, started, until

OWN, ANY = 'owners = "home"', 'owners = "any"'
QUICK = "listing_period = 0.5\nsettle = 0.5\nidle = 2\nheartbeat = 0.5\nsubmit_rate = 100"
WORDS = ("--wall", "20m", "--processors", "2", "--memory", "200", "--set", f"owner={htcondor.ACCOUNT}")


@pytest.fixture(scope="module")
def pool() -> Iterator[htcondor.CondorPool]:
    with htcondor.condor_pool() as made:
        yield made


@contextmanager
def server(folder: Path, environment: dict[str, str]) -> Iterator[Instance]:
    """A server without a CE."""
    made = Instance(folder)
    made.environment = environment
    begin, _, rest = made.policy.partition("[ces.local]")
    made.policy = f'{begin}[director]\ndemand = "matched"\n[jobs]{rest.partition("[jobs]")[2]}'
    with started(made):
        yield made


@pytest.fixture(scope="module")
def instance(pool: htcondor.CondorPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with server(tmp_path_factory.mktemp("server"), pool.environment) as made:
        yield made


def quicken(instance: Instance) -> None:
    """Make all CEs quick, and open them to everybody."""
    client = instance.client()
    text = client.policy().text
    for line in ("idle = 30", "heartbeat = 60", "submit_rate = 1"):
        text = text.replace(f"{line}\n", "")
    client.apply_policy(text.replace("listing_period = 60", QUICK).replace(OWN, ANY))


@pytest.fixture(scope="module")
def ce(instance: Instance, pool: htcondor.CondorPool) -> str:
    """The name of a CE of two cores that `ce add` has made."""
    added = instance.cli("ce", "add", "htcondor", "--name", "condor", "--log-folder", str(pool.logs), *WORDS)
    assert added.returncode == 0, added.stderr
    quicken(instance)
    return "condor"


def assert_nothing_left(instance: Instance, pool: htcondor.CondorPool) -> None:
    until(lambda: not pool.run("condor_q", "-allusers", "-af", "ClusterId"), what="the end of all batch jobs")
    client = instance.client()
    until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--set", "schedd=nosuch"), "unknown host nosuch", "condor_q"),
        (("--set", "pool=127.0.0.1:1", "--set", "schedd=x@y"), "127.0.0.1:1", "condor_q"),
        (("--processors", "17"), "17", ""),
        (("--set", "requirements=$(HOME)"), "requirements", "one line"),
        (("--set", "attributes=Want"), "attributes", "NAME = EXPRESSION"),
        (("--set", "scripts=other"), "scripts", ""),
    ],
)
def test_a_wrong_answer_changes_nothing(
    instance: Instance, words: tuple[str, ...], message: str, hint: str
) -> None:
    before = instance.client().policy().version
    refused = instance.cli("ce", "add", "htcondor", "--name", "wrong", *words)
    assert refused.returncode, refused.stdout
    assert message in refused.stderr
    assert hint in refused.stderr
    assert instance.client().policy().version == before


def test_jobs_of_several_owners_run_in_pilots_of_htcondor(
    pool: htcondor.CondorPool, instance: Instance, ce: str
) -> None:
    client = instance.client()
    added = parse(client.policy().text).ces[ce]
    assert (added.type, added.options_as(HtcondorOptions).owner, added.wall) == ("htcondor", "pilots", 1200.0)
    people = [client, instance.client("alice"), instance.client("bob")]
    sent = [
        (person, Selection(submission=person.submit({"executable": "true"}, values=range(40)).submission))
        for person in people
    ]
    for person, jobs in sent:
        until(
            lambda person=person, jobs=jobs: person.counts(jobs).final == 40,
            what="the end of all jobs",
        )
        assert person.counts(jobs).states == {"Done": 40}
    assert_nothing_left(instance, pool)
    pilots = [pilot for pilot in client.pilots() if pilot.ce == ce]
    assert pilots
    assert all(pilot.processors == 2 and pilot.state == "Done" for pilot in pilots)
    logs = {path.name for path in pool.logs.iterdir()}
    assert logs >= {f"{client.pilot(pilot.id).stamp.replace('/', '-')}.log" for pilot in pilots}
    assert "says that it runs in batch job" not in instance.log()


def test_the_batch_jobs_of_a_ce_are_listed_with_their_properties(instance: Instance, ce: str) -> None:
    client = instance.client()
    sent = client.submit({"executable": "sleep", "arguments": ["3600"], "grid_ces": [ce]})
    until(lambda: client.job(sent.first).job.state == "Running", what="a running job")
    pilot = instance.pilot_of(sent.first)
    [job] = [job for job in client.ce_jobs(ce) if job.pilot == pilot.id]
    assert (job.state, job.batch_id) == ("running", pilot.batch_id)
    assert (job.properties["cores"], job.properties["wall"]) == ("2", "1200")
    client.kill(Selection(ids=[sent.first]))


def test_a_probe_tests_the_ce(instance: Instance, ce: str) -> None:
    tested = instance.cli("ce", "test", ce, "--json")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    steps = {step["name"]: step["state"] for step in json.loads(tested.stdout)["steps"]}
    assert steps["batch system"] == steps["submission"] == steps["start"] == steps["server"] == "ok"


def test_pilots_at_a_schedd_elsewhere_fetch_their_program(
    pool: htcondor.CondorPool, instance: Instance, ce: str
) -> None:
    """The schedd is found by the collector, a token says who the server is, and no file is handed over."""
    tokens = pool.tokens("pilots@test")
    words = (
        *("--set", f"schedd={pool.schedd}", "--set", f"pool={pool.address}"),
        *("--set", f"token_folder={tokens}", "--set", 'attributes=WantTest = true; Project = "a;b"'),
    )
    client = instance.client()
    before = client.policy().text
    added = instance.cli("ce", "add", "htcondor", "--name", "elsewhere", *WORDS, *words)
    assert added.returncode == 0, added.stderr
    quicken(instance)
    sent = client.submit({"executable": "true", "grid_ces": ["elsewhere"]}, values=range(10))
    jobs = Selection(submission=sent.submission)
    until(lambda: client.counts(jobs).final == 10, what="the end of all jobs")
    assert client.counts(jobs).states == {"Done": 10}
    assert_nothing_left(instance, pool)
    asked = ("-af", "Cmd", "WantTest", "Project", "StageInStart")
    ended = pool.run("condor_history", "-constraint", "WantTest", *asked).splitlines()
    assert set(ended) == {"/bin/sh true a;b undefined"}
    client.apply_policy(before)


def test_a_token_that_has_expired_is_told_and_the_ce_pauses(
    pool: htcondor.CondorPool, instance: Instance, ce: str
) -> None:
    """Other CEs go on: jobs of the same time end in their pilots."""
    tokens = pool.tokens("pilots@test", lifetime=1)
    until(lambda: time.time() > (tokens / "token").stat().st_mtime + 2, what="its end")
    client = instance.client()
    before = client.policy().text
    section = f"""
[ces.expired]
site = "here"
type = "htcondor"
owners = "any"
wall = 1200
{QUICK}
[ces.expired.htcondor]
schedd = "{pool.schedd}"
pool = "{pool.address}"
token_folder = "{tokens}"
"""
    client.apply_policy(before + section)
    sent = client.submit({"executable": "true", "grid_ces": ["expired"]})
    other = client.submit({"executable": "true", "grid_ces": [ce]})
    until(lambda: "AUTHENTICATE" in instance.cli("ce", "show", "expired").stdout, what="the reason")
    assert client.job(sent.first).job.state == "Waiting"
    until(lambda: client.job(other.first).job.state == "Done", what="the end of the other job")
    tested = instance.cli("ce", "test", "expired")
    assert tested.returncode
    assert "AUTHENTICATE" in tested.stdout + tested.stderr
    assert "fault of: policy" in tested.stderr
    assert "log_folder" not in tested.stderr, "there is no pilot that could have written anything"
    assert "AUTHENTICATE" in instance.log()
    assert instance.log().count("AUTHENTICATE") < 10, "it is no loop"
    client.kill(Selection(submission=sent.submission))
    client.apply_policy(before)


def test_an_owner_whom_the_schedd_does_not_give_the_pilots_is_told_and_nothing_stays_held(
    pool: htcondor.CondorPool, instance: Instance, ce: str
) -> None:
    client = instance.client()
    before = client.policy().text
    section = f"""
[ces.foreign]
site = "here"
type = "htcondor"
owners = "any"
wall = 1200
{QUICK}
[ces.foreign.htcondor]
owner = "nobody-such"
"""
    client.apply_policy(before + section)
    sent = client.submit({"executable": "true", "grid_ces": ["foreign"]})
    other = client.submit({"executable": "true", "grid_ces": [ce]})
    told = f"to account {htcondor.ACCOUNT}, not to nobody-such"
    for words in (("ce", "show", "foreign"), ("ce", "list"), ("why", str(sent.first))):
        until(
            lambda words=words: told in " ".join(instance.cli(*words).stdout.split()),
            what=f"the reason in {words}",
        )
    until(lambda: client.job(other.first).job.state == "Done", what="the end of the other job")
    assert client.job(sent.first).job.state == "Waiting"
    tested = instance.cli("ce", "test", "foreign")
    assert tested.returncode
    assert told in tested.stdout + tested.stderr
    assert instance.log().count(told) == 1, "the log has it once"
    client.kill(Selection(submission=sent.submission))
    until(lambda: not pool.run("condor_q", "-allusers", "-af", "ClusterId"), what="the end of all batch jobs")
    assert len([pilot for pilot in client.pilots() if pilot.ce == "foreign"]) < 10, "it is no loop"
    client.apply_policy(before)
