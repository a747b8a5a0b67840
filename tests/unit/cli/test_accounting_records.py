"""Records of APEL and AUDITOR: units, names, and that their sums are those of the attempts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.cli.accounting_records import (
    APEL_HEADER,
    Benchmark,
    apel_message,
    auditor_records,
    parse_benchmark,
)
from pilotage.core.errors import InvalidInput
from pilotage.wire.accounting import AccountedAttempt

NOVEMBER = 1793500000.0
"""2026-11-01 in UTC."""
SCORE = Benchmark("hepscore23", 10.0)
DN = "/DC=org/DC=cilogon/CN=Ada (Lovelace)"


def attempt(**facts: Any) -> AccountedAttempt:
    usual: dict[str, Any] = {
        "job": 7, "epoch": 1, "owner": "ada", "group": "lab", "site": "T2", "ce": "grid", "host": "node1",
        "started": NOVEMBER, "ended": NOVEMBER + 100, "outcome": "applied", "exit_code": 0, "wall": 100.0,
        "cpu": 350.0, "processors": 4, "cpu_power": 1.5, "max_rss": 2000, "vo": "atlas", "subject": DN,
    }  # fmt: skip
    return AccountedAttempt(**{**usual, **facts})


def records(lines: list[str]) -> list[dict[str, str]]:
    """The records of a message, as a reader of the form takes them."""
    assert lines[0] == APEL_HEADER
    found: list[dict[str, str]] = [{}]
    for line in lines[1:]:
        if line == "%%":
            found.append({})
        else:
            name, colon, value = line.partition(": ")
            assert colon
            found[-1][name] = value
    assert found.pop() == {}, "the last record has its end"
    return found


def test_a_summary_of_apel_has_wall_time_apart_from_cores() -> None:
    lines = list(apel_message([attempt(), attempt(job=8, ended=NOVEMBER + 300)], SCORE, "server.org"))
    assert records(lines) == [
        {
            "Site": "T2", "Month": "11", "Year": "2026", "GlobalUserName": DN, "VO": "atlas",
            "SubmitHost": "server.org/grid", "Infrastructure": "grid", "NodeCount": "1", "Processors": "4",
            "EarliestEndTime": str(int(NOVEMBER) + 100), "LatestEndTime": str(int(NOVEMBER) + 300),
            "WallDuration": "200", "CpuDuration": "700",
            "NormalisedWallDuration": "{hepscore23: 3000}", "NormalisedCpuDuration": "{hepscore23: 10500}",
            "NumberOfJobs": "2",
        }
    ]  # fmt: skip


def test_users_without_a_subject_and_groups_without_a_vo_have_their_own_names() -> None:
    [record] = records(list(apel_message([attempt(vo="", subject="", ce="")], SCORE, "s")))
    assert (record["GlobalUserName"], record["VO"], record["SubmitHost"]) == ("ada", "lab", "s")


def test_no_name_begins_a_field_of_its_own() -> None:
    [record] = records(list(apel_message([attempt(site="a\nNumberOfJobs: 9\u2028%%")], SCORE, "s")))
    assert record["Site"] == "a NumberOfJobs: 9 %%"
    assert record["NumberOfJobs"] == "1"


@given(
    st.lists(
        st.builds(
            attempt,
            site=st.sampled_from(["a", "b"]),
            processors=st.sampled_from([1, 8]),
            ended=st.sampled_from([NOVEMBER, NOVEMBER + 40 * 86400]),
            wall=st.integers(0, 10**6).map(float),
            cpu=st.integers(0, 10**6).map(float),
        )
    )
)
def test_summaries_add_up_to_the_attempts(attempts: list[AccountedAttempt]) -> None:
    found = records(list(apel_message(attempts, SCORE, "s")))
    assert sum(int(record["NumberOfJobs"]) for record in found) == len(attempts)
    assert sum(int(record["WallDuration"]) for record in found) == sum(row.wall for row in attempts)
    assert sum(int(record["CpuDuration"]) for record in found) == sum(row.cpu for row in attempts)
    keys = [(record["Site"], record["Processors"], record["Month"], record["Year"]) for record in found]
    assert len(keys) == len(set(keys))


def test_a_record_of_auditor_has_amounts_and_no_refused_character() -> None:
    [record] = json.loads("".join(auditor_records([attempt(site="T2/<x>")], "abc", SCORE)))
    assert record["record_id"] == "pilotage-abc-7-1"
    assert record["start_time"] == "2026-11-01T02:26:40Z"
    assert record["stop_time"] == "2026-11-01T02:28:20Z"
    amounts = {component["name"]: component["amount"] for component in record["components"]}
    assert amounts == {"Cores": 4, "TotalCPU": 350, "Wall": 100, "MaxRSS": 2000}
    assert all(isinstance(amount, int) for amount in amounts.values())
    assert record["components"][0]["scores"] == [
        {"name": "reference-cores", "value": 1.5},
        {"name": "hepscore23", "value": 15.0},
    ]
    assert record["meta"]["user_id"] == ["%2FDC=org%2FDC=cilogon%2FCN=Ada %28Lovelace%29"]
    texts = [record["record_id"], *(value for values in record["meta"].values() for value in values)]
    assert not [text for text in texts if re.search(r'[/()"<>\\{}]', text)]


def test_records_of_auditor_are_one_list() -> None:
    assert json.loads("".join(auditor_records([], "abc", None))) == []
    several = json.loads("".join(auditor_records([attempt(), attempt(epoch=2)], "abc", None)))
    assert len({record["record_id"] for record in several}) == 2


@pytest.mark.parametrize(
    "text", ["", "15.3", "hepscore23=", "hepscore23=0", "hepscore23=-1", "a b=1", "x=1\ny=2"]
)
def test_a_bad_benchmark_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no benchmark"):
        parse_benchmark(text)
