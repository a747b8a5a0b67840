"""A server on PostgreSQL, as a person runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pilotage.wire.submissions import SubmitResponse
from tests.instance import Instance, until
from tests.postgres import PASSWORD, server

pytestmark = pytest.mark.slow


@pytest.fixture
def database() -> Iterator[str]:
    made = server().empty()
    yield made
    server().drop(made)


@pytest.fixture
def instance(tmp_path: Path, database: str) -> Iterator[Instance]:
    made = Instance(tmp_path, database_url=server().tcp(database))
    yield made
    made.close()


def jobs_of(answer: SubmitResponse) -> range:
    return range(answer.first, answer.first + answer.count)


def test_jobs_run_end_to_end_and_nothing_is_lost_when_the_server_is_killed(instance: Instance) -> None:
    assert instance.cli("db", "upgrade").returncode == 0
    instance.start()
    instance.apply()
    client = instance.client()
    description = {"executable": "echo", "arguments": ["%s", "ünï", "\\0"], "std_output": "out"}
    done = jobs_of(client.submit(description, values=range(6)))
    for job in done:
        instance.reaches(job, "Done")
    released = instance.home / "released"
    waiting = f"while [ ! -e {released} ]; do sleep 0.05; done; echo after"
    [held] = jobs_of(client.submit({"executable": "sh", "arguments": ["-c", waiting]}))
    instance.reaches(held, "Running")
    more = jobs_of(client.submit({"executable": "true"}, values=range(20)))
    instance.kill_server()
    released.touch()
    instance.start()
    for job in (held, *more):
        instance.reaches(job, "Done")
    assert instance.job(held).failures == 0
    assert [instance.job(job).state for job in done] == ["Done"] * 6
    checked = instance.cli("db", "check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_no_password_is_shown_anywhere(instance: Instance) -> None:
    instance.cli("db", "upgrade")
    instance.forked = False  # a fork has the command line of its parent
    instance.start("--verbose")
    assert instance.process is not None
    shown = Path(f"/proc/{instance.process.pid}/cmdline").read_text() + instance.log()
    shown += "".join(path.read_text() for path in instance.home.glob("*.json"))
    second = instance.cli("up", "--home", str(instance.home.parent / "other"))
    assert second.returncode == 5
    assert "signs tokens with another key" in second.stderr
    assert "secrets/signing.key" in second.stderr
    instance.stop_server()
    for secret in (PASSWORD, PASSWORD.replace(" ", "%20")):
        assert secret not in shown + second.stdout + second.stderr + instance.log()
    on_the_line = instance.cli("up", "--database-url", instance.database_url)
    assert on_the_line.returncode == 2
    assert "~/.pgpass" in on_the_line.stderr
    assert "Traceback" not in on_the_line.stderr


def test_each_hindrance_is_one_sentence_with_what_to_do(instance: Instance, database: str) -> None:
    good = instance.database_url

    def told(url: str, *words: str) -> tuple[int, str]:
        instance.database_url = url
        ended = instance.cli(*(words or ("up",)))
        instance.database_url = good
        assert "Traceback" not in ended.stderr
        return ended.returncode, ended.stderr

    latin = server().empty(encoding="LATIN1")
    cases = [
        ("postgresql://127.0.0.1:1/x", 6, "Connection refused"),
        (server().tcp(database, "wrong"), 6, "password authentication failed"),
        (server().tcp("nowhere"), 6, "does not exist"),
        (server().tcp(latin), 2, "createdb --encoding UTF8"),
        ("mysql://127.0.0.1/x", 2, "postgresql://USER@HOST:PORT/DATABASE"),
        ("postgresql://127.0.0.1:x:y/z", 2, "cannot be read"),
        ("postgresql://127.0.0.1", 2, "names no database"),
        (good, 5, "pilotage db upgrade"),
    ]
    for url, code, words in cases:
        found = told(url)
        assert found[0] == code, (url, found)
        assert words in found[1]
    server().drop(latin)
    assert told(good, "db", "upgrade")[0] == 0
    with psycopg.connect(good, autocommit=True) as other:
        for revision, words in (("9999", "newer version"), ("0001", "development version")):
            other.execute("UPDATE alembic_version SET version_num = %s", (revision,))
            found = told(good)
            assert found[0] == 5
            assert words in found[1]
        other.execute("CREATE ROLE modest LOGIN PASSWORD 'm'")
        try:
            bare = server().empty()
            found = told(f"postgresql://modest:m@127.0.0.1:{server().port}/{bare}", "db", "upgrade")
            assert found[0] == 2
            assert "OWNER" in found[1]
        finally:
            server().drop(bare)
            other.execute("DROP ROLE modest")


def test_a_restored_backup_supersedes_later_work(instance: Instance, database: str, tmp_path: Path) -> None:
    programs = ("--pg-bin", str(server().binaries))
    instance.cli("db", "upgrade")
    instance.start()
    [kept] = jobs_of(instance.client().submit({"executable": "true"}))
    instance.reaches(kept, "Done")
    copy = tmp_path / "copy"
    taken = instance.cli("db", "backup", str(copy), *programs)
    assert taken.returncode == 0, taken.stderr
    assert copy.stat().st_mode & 0o077 == 0
    [lost] = jobs_of(instance.client().submit({"executable": "true"}))
    instance.reaches(lost, "Done")
    refused = instance.cli("db", "restore", str(copy), *programs)
    assert refused.returncode == 5
    instance.stop_server()
    (tmp_path / "no").write_text("no dump")
    for wrong, code in (("no", 2), ("nothing", 4)):
        assert instance.cli("db", "restore", str(tmp_path / wrong), *programs).returncode == code
    restored = instance.cli("db", "restore", str(copy), *programs)
    assert restored.returncode == 0, restored.stderr
    assert "incarnation 2" in restored.stdout
    instance.start()
    assert {job.id for job in instance.client().jobs()} == {kept}
    [new] = jobs_of(instance.client().submit({"executable": "true"}))
    assert new > lost + 900
    instance.reaches(new, "Done")
    assert instance.cli("db", "check").returncode == 0
    with psycopg.connect(instance.database_url) as other:
        [aside] = other.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'before_restore%'"
        ).fetchone() or ("",)
        assert other.execute(f"SELECT count(*) FROM {aside}.jobs".encode()).fetchone() == (2,)


def test_the_home_remembers_its_database_and_refuses_another(instance: Instance, database: str) -> None:
    instance.cli("db", "upgrade")
    instance.start()
    instance.stop_server()
    facts = json.loads((instance.home / "instance.json").read_text())
    assert facts["database"].endswith(f"/{database}")
    other = server().migrated()
    instance.database_url = server().tcp(other)
    refused = instance.cli("up")
    assert refused.returncode == 5
    assert facts["database"] in refused.stderr
    server().drop(other)
    instance.database_url = server().tcp(database)


def test_the_server_goes_on_when_its_sessions_are_ended(instance: Instance, database: str) -> None:
    instance.cli("db", "upgrade")
    instance.start()
    with psycopg.connect(server().url("postgres"), autocommit=True) as other:
        sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
        assert (other.execute(sql, (database,)).fetchone() or (0,))[0] > 0

    def submitted() -> list[int] | None:
        ended = instance.cli("submit", "--json", "--", "true")
        return [1] if ended.returncode == 0 else None

    until(submitted, what="a submission")
    instance.reaches(1, "Done")
