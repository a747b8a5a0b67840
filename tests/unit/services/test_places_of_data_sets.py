"""Warnings about places of data sets that jobs cannot read."""

from __future__ import annotations

import pytest

from pilotage.core.datasets.facts import Replica
from pilotage.core.policy import parse
from pilotage.services.catalogue.visibility import unknown_storage_warnings

POLICY = parse(
    """
[groups.users]
[users.ada]
groups = ["users"]
[storage.results]
type = "s3"
[storage.results.s3]
endpoint = "https://s3.example.org"
bucket = "data"
"""
)


@pytest.mark.parametrize(
    "prefix",
    ["s3://s3.example.org/data", "s3://s3.example.org/data/raw", "/data/raw", "https://example.org/raw"],
)
def test_a_place_that_is_known_or_no_bucket_gives_no_warning(prefix: str) -> None:
    assert list(unknown_storage_warnings(POLICY, [Replica("*", prefix)])) == []


@pytest.mark.parametrize(
    "prefix", ["s3://elsewhere/data", "s3://s3.example.org/data2", "s3://s3.example.org"]
)
def test_a_bucket_of_no_table_gives_one_warning(prefix: str) -> None:
    places = [Replica("*", prefix), Replica("here", prefix)]
    [warning] = unknown_storage_warnings(POLICY, places)
    assert f"no table `storage` of the policy has {prefix}:" in warning
