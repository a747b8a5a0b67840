"""The tables `storage` of the policy: addresses, names of places, and mistakes that are refused."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import Policy, parse

POLICY = """
[groups.users]
[users.ada]
groups = ["users"]
[sites.here]
storage = ["results", "/data/pilotage", "eos"]
[sites.there]
[storage.results]
type = "s3"
[storage.results.s3]
endpoint = "https://S3.example.org:9000/"
bucket = "data"
prefix = "out/put"
[storage.eos]
type = "command"
sites = ["there"]
[storage.eos.command]
url = "root://eos.example.org//eos/pilotage/"
put = "xrdcp --force {file} {url}"
get = "xrdcp {url} {file}"
"""


def changed(before: str, after: str) -> str:
    assert before in POLICY
    return POLICY.replace(before, after)


def test_a_site_names_folders_and_tables() -> None:
    policy = parse(POLICY)
    assert policy.storage_of("here", "") == (
        "s3://s3.example.org:9000/data/out/put",
        "/data/pilotage",
        "root://eos.example.org//eos/pilotage",
    )


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://s3.example.org:9000/data/out/put/a/b", "results"),
        ("s3://s3.example.org:9000/data/out/put", "results"),
        ("s3://s3.example.org:9000/data/out/putty/a", None),
        ("s3://other.example.org/data/out/put/a", None),
        ("root://eos.example.org//eos/pilotage/a", "eos"),
        ("/data/pilotage/a", None),
    ],
)
def test_the_table_with_a_file(url: str, name: str | None) -> None:
    found = parse(POLICY).storage_with(url)
    assert (found and found[0]) == name


def test_the_longest_address_has_a_file() -> None:
    more = '[storage.part]\ntype = "s3"\ns3 = { endpoint = "https://s3.example.org:9000", bucket = "data" }\n'
    policy: Policy = parse(POLICY + more)
    for path, name in (("out/put/a", "results"), ("other", "part")):
        found = policy.storage_with(f"s3://s3.example.org:9000/data/{path}")
        assert found is not None
        assert found[0] == name


def test_the_sites_that_can_read() -> None:
    policy = parse(POLICY)
    assert policy.storage["results"].readers("here") == ("*",)
    assert policy.storage["eos"].readers("here") == ("here", "there"), "a site reads what it has written"


@pytest.mark.parametrize(
    ("text", "reason", "field"),
    [
        (changed('"results",', '"result",'), "cannot be a storage place", "sites.here.storage"),
        (changed("https://S3.example.org:9000/", "s3.example.org"), "address", "storage.results.s3.endpoint"),
        (changed("https://S3.example.org:9000/", "https://a:b@c"), "address", "storage.results.s3.endpoint"),
        (changed('bucket = "data"', 'bucket = "Da/ta"'), "bucket", "storage.results.s3.bucket"),
        (changed('bucket = "data"', ""), "bucket", "storage.results.s3.bucket"),
        (changed("out/put", "../put"), "folder", "storage.results.s3.prefix"),
        (changed("out/put", "/put"), "folder", "storage.results.s3.prefix"),
        (changed('["there"]', '["nowhere"]'), "no site nowhere", "storage.eos.sites"),
        (changed("root://eos", "s3://eos"), "address", "storage.eos.command.url"),
        (changed("root://eos.example.org//eos/pilotage/", "/eos"), "address", "storage.eos.command.url"),
        (changed("xrdcp {url} {file}", "xrdcp {url}"), "{file} is missing", "storage.eos.command.get"),
        (changed("xrdcp {url} {file}", "{file} {url}"), "program", "storage.eos.command.get"),
        (changed("xrdcp {url} {file}", "xrdcp '{url} {file}"), "words", "storage.eos.command.get"),
        (changed('get = "xrdcp {url} {file}"', ""), "cannot be compared", "storage.eos.command.checksum"),
        (changed('put = "xrdcp --force {file} {url}"', ""), "missing", "storage.eos.command.put"),
        (changed("[storage.eos]", '[storage."e s"]'), "name", "storage"),
    ],
)
def test_mistakes_are_refused_with_their_key(text: str, reason: str, field: str) -> None:
    if '"e s"]' in text:
        text = text.replace("[storage.eos.command]", '[storage."e s".command]').replace(', "eos"]', "]")
    with pytest.raises(InvalidInput, match=reason) as refused:
        parse(text)
    assert str(refused.value.field).startswith(field)


def test_two_tables_of_one_address_are_refused() -> None:
    more = POLICY[POLICY.index("[storage.eos]") :].replace("storage.eos", "storage.again")
    with pytest.raises(InvalidInput, match="has the address of storage eos"):
        parse(POLICY + more)
