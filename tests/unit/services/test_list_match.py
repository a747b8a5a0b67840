"""List-match over a real pool: verdicts, sub-expressions, residuals, and the same words from `why`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pilotage.core import policy as policies
from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.forwarding import forwarding_of, hook_call
from pilotage.services.director.list_match import ce_ad_report, list_match
from pilotage.services.policy.apply import apply_policy
from pilotage.wire.matchmaking import CeMatch, MatchReport
from tests.unit.services.bench import NODE, POLICY, Bench

DOCUMENT = (
    "other.gluehostbenchmarksi00 > 500 ? other.gluecepolicymaxcputime > 1000"
    " : other.gluecepolicymaxcputime > 2000"
)
SITE = """
[sites.farm]
[ces.short]
site = "farm"
type = "slurm"
owners = "any"
[ces.middle]
site = "farm"
type = "slurm"
owners = "any"
[ces.week]
site = "farm"
type = "slurm"
owners = "any"
[ces.middle.forward]
GlueHostBenchmarkSI00 = "feature si00_{}"
"""
HOSTS = (
    HostClass(3, {"GlueHostBenchmarkSI00": 400}, ("n1", "n2", "n3")),
    HostClass(2, {"GlueHostBenchmarkSI00": 600}, ("n4", "n5")),
)


def information(limit: int, hosts: tuple[HostClass, ...] = HOSTS, **more: Value) -> CeInformation:
    return CeInformation({"GlueCEPolicyMaxCPUTime": limit, **more}, hosts, updated=1000.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, POLICY.replace("[groups.physics]", '[groups.physics]\nvo = "EGEE"') + SITE)
    for name, limit in (("short", 500), ("middle", 1500), ("week", 3000)):
        publish(bench, name, information(limit))
        bench.do(lambda tx, name=name: tx.put(bench.pool.ces.nodes, name, NODE))
    yield bench
    bench.close()


def publish(bench: Bench, name: str, facts: CeInformation) -> None:
    bench.do(lambda tx: tx.put(bench.pool.ces.information, name, facts))


def matched(bench: Bench, ce: str = "", limit: int = 10, **needs: Any) -> MatchReport:
    identity = QueueIdentity("alice", "physics", **{"requirements": DOCUMENT, **needs})
    rows = summaries(bench.pool.policy, bench.connection, bench.now)
    return list_match(bench.pool, identity, rows, bench.now, ce=ce, limit=limit)


def by_name(report: MatchReport) -> Mapping[str, CeMatch]:
    return {answer.ce: answer for answer in report.ces}


def texts(answer: CeMatch) -> list[str]:
    return [refusal.text for refusal in answer.refusals]


def test_the_conditional_of_the_document_at_three_limits(bench: Bench) -> None:
    answers = by_name(matched(bench))
    assert {
        name: answer.verdict for name, answer in answers.items() if name in ("short", "middle", "week")
    } == {
        "short": "impossible",
        "middle": "yes",
        "week": "yes",
    }
    assert answers["middle"].residual == "other.GlueHostBenchmarkSI00 > 500"
    assert (answers["middle"].fitting_classes, answers["middle"].host_classes) == (1, 2)
    assert (answers["week"].residual, answers["week"].fitting_classes) == ("true", 2)
    assert texts(answers["short"])[0].startswith(
        "other.GlueCEPolicyMaxCPUTime > 1000 is false (GlueCEPolicyMaxCPUTime = 500)"
    )


def test_the_flags_are_the_ones_of_the_director(bench: Bench) -> None:
    answers = by_name(matched(bench))
    assert answers["middle"].flags == ["--constraint=si00_600"]
    assert answers["middle"].unmapped == ""
    assert (answers["week"].flags, answers["short"].flags) == ([], [])
    answer = by_name(matched(bench, requirements="other.gluehostprocessorclockspeed > 3"))["middle"]
    assert (answer.flags, answer.unmapped) == ([], "other.GlueHostProcessorClockSpeed > 3")


def test_a_hook_decides_further_and_its_environment_is_shown(bench: Bench) -> None:
    """The environment is the one of the submission."""
    text = bench.policy_text.replace("[ces.middle]\n", '[ces.middle]\nforward_hook = "/etc/farm-hook"\n')
    policy = policies.parse(text)
    bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="a", reason="", now=bench.now))
    answers = by_name(matched(bench))
    assert (answers["middle"].hook, answers["week"].hook, answers["short"].hook) == ("/etc/farm-hook", "", "")
    shown = answers["middle"].hook_environment
    assert shown["PILOTAGE_CE"] == "middle"
    assert shown["PILOTAGE_FLAGS"] == "--constraint=si00_600"
    assert shown["GlueHostBenchmarkSI00_Min"] == "501"
    identity = QueueIdentity("alice", "physics", requirements=DOCUMENT)
    forwarding = forwarding_of(bench.pool, "middle", identity, bench.now)
    call = hook_call(bench.pool.policy, policy.ces["middle"], "middle", identity, forwarding)
    assert call is not None
    assert shown == dict(call.environment)
    # The hook runs for every queue: it may decide by owner or size, where no condition over hosts is left.
    plain = by_name(matched(bench, requirements="true"))["middle"]
    assert plain.hook == "/etc/farm-hook"
    told = plain.hook_environment
    assert (told["PILOTAGE_REQUIREMENTS"], told["PILOTAGE_COMPLETE"]) == ("true", "1")
    assert by_name(matched(bench, requirements="false"))["middle"].hook == ""


def test_hosts_that_all_refuse_are_named_with_their_values(bench: Bench) -> None:
    answer = by_name(matched(bench, ce="middle", requirements="other.gluehostbenchmarksi00 > 700"))["middle"]
    assert answer.verdict == "no hosts"
    assert texts(answer) == [
        "other.GlueHostBenchmarkSI00 > 700 is false (GlueHostBenchmarkSI00 = 400) on 1 of 2 classes of hosts",
        "other.GlueHostBenchmarkSI00 > 700 is false (GlueHostBenchmarkSI00 = 600) on 1 of 2 classes of hosts",
    ]


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({"GlueCEStateStatus": "Draining"}, "closed"),
        ({"GlueCEStateTotalJobs": 9, "GlueCEPolicyMaxTotalJobs": 9}, "full"),
        ({"GlueCEAccessControlBaseRule": ("VO:atlas",)}, "refused"),
        ({"GlueCEAccessControlBaseRule": ("VO:EGEE",)}, "yes"),
    ],
)
def test_states_and_rights_of_a_ce(bench: Bench, facts: dict[str, Value], verdict: str) -> None:
    publish(bench, "week", information(3000, HOSTS, **facts))
    answer = by_name(matched(bench))["week"]
    assert answer.verdict == verdict
    assert bool(answer.reason) is (verdict != "yes")
    if verdict == "refused":
        assert [refusal.side for refusal in answer.refusals] == ["ce", "ce"]
        assert 'VirtualOrganisation = "EGEE"' in texts(answer)[1]


def test_facts_that_have_expired_are_unknown(bench: Bench) -> None:
    publish(bench, "week", information(3000, GlueCEStateStatus="Draining"))
    assert by_name(matched(bench))["week"].verdict == "closed"
    bench.now += 301
    answer = by_name(matched(bench))["week"]
    assert (answer.verdict, answer.is_expired) == ("yes", True)


def test_another_condition_comes_first(bench: Bench) -> None:
    answer = by_name(matched(bench, sites=frozenset({"here"})))["week"]
    assert (answer.verdict, answer.reason) == ("unfit", "the job is restricted to other sites")


def test_ces_that_fit_come_first_and_the_counts_are_of_all(bench: Bench) -> None:
    report = matched(bench, limit=2)
    assert [answer.verdict for answer in report.ces] == ["yes", "yes"]
    assert report.verdicts["impossible"] == 1
    assert sum(report.verdicts.values()) == len(bench.pool.policy.ces)


def test_a_question_that_is_too_large_is_answered_for_the_first_ces_and_for_single_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotage.services.director.list_match.MOST_WORK", 20)
    report = matched(bench)
    asked = [answer for answer in report.ces if answer.verdict != "unasked"]
    assert len(asked) == 1
    assert report.verdicts["unasked"] == len(bench.pool.policy.ces) - 1
    assert by_name(matched(bench, ce="week"))["week"].verdict == "yes"


def test_a_name_that_resembles_one_of_the_schema_is_reported(bench: Bench) -> None:
    report = matched(bench, requirements="other.gluehostbenchmarksi000 > 5")
    assert report.warnings == [
        "Requirements name gluehostbenchmarksi000, which the GLUE schema does not have:"
        " is GlueHostBenchmarkSI00 meant?"
    ]
    assert matched(bench).warnings == []


def test_the_ad_of_a_ce_has_its_classes_and_its_age(bench: Bench) -> None:
    report = ce_ad_report(bench.pool, "middle", bench.now)
    assert [(row.count, row.attributes, row.hosts) for row in report.hosts] == [
        (3, {"GlueHostBenchmarkSI00": "400"}, ["n1", "n2", "n3"]),
        (2, {"GlueHostBenchmarkSI00": "600"}, ["n4", "n5"]),
    ]
    assert (report.updated, report.expires, report.is_expired) == (1000.0, 1300.0, False)
    assert "GlueCEPolicyMaxCPUTime = 1500" in report.ad
    assert "SI00" not in report.fixed
    assert ce_ad_report(bench.pool, "middle", 1301.0).is_expired
