"""DIRAC's own cases for job descriptions, and where Pilotage answers otherwise on purpose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parsers import parse_yaml_mapping
from tests.conformance.recorded import dirac_suites

SUITE = "job-description/model"
NAMES = {
    "cpuTime": "cpu_time",
    "priority": "user_priority",
    "logLevel": "log_level",
    "jobType": "job_type",
    "inputSandbox": "input_sandbox",
}
# (field, value as JSON): why Pilotage takes what DIRAC refuses, or refuses what DIRAC takes.
DELIBERATE = {
    ("cpuTime", "1"): "short jobs are fine: they wait in the lowest CPU bucket",
    ("cpuTime", "100000000"): "above the last bucket a job is taken, with a warning at submission",
    ("jobType", '"Production"'): "the types allowed are policy, which the server checks at submission",
    ("inputSandbox", '["SB:/file1", "LFN:/file2"]'): "nothing would move files from there yet: refused",
}


def cases() -> dict[str, dict[str, Any]]:
    found = dirac_suites()[SUITE]["cases"]
    return {case["field"] + ("/none valid" if "validSites" in case else ""): case for case in found}


CASES = cases()


def described(**fields: Any) -> JobDescription:
    return parse_yaml_mapping({"executable": "x", **fields}).description


def accepted(field: str, value: Any) -> bool:
    try:
        described(**{NAMES[field]: value})
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize("field", sorted(NAMES))
def test_values(field: str) -> None:
    case = CASES[field]
    met = set()
    for expected, values in ((True, case["valid"]), (False, case["invalid"])):
        for value in values:
            key = (field, json.dumps(value))
            met.add(key)
            assert accepted(field, value) is (expected if key not in DELIBERATE else not expected), key
    assert {key for key in DELIBERATE if key[0] == field} <= met


def test_log_level_is_folded() -> None:
    assert described(log_level="debug").log_level == "DEBUG"


def test_sites_and_banned_sites() -> None:
    for case in CASES["sites+bannedSites"]["cases"]:
        fields = {"sites": case["sites"], "banned_sites": case["bannedSites"]}
        if case.get("expected") == "rejected":
            with pytest.raises(InvalidInput):
                described(**fields)
            continue
        found = described(**fields)
        assert list(found.sites) == case["outSites"]
        assert list(found.banned_sites) == case["outBanned"]


def test_sites_are_checked_against_the_policy_by_the_server() -> None:
    # On purpose: a description alone cannot know which sites there are.
    case = CASES["sites/none valid"]
    assert case["expected"] == "rejected"
    assert described(sites=case["sites"]).sites == tuple(case["sites"])


def test_input_data_is_refused() -> None:
    # On purpose, DIRAC's valid cases too: nothing would be moved, and silence would promise it.
    for value in (*(case["in"] for case in CASES["inputData"]["valid"]), *CASES["inputData"]["invalid"]):
        with pytest.raises(InvalidInput, match="not supported yet"):
            described(inputData=value)


def test_processors_are_numbers_not_tags() -> None:
    # On purpose: DIRAC makes tags of them (4Processors, MultiProcessor); here they are matched as numbers.
    assert "nProcessors" in CASES["processors"]["rule"]
    found = described(processors=4, max_processors=4)
    assert (found.processors, found.max_processors, found.required_tags) == (4, 4, ())


def test_no_case_is_left_out() -> None:
    assert set(CASES) == {*NAMES, "inputData", "sites+bannedSites", "sites/none valid", "processors"}
