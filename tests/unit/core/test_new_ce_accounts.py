"""The accounts that a new CE may charge."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.new_ce import NodeSize, PartitionFacts
from pilotage.core.policy.new_ce_accounts import AccountFacts, allowed_partitions, choose_account

PARTITIONS = [
    PartitionFacts(name, False, True, None, (NodeSize(1, 8, 8000),)) for name in ("short", "long", "gpu")
]
DEFAULT = AccountFacts("physics", "", ("normal",), default=True)
THEORY = AccountFacts("theory", "long", ("normal", "night"), default=False)
OTHER = AccountFacts("other", "long", (), default=False)


def names(accounts: list[AccountFacts], account: str = "") -> list[str]:
    return [partition.name for partition in allowed_partitions(accounts, PARTITIONS, account)]


def test_only_the_partitions_of_the_account_are_offered() -> None:
    assert names([]) == names([DEFAULT, THEORY]) == ["short", "long", "gpu"]
    assert names([DEFAULT, THEORY], "theory") == ["long"]
    assert names([THEORY, OTHER]) == ["long"]
    with pytest.raises(InvalidInput, match="may not charge account nosuch") as refused:
        names([DEFAULT, THEORY], "nosuch")
    assert refused.value.hint == "accounts: physics, theory (partition long)"


def test_the_default_account_needs_no_name() -> None:
    assert choose_account([], "short", {"account": "any"}) == {"account": "any"}
    assert choose_account([DEFAULT, THEORY], "long", {}) == {}
    assert choose_account([DEFAULT, THEORY], "long", {"account": "theory"}) == {"account": "theory"}


def test_the_only_account_with_the_qos_is_named() -> None:
    assert choose_account([DEFAULT, THEORY], "long", {"qos": "night"}) == {
        "qos": "night",
        "account": "theory",
    }
    assert choose_account([THEORY], "long", {}) == {"account": "theory"}


@pytest.mark.parametrize(
    ("accounts", "partition", "options", "message", "hint"),
    [
        (
            [THEORY],
            "short",
            {},
            "no account of the server's user may use partition short",
            "theory (partition long)",
        ),
        ([DEFAULT, THEORY], "short", {"account": "theory"}, "theory may not use partition short", "physics"),
        ([DEFAULT, THEORY], "short", {"qos": "night"}, "has no QOS night", "QOS: normal"),
        ([THEORY, OTHER], "long", {}, "default account may not", "--account: other, theory"),
        ([DEFAULT], "short", {"account": "nosuch"}, "may not charge account nosuch", "physics"),
    ],
)
def test_a_wrong_account_partition_or_qos_is_told_with_the_right_ones(
    accounts: list[AccountFacts], partition: str, options: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        choose_account(accounts, partition, options)
    assert hint in refused.value.hint
