"""The policy of a real server: kept, compared, rolled back to; what a change strands is told before and after."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from pilotage.wire.policy import LIST_VERSIONS
from pilotage.wire.queries import PageQuery
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("policy"), idle=1) as made:
        yield made


def test_versions_rollback_and_a_race_of_administrators(instance: Instance) -> None:
    client = instance.client()
    base = client.policy().version
    second = client.apply_policy(instance.policy + "# more\n", reason="more", expect=base)
    assert (second.version, second.reason) == (base + 1, "more")
    with pytest.raises(Conflict, match=f"version {base + 1} of the policy is in force, not {base}"):
        client.apply_policy(instance.policy, expect=base)
    with pytest.raises(Conflict):
        client.apply_policy(instance.policy, expect=base, dry_run=True)
    with pytest.raises(Conflict):
        client.roll_back_policy(base, expect=base)
    back = client.roll_back_policy(base, reason="oops")
    assert (back.version, back.text) == (base + 2, instance.policy)
    assert back.reason == f"rollback to version {base}: oops"
    versions = list(client.policy_versions())
    assert [one.version for one in versions] == list(range(base + 2, 0, -1))
    paged = list(client._pages(LIST_VERSIONS, PageQuery(), lambda answer: answer.versions, page=1))
    assert paged == versions
    assert client.policy_version(base + 1).text == instance.policy + "# more\n"
    for missing in (999, 2**63 - 1):
        with pytest.raises(NotFound):
            client.policy_version(missing)
    for impossible in (0, 2**63, 2**70):
        with pytest.raises(InvalidInput):
            client.policy_version(impossible)
    with pytest.raises(InvalidInput):
        list(client._pages(LIST_VERSIONS, PageQuery(), lambda answer: answer.versions, page=1001))


def test_only_administrators_see_and_change_it(instance: Instance) -> None:
    alice = instance.client("alice")
    for call in (
        alice.policy,
        lambda: list(alice.policy_versions()),
        lambda: alice.policy_version(1),
        lambda: alice.roll_back_policy(1),
    ):
        with pytest.raises(Forbidden):
            call()


def test_apply_tells_the_jobs_that_a_policy_strands_before_and_after(instance: Instance) -> None:
    client, alice = instance.client(), instance.client("alice")
    # The local CE serves the owner of the home only, so these wait.
    alice.submit({"executable": "/bin/true", "arguments": ["%s"]}, values=[1, 2, 3])
    client.submit({"executable": "/bin/sleep", "arguments": ["60"]})
    until(lambda: any(pilot.ended is None for pilot in client.pilots()), what="a pilot")
    without = instance.policy.replace('[users.alice]\ngroups = ["others"]\n', "")
    without = without.replace("[ces.local]", "[ces.other]")
    told = client.apply_policy(without, dry_run=True)
    assert [(one.group, one.owner, one.waiting) for one in told.stranded] == [("others", "alice", 3)]
    assert told.stranded_jobs == 3
    assert [(left.site, left.ce) for left in told.pilots_left] == [("here", "local")]
    assert told.properties
    version = told.version
    assert client.policy().version == version
    try:
        after = client.apply_policy(without)
        assert (after.stranded, after.pilots_left) == (told.stranded, told.pilots_left)
    finally:
        client.roll_back_policy(version)
    assert client.policy().stranded_jobs == 0
    client.kill(list(range(1, 5)))


def test_a_change_that_locks_its_maker_out_is_warned_of(instance: Instance) -> None:
    renamed = instance.policy.replace("[groups.home]", "[groups.staff]").replace('["home"]', '["staff"]')
    # A token that is not the home's own: the home's owner can always apply a policy.
    maker = instance.client(instance.client().whoami().user)
    told = maker.apply_policy(renamed, dry_run=True)
    assert any("your token" in warning for warning in told.warnings)
    assert not any("your token" in warning for warning in maker.policy().warnings)
    of_the_home = instance.client().apply_policy(renamed, dry_run=True)
    assert not any("your token" in warning for warning in of_the_home.warnings)


def test_a_version_that_is_not_valid_any_more_is_not_rolled_back_to(instance: Instance) -> None:
    client = instance.client()
    version = client.apply_policy(instance.policy + "# old\n").version
    client.apply_policy(instance.policy)
    instance.stop_server()
    with closing(sqlite3.connect(instance.home / "pilotage.db")) as connection:
        connection.execute("UPDATE policies SET text = '[jbos]' WHERE version = ?", (version,))
        connection.commit()
    instance.start()
    with pytest.raises(InvalidInput, match=rf"version {version} is not valid any more") as refused:
        instance.client().roll_back_policy(version)
    assert "line 1" in str(refused.value)
