"""The broker: one pair and many pairs get equal answers, and pairs that an expression cannot tell apart share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.core.brokering.broker import Broker, CeTable
from pilotage.core.brokering.match import UNRANKED, CeFacts, CeVerdict, MatchedCe, match, rank_of
from pilotage.core.brokering.numbered_ads import SCOPES, dependencies_of
from pilotage.core.classads import ClassAd, Expression, ListOf, Literal, evaluate, parse_expression
from pilotage.core.classads.partial import Kind

CONDITIONAL = (
    "other.GlueHostBenchmarkSI00 > 500"
    " ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)
AUTHORIZATION = (
    "member(other.CertificateSubject, GlueCEAccessControlBaseRule)"
    ' || member(strcat("VO:", other.VirtualOrganisation), GlueCEAccessControlBaseRule)'
)
CLOSE_OUTPUT = "isUndefined(other.OutputSE) || member(other.OutputSE, GlueCESEBindGroupSEUniqueID)"
KINDS = {"gluehostbenchmarksi00": Kind.INTEGER, "gluehostmainmemoryramsize": Kind.INTEGER}


def ad(values: Mapping[str, Any], **expressions: str) -> ClassAd:
    attributes: list[tuple[str, Expression]] = [(name, literal(value)) for name, value in values.items()]
    attributes += [(name, parse_expression(text)) for name, text in expressions.items()]
    return ClassAd(tuple(attributes))


def literal(value: Any) -> Expression:
    return ListOf(tuple(map(Literal, value))) if isinstance(value, tuple) else Literal(value)


def ce(
    name: str, hosts: Sequence[int] = (), texts: Mapping[str, str] | None = None, **values: Any
) -> CeFacts:
    """`hosts`: the SI00 of each host class."""
    fixed = ad({"CEid": name, **values}, **(texts or {}))
    classes = tuple(
        ClassAd((*fixed.attributes, ("GlueHostBenchmarkSI00", Literal(power)))) for power in hosts
    )
    least = [("GlueHostBenchmarkSI00", Literal(min(hosts)))] if hosts else []
    return CeFacts(name, ClassAd((*fixed.attributes, *least)), fixed, classes)


def requester(requirements: str = "", **values: Any) -> ClassAd:
    return ad(values, **({"Requirements": requirements} if requirements else {}))


def ask(asking: ClassAd, *ces: CeFacts) -> list[MatchedCe]:
    broker = Broker(KINDS)
    table = CeTable([broker.numbered(facts) for facts in ces], 0.0)
    matches = broker.match(broker.requester(asking), table)
    return [matches.of(place) for place in range(len(ces))]


def verdicts(asking: ClassAd, *ces: CeFacts) -> list[CeVerdict]:
    by_broker = [answer.verdict for answer in ask(asking, *ces)]
    assert by_broker == [match(asking, facts, now=0.0, kinds=KINDS).verdict for facts in ces]
    return by_broker


def test_the_conditional_of_the_document() -> None:
    """500 s: never. 1500 s: on hosts above 500 SI00. 3000 s: everywhere."""
    ces = [ce(f"c{limit}", (400, 600), GlueCEPolicyMaxCPUTime=limit) for limit in (500, 1500, 3000)]
    answers = ask(requester(CONDITIONAL), *ces)
    assert [answer.verdict for answer in answers] == [CeVerdict.IMPOSSIBLE, CeVerdict.YES, CeVerdict.YES]
    assert [answer.host_classes for answer in answers] == [None, (1,), (0, 1)]
    assert [answer.residual for answer in answers] == [
        Literal(False),
        parse_expression("other.GlueHostBenchmarkSI00 > 500"),
        Literal(True),
    ]


def test_known_hosts_that_do_not_satisfy_it_are_no_hosts() -> None:
    slow = ce("slow", (400,), GlueCEPolicyMaxCPUTime=1500)
    unknown = ce("unknown", (), GlueCEPolicyMaxCPUTime=1500)
    assert verdicts(requester(CONDITIONAL), slow, unknown) == [CeVerdict.NO_HOSTS, CeVerdict.YES]


def test_parts_that_contradict_each_other_cannot_be_true() -> None:
    hosts = 'other.GlueHostBenchmarkSI00 > 500 && other.CEid != "x" && other.GlueHostBenchmarkSI00 < 400'
    assert verdicts(requester(hosts), ce("a")) == [CeVerdict.IMPOSSIBLE]


def test_a_number_counts_as_true_beside_others_and_not_alone() -> None:
    """The top of Requirements must be true; an operand of `&&` may be a number other than 0."""
    assert verdicts(requester("other.Ready"), ce("a", Ready=1), ce("b", Ready=True)) == [
        CeVerdict.IMPOSSIBLE,
        CeVerdict.YES,
    ]
    assert verdicts(requester('other.Ready && other.CEid != "x"'), ce("a", Ready=1), ce("b", Ready=0)) == [
        CeVerdict.YES,
        CeVerdict.IMPOSSIBLE,
    ]


def test_the_ce_refuses_by_virtual_organisation_and_subject() -> None:
    checks = {"AuthorizationCheck": AUTHORIZATION}
    rules = ce("a", texts=checks, GlueCEAccessControlBaseRule=("VO:EGEE", "/CN=alice"))
    open_ce = ce("b")
    for asking, expected in (
        (requester(VirtualOrganisation="EGEE"), CeVerdict.YES),
        (requester(VirtualOrganisation="CMS"), CeVerdict.REFUSED),
        (requester(VirtualOrganisation="CMS", CertificateSubject="/CN=alice"), CeVerdict.YES),
        (requester(), CeVerdict.REFUSED),
    ):
        assert verdicts(asking, rules, open_ce) == [expected, CeVerdict.YES]


def test_the_output_must_be_close_if_the_requester_names_one() -> None:
    near = ce("a", texts={"CloseOutputSECheck": CLOSE_OUTPUT}, GlueCESEBindGroupSEUniqueID=("se1", "se2"))
    far = ce("b", texts={"CloseOutputSECheck": CLOSE_OUTPUT}, GlueCESEBindGroupSEUniqueID=("se3",))
    assert verdicts(requester(OutputSE="se2"), near, far) == [CeVerdict.YES, CeVerdict.REFUSED]
    assert verdicts(requester(), near, far) == [CeVerdict.YES, CeVerdict.YES]


def test_own_requirements_of_a_ce_replace_the_checks() -> None:
    own = ce("a", texts={"Requirements": 'other.VirtualOrganisation == "CMS"', "AuthorizationCheck": "false"})
    assert verdicts(requester(VirtualOrganisation="CMS"), own) == [CeVerdict.YES]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"GlueCEStateStatus": "Production"}, CeVerdict.YES),
        ({"GlueCEStateStatus": "Draining"}, CeVerdict.CLOSED),
        ({"GlueCEStateStatus": "Closed", "GlueCEStateFreeCPUs": 100}, CeVerdict.CLOSED),
        ({"GlueCEStateTotalJobs": 9, "GlueCEPolicyMaxTotalJobs": 10}, CeVerdict.YES),
        ({"GlueCEStateTotalJobs": 10, "GlueCEPolicyMaxTotalJobs": 10}, CeVerdict.FULL),
        ({"GlueCEStateRunningJobs": 7, "GlueCEPolicyMaxRunningJobs": 7}, CeVerdict.FULL),
        ({"GlueCEStateRunningJobs": 7}, CeVerdict.YES),
        ({"GlueCEStateFreeCPUs": 0}, CeVerdict.YES),
    ],
)
def test_the_state_of_a_ce(values: dict[str, Any], expected: CeVerdict) -> None:
    assert verdicts(requester(), ce("a", **values)) == [expected]


def test_an_impossible_condition_is_told_before_a_passing_state() -> None:
    closed: dict[str, Any] = {"GlueCEStateStatus": "Closed", "GlueCEPolicyMaxCPUTime": 500}
    assert verdicts(requester(CONDITIONAL), ce("a", (600,), **closed)) == [CeVerdict.IMPOSSIBLE]


def test_an_undefined_rank_comes_last() -> None:
    ces = [
        ce(name, GlueCEStateEstimatedResponseTime=wait) for name, wait in zip("abc", (90, 5, 5), strict=True)
    ]
    ces.append(ce("d"))
    rank = parse_expression("-other.GlueCEStateEstimatedResponseTime")
    assert [rank_of(rank, facts.ad) for facts in ces] == [-90, -5, -5, UNRANKED]


def test_answers_are_shared_by_the_values_that_count() -> None:
    """1,000 CEs of three limits, and jobs of many owners: three evaluations in all."""
    broker = Broker(KINDS)
    ces = [ce(f"c{number}", GlueCEPolicyMaxCPUTime=(500, 1500, 3000)[number % 3]) for number in range(1000)]
    table = CeTable([broker.numbered(facts) for facts in ces], 0.0)
    for owner in range(20):
        asking = broker.requester(requester(CONDITIONAL, CertificateSubject=f"/CN={owner}"))
        assert int(broker.match(asking, table).candidates.sum()) == 666
    assert broker.computed == 3
    # New facts of the same values find the answers too.
    again = CeTable([broker.numbered(facts) for facts in ces], 1.0)
    broker.match(broker.requester(requester(CONDITIONAL)), again)
    assert broker.computed == 3


def test_a_name_that_an_attribute_of_the_ce_refers_to_counts() -> None:
    texts = {"Fast": "GlueCEPolicyMaxCPUTime > Least", "Least": "other.Wanted"}
    ces = [ce(f"c{limit}", texts=texts, GlueCEPolicyMaxCPUTime=limit) for limit in (500, 1500)]
    for wanted, expected in (
        (100, [CeVerdict.YES, CeVerdict.YES]),
        (1000, [CeVerdict.IMPOSSIBLE, CeVerdict.YES]),
    ):
        assert verdicts(requester("other.Fast", Wanted=wanted), *ces) == expected


def test_an_answer_that_depends_on_the_clock_is_not_kept() -> None:
    broker = Broker()
    at_night = broker.numbered(ce("a", texts={"Requirements": "time() > 100"}))
    asking = broker.requester(requester())
    found = [broker.match(asking, CeTable([at_night], now)).verdict(0) for now in (50.0, 200.0)]
    assert found == [CeVerdict.REFUSED, CeVerdict.YES]


def test_no_answer_is_kept_beyond_the_bound() -> None:
    broker = Broker(most=10)
    table = CeTable([broker.numbered(ce(f"c{number}", Power=number)) for number in range(8)], 0.0)
    for least in range(8):
        asking = broker.requester(requester(f"other.Power >= {least}"))
        matches = broker.match(asking, table)
        assert int(matches.candidates.sum()) == 8 - least
        assert [answer.verdict for answer in map(matches.of, range(8))].count(CeVerdict.YES) == 8 - least
    assert broker.computed == 64


def test_a_whole_ad_as_a_value_counts_with_all_its_attributes() -> None:
    assert dependencies_of(parse_expression('other["CEid"]')).needs_whole_ad
    assert verdicts(requester('other["CEid"] == "a"'), ce("a"), ce("b")) == [
        CeVerdict.YES,
        CeVerdict.IMPOSSIBLE,
    ]


def test_no_ces_and_no_requirements() -> None:
    assert ask(requester(CONDITIONAL)) == []
    assert verdicts(requester(), ce("a", (400,))) == [CeVerdict.YES]


NAMES = ("A", "B", "GlueHostBenchmarkSI00", "Text", "Tags", "Derived")
TERMS = (
    *(f"other.{name} {op} {value}" for name in NAMES[:3] for op in ("<", ">=", "==") for value in (1, 2)),
    *('other.Text == "x"', 'regexp("^y", other.Text)', 'member("t", other.Tags)', "isUndefined(other.B)"),
    *("other.Derived", "my.Own == 1", "Own", "other.A + other.B > 2", "other.GlueHostBenchmarkSI00 =?= 2"),
)
expressions = st.recursive(
    st.sampled_from(TERMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(("&&", "||")), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
        inner.map(lambda text: f"!({text})"),
    ),
    max_leaves=6,
)
values = st.fixed_dictionaries(
    {},
    optional={
        "A": st.sampled_from((0, 1, 2, True)),
        "B": st.sampled_from((1, 2.5)),
        "Text": st.sampled_from(("x", "yes")),
        "Tags": st.sampled_from((("t",), ())),
        "GlueCEStateStatus": st.sampled_from(("Production", "Closed")),
    },
)
texts = st.fixed_dictionaries(
    {},
    optional={
        "Derived": st.sampled_from(("A > 1", "B > other.Own", "GlueHostBenchmarkSI00 > 1")),
        "Requirements": st.sampled_from(("other.Own == 1", "A == 1 || other.Own > 1", "true")),
    },
)
facts = st.builds(
    lambda hosts, known, formulas: ce("c", hosts, formulas, **known),
    st.lists(st.sampled_from((1, 2, 3)), max_size=3),
    values,
    texts,
)
own = st.fixed_dictionaries({}, optional={"Own": st.sampled_from((1, 2))})


@settings(max_examples=100)
@given(st.lists(facts, min_size=1, max_size=5), st.lists(st.tuples(expressions, own), min_size=1, max_size=3))
def test_many_pairs_get_the_answers_of_one(
    ces: list[CeFacts], asking: list[tuple[str, dict[str, Any]]]
) -> None:
    """Sharing changes no answer. Also a pair is a candidate only if a host class makes Requirements true."""
    broker = Broker(KINDS)
    table = CeTable([broker.numbered(one) for one in ces], 0.0)
    for text, mine in asking:
        ad_of_requester = requester(text, **mine)
        matches = broker.match(broker.requester(ad_of_requester), table)
        for place, one in enumerate(ces):
            many, single = matches.of(place), match(ad_of_requester, one, now=0.0, kinds=KINDS)
            assert (many.verdict, many.host_classes) == (single.verdict, single.host_classes)
            for number, host in enumerate(one.hosts):
                if not names_of(text) <= host.index.keys() | {name.lower() for name in mine}:
                    # An unknown attribute is nowhere undefined.
                    continue
                is_true = evaluate(parse_expression(text), ad_of_requester, host) is True
                assert (evaluate(many.residual, ad_of_requester, host) is True) == is_true
                if many.host_classes is not None:
                    assert (number in many.host_classes) == is_true


def names_of(text: str) -> frozenset[str]:
    """Attributes that an expression of the property refers to, also through `Derived`."""
    names = dependencies_of(parse_expression(text)).names - SCOPES
    return names | {"a", "b", "gluehostbenchmarksi00"} if "derived" in names else names


@pytest.mark.parametrize(
    "requirements",
    [
        "isUndefined(other.MyFlag > 3)",
        "(other.HasGPU == true) =?= undefined",
        'isUndefined(member("a", other.List))',
    ],
)
def test_hosts_may_lack_attributes_that_no_schema_declares(requirements: str) -> None:
    """It is true on such a host, so pilots are sent there; it is false where the host has the attributes."""
    asking = requester(requirements)
    lacking = ce("lacking", (400,))
    having = ce("having", (400,), MyFlag=4, HasGPU=True, List=("a",))
    assert verdicts(asking, lacking, ce("unknown"), having) == [
        CeVerdict.YES,
        CeVerdict.YES,
        CeVerdict.IMPOSSIBLE,
    ]
    assert evaluate(parse_expression(requirements), asking, lacking.hosts[0]) is True
