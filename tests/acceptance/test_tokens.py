"""Tokens are listed and revoked, and their key is rotated; a killed server forgets none of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pilotage.client import Client
from pilotage.core.errors import Forbidden, InvalidInput, NotAuthenticated, NotFound
from tests.faults.pair import Pair
from tests.instance import Instance, running, until
from tests.postgres import server


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with running(tmp_path, idle=60, lease=600) as made:
        yield made


def is_accepted(instance: Instance, token: str) -> bool:
    with Client(instance.url, token, patience=10) as client:
        try:
            return bool(client.whoami().user)
        except NotAuthenticated:
            return False


def events(instance: Instance, kind: str) -> list[str]:
    with closing(sqlite3.connect(f"file:{instance.home / 'pilotage.db'}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT actor, detail FROM events WHERE kind = ? ORDER BY id", (kind,))
        return [f"{actor}: {detail}" for actor, detail in rows]


def test_a_revoked_token_stays_revoked_after_kill_9(instance: Instance, tmp_path: Path) -> None:
    owner = instance.client()
    first, second = owner.create_token("alice"), owner.create_token("alice")
    listed = {token.id: token for token in owner.tokens()}
    assert {first.id, second.id} <= set(listed)
    assert (listed[first.id].user, listed[first.id].revoked) == ("alice", None)
    owner.revoke_token(first.id)
    instance.kill_server()
    instance.start()
    assert not is_accepted(instance, first.token)
    assert is_accepted(instance, second.token)
    shown = instance.cli("token", "list")
    assert shown.returncode == 0, shown.stderr
    assert sum("revoked by" in line for line in shown.stdout.splitlines()) == 1
    done = instance.cli("token", "revoke", "--user", "alice")
    assert done.returncode == 0, done.stderr
    assert not is_accepted(instance, second.token)
    assert is_accepted(instance, owner.create_token("alice").token)
    actor = f"user:{owner.whoami().user}"
    assert events(instance, "token-revoked") == [
        f"{actor}: token {first.id} of alice (others)",
        f"{actor}: all tokens of alice",
    ]


def test_users_see_and_revoke_their_own_tokens_only(instance: Instance) -> None:
    owner = instance.client()
    alices, bobs = owner.create_token("alice"), owner.create_token("bob")
    with Client(instance.url, alices.token) as alice:
        assert {token.user for token in alice.tokens()} == {"alice"}
        with pytest.raises(NotFound):
            alice.revoke_token(bobs.id)
        for forbidden in (
            lambda: alice.revoke_tokens_of("bob"),
            lambda: alice.revoke_pilot(1),
            lambda: alice.rotate_token_key(grace=0),
        ):
            with pytest.raises(Forbidden):
                forbidden()
        alice.revoke_token(alices.id)
    assert not is_accepted(instance, alices.token)
    assert is_accepted(instance, bobs.token)
    for words in ((), ("1", "--user", "bob"), ("--pilot", "-1"), ("x",)):
        assert instance.cli("token", "revoke", *words).returncode == 2
    assert instance.cli("token", "revoke", "987654").returncode == 4
    with pytest.raises(InvalidInput):
        owner.revoke_token(-1)


def test_a_rotated_key_survives_kill_9_and_the_owner_is_not_locked_out(instance: Instance) -> None:
    owner = instance.client()
    old = owner.create_token("alice").token
    done = instance.cli("token", "rotate-key", "--grace", "1h")
    assert done.returncode == 0, done.stderr
    instance.kill_server()
    instance.start()
    new = owner.create_token("alice").token
    assert is_accepted(instance, old)
    assert is_accepted(instance, new)
    assert instance.cli("token", "rotate-key", "--grace", "0").returncode == 0
    assert not is_accepted(instance, old)
    assert not is_accepted(instance, new)
    assert instance.cli("whoami").returncode == 0
    made = instance.cli("token", "create", "alice")
    assert is_accepted(instance, made.stdout.strip())
    assert [text.partition(";")[0].rpartition(": ")[2] for text in events(instance, "token-key")] == [
        "key 1",
        "key 2",
    ]


def test_a_pilot_whose_token_is_revoked_ends_and_its_job_runs_elsewhere(
    instance: Instance, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    client = instance.client()
    job = client.submit(
        {"executable": "sh", "arguments": ["-c", f"while [ ! -e {end} ]; do sleep 0.05; done"]}
    ).first
    instance.reaches(job, "Running")
    first = client.job(job).job.pilot
    assert first is not None
    assert instance.cli("token", "revoke", "--pilot", str(first)).returncode == 0
    second = until(lambda: (client.job(job).job.pilot or first) != first and client.job(job).job.pilot)
    end.touch()
    assert instance.reaches(job, "Done").pilot == second
    assert instance.cli("token", "revoke", "--pilot", str(first)).returncode == 5


def test_other_servers_of_the_pool_follow_within_seconds(tmp_path: Path) -> None:
    database = server().empty()
    pair = Pair(tmp_path, server().tcp(database))
    try:
        pair.start()
        tokens = [pair.first.client().create_token("alice") for _ in range(3)]
        assert all(is_accepted(pair.second, each.token) for each in tokens)
        pair.first.client().revoke_token(tokens[0].id)
        until(lambda: not is_accepted(pair.second, tokens[0].token), what="the revocation")
        assert is_accepted(pair.second, tokens[1].token)
        pair.second.client().rotate_token_key(grace=0)
        until(lambda: not is_accepted(pair.first, tokens[1].token), what="the rotation")
        for each in (pair.first, pair.second):
            assert each.cli("whoami").returncode == 0
    finally:
        pair.close()
        server().drop(database)
