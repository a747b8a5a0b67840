"""Documents of GOCDB and CRIC: the same sites, CEs and downtimes from both; nothing wrong passes unseen."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import InvalidInput
from pilotage.core.topology import Topology, read_documents
from tests.unit.core.topology import documents

HOSTS = {"ce1.north.example", "ce2.north.example"}


@pytest.mark.parametrize(
    ("sites", "services"),
    [
        (documents.GOCDB_SITES, documents.GOCDB_SERVICES),
        (documents.CRIC_SITES, documents.CRIC_SERVICES),
        (documents.GOCDB_SITES, documents.CRIC_SERVICES),
    ],
)
def test_both_tell_the_same(sites: str, services: str) -> None:
    topology = read_documents({"sites": sites, "services": services})
    assert list(topology.sites) == ["NORTH-T2", "OLD-T3"]
    assert topology.sites["NORTH-T2"].unusable == ""
    assert topology.sites["OLD-T3"].unusable in ("Closed", "DISABLED")
    assert {(ce.host, ce.type) for ce in topology.ces_of("NORTH-T2")} == {
        ("ce1.north.example", "arc"),
        ("ce2.north.example", "htcondor"),
    }
    assert any("old.north.example (CREAM-CE)" in reason for reason in topology.left_out)


def test_a_service_alone_makes_its_site_known() -> None:
    assert list(read_documents({"ces": documents.CRIC_SERVICES}).sites) == ["NORTH-T2"]


def test_records_that_cannot_be_used_are_named() -> None:
    assert "a site without a usable name" in read_documents({"x": documents.GOCDB_SITES}).left_out
    assert "the CE broken has no site or no host" in read_documents({"x": documents.CRIC_SERVICES}).left_out
    other = read_documents({"x": '{"number": 3, "text": "t", "none": null, "list": []}'}).left_out
    assert other[0] == "number: neither a site nor a CE nor a list of downtimes"
    assert len(other) == 4
    assert read_documents({"x": "<results><USER/></results>"}).left_out == [
        "<USER> is no site, service or downtime"
    ]


def test_an_outage_of_one_ce_leaves_a_site_with_another_up() -> None:
    one = documents.gocdb_downtime("ce1.north.example", 1000, 3000)
    two = documents.gocdb_downtime("ce2.north.example", 1500, 2000, kind="org.opensciencegrid.htcondorce")
    topology = read_documents({"ces": documents.GOCDB_SERVICES, "one": one})
    assert topology.outage("NORTH-T2", 1600) is None
    assert len(topology.outages("NORTH-T2", 1600)) == 1
    topology = read_documents({"ces": documents.GOCDB_SERVICES, "one": one, "two": two})
    outage = topology.outage("NORTH-T2", 1600)
    assert outage is not None
    assert outage.end == 2000, "from then on one CE is up"
    assert topology.outage("NORTH-T2", 1400) is None
    assert topology.outage("NORTH-T2", 2000) is None


def test_a_downtime_without_known_ces_is_one_of_the_whole_site() -> None:
    one = documents.gocdb_downtime("ce1.north.example", 1000, 3000)
    two = documents.gocdb_downtime("ce2.north.example", 1000, 4000)
    outage = read_documents({"one": one, "two": two}).outage("NORTH-T2", 1600)
    assert outage is not None
    assert outage.end == 4000


def test_nested_services_are_one_downtime() -> None:
    topology = read_documents({"ces": documents.GOCDB_SERVICES, "down": documents.GOCDB_NESTED_DOWNTIME})
    [downtime] = topology.downtimes
    assert downtime.hosts == HOSTS
    assert topology.outage("NORTH-T2", 1999) == downtime


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            documents.gocdb_downtime("h", 1, 2, severity="WARNING"),
            "downtime 7G0: severity WARNING changes nothing",
        ),
        (documents.gocdb_downtime("h", 1, 2).replace("<START_DATE>1", "<START_DATE>soon"), "START_DATE"),
        (documents.gocdb_downtime("h", 2, 1), "it ends before it begins"),
        (documents.gocdb_downtime("h", 1, 10**15), "its end is no time of this age"),
    ],
)
def test_downtimes_without_effect(text: str, reason: str) -> None:
    topology = read_documents({"x": text})
    assert reason in topology.left_out[0]
    assert not topology.downtimes


def test_downtimes_of_storage_are_none_of_ces() -> None:
    text = documents.gocdb_downtime("se.north.example", 1, 2, kind="SRM")
    assert read_documents({"x": text}) == Topology()


def test_downtimes_of_cric_are_in_utc() -> None:
    topology = read_documents({"x": documents.CRIC_DOWNTIMES})
    [downtime] = topology.downtimes
    assert (downtime.start, downtime.end) == (1795654800.0, 1795658400.0)
    assert downtime.reason == "new cooling"
    assert "severity WARNING" in topology.left_out[0]
    assert "start_time or end_time is not a time" in topology.left_out[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither XML of GOCDB nor JSON of CRIC"),
        ("hello", "neither XML of GOCDB nor JSON of CRIC"),
        ("<html><body>Sign in</body></html>", "no answer of GOCDB: it begins with <html>"),
        ("<results><SITE>", "no whole XML"),
        ("[1, 2]", "no records by name"),
        ('{"a": ', "no whole JSON"),
        ("[" * 100_000, "no whole JSON"),
        ('<!DOCTYPE r [<!ENTITY a "b">]><results>&a;</results>', "declares XML entities"),
    ],
)
def test_no_document_of_either(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as told:
        read_documents({"file.txt": text})
    assert str(told.value).startswith("file.txt: ")


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
KEYS = st.sampled_from(
    [
        "name",
        "endpoint",
        "flavour",
        "rcsite",
        "state",
        "type",
        "severity",
        "start_time",
        "end_time",
        "country",
    ]
)
RECORDS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), RECORDS, max_size=4))
def test_any_json_is_read_or_refused(records: dict[str, object]) -> None:
    read_documents({"x": json.dumps(records)})


TAGS = st.sampled_from(
    [
        *(
            "SITE",
            "SERVICE_ENDPOINT",
            "DOWNTIME",
            "SERVICES",
            "SERVICE",
            "HOSTNAME",
            "SITENAME",
            "SHORT_NAME",
        ),
        *("SERVICE_TYPE", "SEVERITY", "START_DATE", "END_DATE", "HOSTED_BY"),
    ]
)
TEXTS = st.sampled_from(["OUTAGE", "ARC-CE", "N", "12", "-1", "x", ""]) | st.text("ab<&> \u202e", max_size=5)
ELEMENTS = st.recursive(
    TEXTS.map(escape),
    lambda inner: st.tuples(TAGS, st.lists(inner, max_size=5)).map(
        lambda made: f"<{made[0]}>{''.join(made[1])}</{made[0]}>"
    ),
    max_leaves=20,
)


@given(st.lists(ELEMENTS, max_size=4))
def test_any_xml_is_read_or_refused(elements: list[str]) -> None:
    topology = read_documents({"x": f"<results>{''.join(elements)}</results>"})
    assert all(name and name.isprintable() for name in topology.sites)
