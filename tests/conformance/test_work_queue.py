"""WMCore's own cases for elements, sites, the pull and start policies, and where Pilotage answers otherwise on purpose.

Deliberately different, as the recorded cases require: WQE-02 (the order of keys changes no identity), SITE-02
(several pile-up data sets intersect) and SITE-03 (the banned list holds whatever is trusted). MATCH-09: an element
without a team goes to any agent in WMCore; here a request without a team is not taken in.
MATCH-09, MATCH-10, MATCH-11 and WQE-03 need a store: tests/unit/services/workqueue has their tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from pilotage.core.datasets.facts import ELSEWHERE
from pilotage.core.errors import InvalidInput
from pilotage.core.requests.start_policies import START_POLICIES
from pilotage.core.requests.start_policy import (
    Generator,
    InputBlock,
    PlannedElement,
    SliceRule,
    StepInput,
)
from pilotage.core.workqueue.eligibility import Locations, SiteRules, eligible_sites
from pilotage.core.workqueue.identity import element_digest
from pilotage.core.workqueue.pull import Candidate, CandidateGroup, SiteRoom, admit
from tests.conformance.recorded import wmcore_scenarios

HERE = (
    *("WQE-01", "WQE-02", "SITE-01", "SITE-02", "SITE-03", "MATCH-02", "MATCH-03", "MATCH-04", "MATCH-05"),
    *("SPLIT-MC-02", "SPLIT-MC-04", "SPLIT-BLK-01"),
)
WITH_A_STORE = ("WQE-03", "MATCH-09", "MATCH-10", "MATCH-11")
SCALE = 10
"""WMCore's priorities may be fractions; the smallest of the cases is 0.1."""


CASES = wmcore_scenarios()


def digest(element: Mapping[str, Any]) -> str:
    return element_digest(1, 0, [element["request"], element["task"], *element["inputs"]], {})


def test_identity_ignores_locations() -> None:
    case = CASES["WQE-01"]
    digests = [digest(element) for element in case["given"]["elements"]]
    for one, other in case["expect"]["equal"]:
        assert digests[one] == digests[other]
    for one, other in case["expect"]["distinct"]:
        assert digests[one] != digests[other]


def test_identity_ignores_the_order_of_keys() -> None:
    case = CASES["WQE-02"]
    assert case["expect"]["required_of_new_system"] == "EQUAL ids"
    assert len({element_digest(1, 0, ["b"], mask) for mask in case["given"]["masks"]}) == 1


def eligible(element: Mapping[str, Any]) -> list[str]:
    def places(name: str) -> tuple[frozenset[str], ...]:
        """The reference has no paths: data that is at any site has an address for the others."""
        return tuple(
            frozenset({*sites, ELSEWHERE} if sites else ()) for sites in element.get(name, {}).values()
        )

    rules = SiteRules(
        frozenset(element["whitelist"]),
        frozenset(element.get("blacklist", ())),
        element.get("trust_input", False),
        element.get("trust_pileup", False),
    )
    return sorted(
        eligible_sites("ABCD", rules, Locations(places("inputs"), places("parent"), places("pileup")))
    )


def test_eligible_sites() -> None:
    case = CASES["SITE-01"]
    found = {named["name"]: eligible(named["element"]) for named in case["given"]["cases"]}
    assert found == case["expect"]


@pytest.mark.parametrize("name", ["SITE-02", "SITE-03"])
def test_eligible_sites_where_the_reference_is_wrong(name: str) -> None:
    case = CASES[name]
    assert eligible(case["given"]) == case["expect"]["required_of_new_system"]


def elements_of(given: Any) -> list[dict[str, Any]]:
    """The elements of a case; two cases tell them in words."""
    if isinstance(given, str):
        assert given == "e0..e4 (oldest first), 40 jobs each, priority 5, site S"
        return [{"id": f"e{place}", "priority": 5, "jobs": 40} for place in range(5)]
    several = [
        {**element, "id": f"hi{place}"} if element["id"] == "hi1..3" else element
        for element in given
        for place in (range(1, 4) if element["id"] == "hi1..3" else [0])
    ]
    return sorted(several, key=lambda element: element.get("created", 0))


@pytest.mark.parametrize("name", ["MATCH-02", "MATCH-03", "MATCH-04", "MATCH-05"])
def test_admission(name: str) -> None:
    case = CASES[name]
    given = case["given"]
    elements = elements_of(given["elements"])
    groups: dict[int, CandidateGroup] = {}
    waiting: dict[int, list[Candidate]] = {}
    for number, element in enumerate(elements):
        priority = round(element["priority"] * SCALE)
        waiting.setdefault(priority, []).append(Candidate(number, element["jobs"]))
    for priority, candidates in waiting.items():
        groups[priority] = CandidateGroup(priority, frozenset("S"), candidates[0].id, iter(candidates))
    counts = {
        site: {round(float(level) * SCALE): jobs for level, jobs in levels.items()}
        for site, levels in given["counts"].items()
    }
    room = SiteRoom(given["threshold"], counts)
    admitted = admit(groups.values(), room, 200, Random(1))
    assert [elements[admission.element]["id"] for admission in admitted] == case["expect"]["accepted"]
    expected = {
        site: {round(float(level) * SCALE): jobs for level, jobs in levels.items()}
        for site, levels in case["expect"]["counts"].items()
    }
    assert room.jobs == expected


def told(element: PlannedElement) -> dict[str, int]:
    mask = element.mask
    assert mask is not None
    return {
        "jobs": element.jobs,
        "events": element.events,
        "lumis": mask.lumis,
        "FirstEvent": mask.first_event,
        "LastEvent": mask.first_event + mask.events - 1,
        "FirstLumi": mask.first_lumi,
        "LastLumi": mask.first_lumi + mask.lumis - 1,
    }


def generated(given: Mapping[str, Any], **changes: int) -> list[dict[str, int]]:
    generator = Generator(
        given["total_events"],
        given["events_per_job"],
        events_per_lumi=given["events_per_lumi"],
        max_jobs=changes.pop("max_jobs", 0) or given["max_jobs_per_element"],
        **changes,
    )
    step = StepInput(generator=generator, limit=10**6)
    return [told(element) for element in START_POLICIES["MonteCarlo"].plan(step).elements]


def test_events_to_generate() -> None:
    case = CASES["SPLIT-MC-02"]
    plain, expected = generated(case["given"]), case["expect"]["plain"]
    assert (len(plain), plain[0], plain[1], plain[-1]) == (
        *(expected["n"], expected["first"], expected["second"], expected["last"]),
    )
    shifted, expected = generated(case["given"], first_event=50, first_lumi=100), case["expect"]["shifted"]
    assert (len(shifted), shifted[0], shifted[-1]) == (expected["n"], expected["first"], expected["last"])


def test_lumis_of_an_element() -> None:
    case = CASES["SPLIT-MC-04"]
    for most in case["given"]["max_lumis_per_element"]:
        expected = case["expect"][str(most)]
        if isinstance(expected, dict):
            with pytest.raises(InvalidInput):
                generated(case["given"], max_lumis=most)
        else:
            assert generated(case["given"], max_lumis=most) == expected


def test_blocks() -> None:
    case = CASES["SPLIT-BLK-01"]
    expect = case["expect"]
    blocks = [
        # A block counts the files that the catalogue knows, here Rucio's.
        InputBlock(
            number,
            block["name"],
            block["rucio_files"],
            block["events"],
            0,
            2,
            block["lumis"],
            frozenset(block.get("runs", ())),
        )
        for number, block in enumerate(case["given"]["blocks"], 1)
    ]
    slices = SliceRule(case["given"]["slice"]["type"], case["given"]["slice"]["size"])

    def planned(**changes: Any) -> tuple[dict[str, dict[str, int]], list[str], list[str]]:
        step = StepInput(slices, **{"blocks": blocks, **changes})
        plan = START_POLICIES["Block"].plan(step)
        elements = {f"#{element.names[0].split('#')[1]}": {"jobs": element.jobs} for element in plan.elements}
        return elements, [_short(name) for name in plan.bad], [_short(name) for name in plan.rejected]

    plain = expect["plain"]
    assert planned() == (plain["elements"], plain["bad"], plain["rejected"])
    elements, _, rejected = planned(runs=frozenset([1]))
    assert (list(elements), rejected) == (
        expect["run whitelist [1]"]["elements"],
        expect["run whitelist [1]"]["rejected"],
    )
    elements, _, rejected = planned(block_bans=frozenset(["/a/b/C#1"]))
    # WMCore lists no banned block as rejected; here each block that is left out has its reason.
    assert (list(elements), rejected) == (expect["block blacklist #1"]["elements"], ["#1"])
    # Blocks that have elements already are not read again: the step has a cursor.
    assert planned(blocks=[])[0] == {}
    assert expect["continuous"]["elements"] == []


def _short(name: str) -> str:
    return f"#{name.split('#')[1]}"


def test_no_case_is_left_out() -> None:
    ours = ("WQE", "SITE", "MATCH", "SPLIT")
    assert {name for name in CASES if name.startswith(ours)} == {*HERE, *WITH_A_STORE}
