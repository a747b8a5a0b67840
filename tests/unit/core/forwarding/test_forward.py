"""Residuals become flags that accept exactly the known hosts on which the residual is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.classads import ClassAd, Literal, evaluate, parse_expression, unparse
from pilotage.core.classads.partial import Kind, residual
from pilotage.core.forwarding.forward import CANNOT_BE_TRUE, NO_HOST, CeTerms, Forwarding, forward
from pilotage.core.forwarding.table import ForwardTable, HostSelection
from pilotage.core.glue.information import HostClass, Value, ad_of
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from tests.unit.core.forwarding.batch_systems import accepted_by_grid_engine, accepted_by_slurm

SLURM = SlurmOptions.forwarding
GRID_ENGINE = ForwardTable(
    complex_option="-l", has_wall=True, selection=HostSelection.QUEUES, selection_option="-q"
)
SI00, OS, SMP = "GlueHostBenchmarkSI00", "GlueHostOperatingSystemName", "GlueHostArchitectureSMPSize"
KINDS = {
    SI00.lower(): Kind.QUANTITY,
    OS.lower(): Kind.STRING,
    SMP.lower(): Kind.QUANTITY,
    "software": Kind.STRINGS,
    "gluecepolicymaxwallclocktime": Kind.INTEGER,
}
FEATURES = {SI00: "feature si00_{}", OS: "feature os_{}", "Software": "feature has_{}"}
COMPLEXES = {SI00: "complex si00 <=", OS: "complex os == restring", SMP: "complex free >="}
HOSTS = (
    HostClass(1, {SI00: 400, OS: "SL4", "Software": ("root", "gcc"), SMP: 4}, ("n1",)),
    HostClass(2, {SI00: 600, OS: "SL5", "Software": ("root",), SMP: 8}, ("n2", "n3")),
    HostClass(1, {SI00: 800, OS: "SL4", "Software": (), SMP: 8}, ("n4",)),
    HostClass(1, {SMP: 2}, ("n5",)),
)


def forwarded(
    text: str,
    table: ForwardTable,
    rules: Mapping[str, str],
    hosts: Sequence[HostClass] = HOSTS,
    *,
    own_features: str = "",
    wall: float = 0.0,
    selects_hosts: bool = False,
) -> Forwarding:
    terms = CeTerms(table, table.with_rules(rules), own_features, wall=wall, selects_hosts=selects_hosts)
    return forward(parse_expression(text), terms, hosts, KINDS)


def unmapped_text(forwarding: Forwarding) -> str:
    return "" if forwarding.unmapped is None else unparse(forwarding.unmapped)


@pytest.mark.parametrize(
    ("text", "flags", "unmapped"),
    [
        (f"other.{SI00} > 500", ["--constraint=si00_600|si00_800"], ""),
        (f"other.{SI00} > 500 && other.{SI00} < 700", ["--constraint=si00_600"], ""),
        (f"other.{SI00} != 600", ["--constraint=si00_400|si00_800"], ""),
        (f'other.{OS} == "sl4"', ["--constraint=os_SL4"], ""),
        (f'other.{OS} =?= "sl4" || other.{SI00} == 600', ["--constraint=si00_600&os_SL5"], ""),
        (
            f'other.{SI00} > 500 && other.{OS} == "SL4"',
            ["--constraint=(si00_600|si00_800)&os_SL4"],
            "",
        ),
        (
            f'other.{SI00} == 600 || other.{OS} == "SL4"',
            ["--constraint=(si00_400&os_SL4)|(si00_600&os_SL5)|(si00_800&os_SL4)"],
            "",
        ),
        ('member("GCC", other.Software)', ["--constraint=has_gcc"], ""),
        ('member("gcc", other.Software) || member("root", other.Software)', None, ""),
        (f"other.{SI00} > 500 && other.Unknown > 3", ["--constraint=si00_600|si00_800"], "other.Unknown > 3"),
        ("other.Unknown > 3", [], "other.Unknown > 3"),
    ],
)
def test_features_of_slurm_carry_values(text: str, flags: list[str] | None, unmapped: str) -> None:
    forwarding = forwarded(text, SLURM, FEATURES)
    assert forwarding.is_possible
    if flags is not None:
        assert list(forwarding.flags) == flags
    assert unmapped_text(forwarding) == unmapped


def test_an_attribute_without_rule_is_said_by_the_features_of_the_classes_that_fit() -> None:
    forwarding = forwarded(f"other.{SMP} > 4", SLURM, FEATURES)
    assert forwarding.flags == ("--constraint=si00_600|si00_800",)
    assert forwarding.unmapped is None
    # The last class has no feature at all, so no flag can say it.
    loose = forwarded(f"other.{SMP} < 4", SLURM, FEATURES)
    assert (loose.flags, unmapped_text(loose)) == ((), f"other.{SMP} < 4")


@pytest.mark.parametrize(
    ("text", "flags", "unmapped"),
    [
        (f"other.{SI00} > 500", ["-l", "si00=501"], ""),
        (f"other.{SI00} >= 500 && other.{SI00} > 10", ["-l", "si00=500"], ""),
        (f"other.{SI00} > 399.5", ["-l", "si00=400"], ""),
        (f'other.{OS} == "sl4"', ["-l", "os=SL4"], ""),
        (f'other.{SI00} > 1 && other.{OS} == "sl4" && other.{SMP} < 8', ["-l", "si00=2,os=SL4,free=7"], ""),
        (f'other.{OS} == "SL4" || other.{OS} == "SL5"', ["-l", "os=SL4|SL5"], ""),
        (f"other.{SI00} == 600", ["-l", "si00=600"], f"other.{SI00} == 600"),
        (f"other.{SI00} < 500", [], f"other.{SI00} < 500"),
        (f"other.{SI00} > 700 || other.{SMP} < 5", [], f"other.{SI00} > 700 || other.{SMP} < 5"),
    ],
)
def test_complexes_of_grid_engine_have_relations(text: str, flags: list[str], unmapped: str) -> None:
    forwarding = forwarded(text, GRID_ENGINE, COMPLEXES)
    assert (list(forwarding.flags), unmapped_text(forwarding)) == (flags, unmapped)


def test_without_known_hosts_only_certain_names_become_features() -> None:
    assert forwarded(f"other.{SI00} == 600", SLURM, FEATURES, ()).flags == ("--constraint=si00_600",)
    for text in (f"other.{SI00} > 500", f'other.{OS} == "sl5"'):
        forwarding = forwarded(text, SLURM, FEATURES, ())
        assert (forwarding.flags, unmapped_text(forwarding)) == ((), text)
    assert forwarded(f"other.{SI00} > 500", GRID_ENGINE, COMPLEXES, ()).flags == ("-l", "si00=501")
    text = f'other.{OS} == "sl5"'
    assert unmapped_text(forwarded(text, GRID_ENGINE, COMPLEXES, ())) == text


@pytest.mark.parametrize(
    "text", [f"other.{SI00} / 100 >= 5", f"4 < other.{SI00} / 100", f"other.{SI00} * 2 >= 999"]
)
def test_bounds_of_arithmetic_become_flags_without_known_hosts(text: str) -> None:
    forwarding = forwarded(text, GRID_ENGINE, COMPLEXES, ())
    assert (forwarding.flags, unmapped_text(forwarding)) == (("-l", "si00=500"), "")


def test_nothing_is_submitted_where_requirements_cannot_be_true() -> None:
    assert forwarded("false", SLURM, FEATURES).reason == CANNOT_BE_TRUE
    assert forwarded(f"other.{SI00} > 900", SLURM, FEATURES).reason == NO_HOST
    assert forwarded(f"other.{SI00} > 900", GRID_ENGINE, COMPLEXES, ()).is_possible


def test_an_adapter_without_flags_leaves_all_to_the_match() -> None:
    forwarding = forwarded(f"other.{SI00} > 500", ForwardTable(), {})
    assert (forwarding.flags, unmapped_text(forwarding)) == ((), f"other.{SI00} > 500")


@pytest.mark.parametrize(
    ("own", "flags"),
    [
        ("fast", ["--constraint=fast&(si00_600|si00_800)&os_SL4"]),
        ("fast,big", ["--constraint=fast,big&(si00_600|si00_800)&os_SL4"]),
        ("fast|big", ["--constraint=(fast|big)&(si00_600|si00_800)&os_SL4"]),
        ("(a|b)&c", ["--constraint=(a|b)&c&(si00_600|si00_800)&os_SL4"]),
        ("[a|b]", []),
        ("a*2", []),
        ("(a&b)|(c&d)", []),
    ],
)
def test_the_constraint_of_the_policy_stays_in_force(own: str, flags: list[str]) -> None:
    forwarding = forwarded(f'other.{SI00} > 500 && other.{OS} == "SL4"', SLURM, FEATURES, own_features=own)
    assert list(forwarding.flags) == flags
    assert (forwarding.unmapped is None) is bool(flags)


def test_combinations_take_the_constraint_of_the_policy_into_each_group() -> None:
    text = f'other.{SI00} == 600 || other.{OS} == "SL4"'
    forwarding = forwarded(text, SLURM, FEATURES, own_features="a&b")
    assert forwarding.flags[0].startswith("--constraint=(a&b&si00_400&os_SL4)|(a&b&")
    loose = forwarded(text, SLURM, FEATURES, own_features="a|b")
    assert (loose.flags, unmapped_text(loose)) == ((), text)


def test_the_wall_time_of_pilots_answers_a_bound_on_the_queue() -> None:
    text = "other.GlueCEPolicyMaxWallClockTime >= 3600"
    assert forwarded(text, SLURM, {}, wall=3600.0).unmapped is None
    assert unmapped_text(forwarded(text, SLURM, {}, wall=3599.0)) == text


def test_names_of_hosts_are_passed_instead() -> None:
    text = f"other.{SI00} > 500"
    slurm = forwarded(text, SLURM, FEATURES, selects_hosts=True)
    assert slurm.flags == ("--exclude=n1,n5",)
    grid_engine = forwarded(text, GRID_ENGINE, COMPLEXES, selects_hosts=True)
    assert grid_engine.flags == ("-q", "*@n2,*@n3,*@n4")
    unnamed = [HostClass(3, {SI00: 600}), HostClass(1, {SI00: 400}, ("n1",))]
    fallen_back = forwarded(text, SLURM, FEATURES, unnamed, selects_hosts=True)
    assert fallen_back.flags == ("--constraint=si00_600",)
    assert "names of the hosts are not known" in fallen_back.notes[0]


@pytest.mark.parametrize("name", ["n1;reboot", "-n1", "n1,n2", "$(id)", "n 1", "n1|n2", ""])
def test_hostile_names_of_hosts_never_become_flags(name: str) -> None:
    hosts = [HostClass(1, {SI00: 400}, (name,)), HostClass(1, {SI00: 600}, (name,))]
    for table in (SLURM, GRID_ENGINE):
        forwarding = forwarded(f"other.{SI00} > 500", table, {}, hosts, selects_hosts=True)
        assert forwarding.flags == ()
        assert forwarding.unmapped is not None


HOSTILE = (
    *("1; expression = 7", 'a"b', "a'b", "a\nb", "$(id)", "`id`", "a,b", "a|b", "a&b", "a b", "*", "(a)"),
    *("-l x=1", "--wrap=id", "a=b c", "ä", "a\\b", "a*2", "[a]", "%n", "~root", "<x", ">x", "x!"),
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("is_known", [True, False])
def test_strings_of_jobs_end_as_data(text: str, is_known: bool) -> None:
    """Even where a host publishes the very same text."""
    hosts = [HostClass(1, {OS: text, "Software": (text,)}, ("n1",)), HostClass(1, {OS: "SL4"}, ("n2",))]
    quoted = unparse(Literal(text))
    for requirement in (f"other.{OS} =?= {quoted}", f"member({quoted}, other.Software)"):
        for table, rules in ((SLURM, FEATURES), (GRID_ENGINE, COMPLEXES)):
            forwarding = forwarded(requirement, table, rules, hosts if is_known else ())
            assert forwarding.flags == ()
            assert forwarding.unmapped is not None


numbers = st.integers(0, 4)
words = st.sampled_from(["a", "B", "b", "c-1"])
hosts_drawn = st.lists(
    st.fixed_dictionaries(
        {}, optional={"X": numbers, "Y": numbers, "T": words, "L": st.lists(words, max_size=2).map(tuple)}
    ),
    min_size=1,
    max_size=5,
)
number_atoms = st.builds(
    "other.{} {} {}".format,
    st.sampled_from(["X", "Y", "Z"]),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "=?="]),
    numbers,
)
atoms = st.one_of(
    number_atoms,
    st.builds('other.T {} "{}"'.format, st.sampled_from(["==", "!=", "=?="]), words),
    st.builds('member("{}", other.L)'.format, words),
)
expressions = st.recursive(
    atoms,
    lambda below: st.one_of(
        st.builds("({} && {})".format, below, below),
        st.builds("({} || {})".format, below, below),
        st.builds("({} ? {} : {})".format, below, below, below),
    ),
    max_leaves=5,
)
DRAWN_KINDS = {"x": Kind.INTEGER, "y": Kind.INTEGER, "z": Kind.INTEGER, "t": Kind.STRING, "l": Kind.STRINGS}
SSD_HOSTS = (
    HostClass(1, {"HasSsd": True, SI00: 400}, ("n1",)),
    HostClass(1, {"HasSsd": False, SI00: 600}, ("n2",)),
    HostClass(1, {SI00: 600}, ("n3",)),
)


@pytest.mark.parametrize(
    ("text", "flags", "unmapped"),
    [
        ("other.HasSsd", ["-l", "ssd=true"], ""),
        ("other.HasSsd == true", ["-l", "ssd=true"], ""),
        ("!other.HasSsd", ["-l", "ssd=false"], ""),
        (f"other.HasSsd && other.{SI00} > 300", ["-l", "ssd=true,si00=301"], ""),
        # A host without the complex fits, and would refuse any request for it.
        ("other.HasSsd =!= true", [], "other.HasSsd =!= true"),
        ("isBoolean(other.HasSsd)", [], "isBoolean(other.HasSsd)"),
    ],
)
def test_a_complex_that_is_true_or_false(text: str, flags: list[str], unmapped: str) -> None:
    rules = {"HasSsd": "complex ssd ==", SI00: "complex si00 <="}
    known = {name: ad_of(host.attributes) for host in SSD_HOSTS for name in host.hosts}
    forwarding = forwarded(text, GRID_ENGINE, rules, SSD_HOSTS)
    assert (list(forwarding.flags), unmapped_text(forwarding)) == (flags, unmapped)
    if flags:
        [value] = [word.split(",")[0] for word in flags[1:]]
        wanted = Literal(value == "ssd=true")
        accepted = {name for name, ad in known.items() if ad.get("HasSsd") == wanted}
        tree = parse_expression(text)
        assert accepted == {name for name, ad in known.items() if evaluate(tree, ClassAd(), ad) is True}


def test_true_is_requested_of_known_hosts_only() -> None:
    """Grid Engine refuses `true` for a complex that holds a number."""
    forwarding = forwarded("other.HasSsd == true", GRID_ENGINE, {"HasSsd": "complex ssd =="}, ())
    assert (forwarding.flags, unmapped_text(forwarding)) == ((), "other.HasSsd == true")


relations = st.sampled_from(["<=", "<", "==", ">=", ">"])
features_drawn = st.fixed_dictionaries(
    {},
    optional={
        "X": st.just("feature x_{}"),
        "Y": st.just("feature y_{}"),
        "T": st.just("feature t_{}"),
        "L": st.just("feature l_{}"),
    },
)
complexes_drawn = st.fixed_dictionaries(
    {},
    optional={
        "X": st.builds("complex X {} integer".format, relations),
        "Y": st.builds("complex Y {} integer".format, relations),
        "T": st.sampled_from(["complex T == restring", "complex T == string"]),
    },
)


def check(forwarding: Forwarding, text: str, hosts: Sequence[HostClass], accepted: Sequence[bool]) -> None:
    """Accepted hosts are those on which the expression is true, except where a part is reported as unmapped."""
    tree = parse_expression(text)
    for known, is_accepted in zip(hosts, accepted, strict=True):
        ad = ad_of(known.attributes)
        is_true = evaluate(tree, my=ClassAd(), target=ad, now=0.0) is True
        assert forwarding.is_possible or not is_true
        if not forwarding.is_possible:
            continue
        assert is_accepted or not is_true, "a host that fits is refused"
        if is_accepted and not is_true:
            assert forwarding.unmapped is not None
            left = evaluate(forwarding.unmapped, my=ClassAd(), target=ad, now=0.0)
            assert left is not True, "the flags and the unmapped part accept a host that does not fit"


def classes_of(drawn: Sequence[Mapping[str, Value]]) -> list[HostClass]:
    return [HostClass(1, attributes, (f"n{place}",)) for place, attributes in enumerate(drawn)]


@given(expressions, hosts_drawn, features_drawn, st.booleans(), st.sampled_from(["", "own", "own|x"]))
def test_flags_of_slurm_accept_exactly_the_hosts_that_fit(
    text: str, drawn: list[dict[str, Value]], rules: dict[str, str], names: bool, own: str
) -> None:
    hosts = classes_of(drawn)
    terms = CeTerms(SLURM, SLURM.with_rules(rules), own, selects_hosts=names)
    tree = residual(parse_expression(text), None, ClassAd(), DRAWN_KINDS)
    forwarding = forward(tree, terms, hosts, DRAWN_KINDS)
    accepted = []
    for known in hosts:
        features = {"own"}
        for name, value in known.attributes.items():
            if name in rules:
                features |= {f"{name.lower()}_{v}" for v in (value if isinstance(value, tuple) else (value,))}
        accepted.append(accepted_by_slurm(forwarding.flags, features, known.hosts[0], own))
    check(forwarding, text, hosts, accepted)


@given(expressions, hosts_drawn, complexes_drawn, st.booleans())
def test_flags_of_grid_engine_accept_exactly_the_hosts_that_fit(
    text: str, drawn: list[dict[str, Value]], rules: dict[str, str], names: bool
) -> None:
    hosts = classes_of(drawn)
    terms = CeTerms(GRID_ENGINE, GRID_ENGINE.with_rules(rules), selects_hosts=names)
    tree = residual(parse_expression(text), None, ClassAd(), DRAWN_KINDS)
    forwarding = forward(tree, terms, hosts, DRAWN_KINDS)
    complexes = {name: (rule.split()[2], rule.split()[3]) for name, rule in rules.items()}
    accepted = [
        accepted_by_grid_engine(forwarding.flags, complexes, known.attributes, known.hosts[0])
        for known in hosts
    ]
    check(forwarding, text, hosts, accepted)


def test_a_minimum_of_the_ce_holds_on_hosts_without_a_value_of_their_own() -> None:
    """The offer of such a host has the minimum, so no flag may refuse the host."""
    terms = CeTerms(SLURM, SLURM.with_rules(FEATURES), minima={SI00.lower(): 400})
    for bound, flags in ((500, ("--constraint=si00_600|si00_800",)), (300, ())):
        text = f"other.{SI00} > {bound}"
        forwarding = forward(parse_expression(text), terms, HOSTS, KINDS)
        assert forwarding.flags == flags
        assert (forwarding.unmapped is None) is bool(flags)


@pytest.mark.parametrize("hosts", [(), (HostClass(1, {"Disk": 0}, ("n1",)),)])
@pytest.mark.parametrize("text", ["Disk >= 0", "Disk > -5", "Disk == 0", "Disk > -9 && Disk < 9"])
def test_a_bound_that_no_option_takes_is_left_to_the_match(text: str, hosts: Sequence[HostClass]) -> None:
    """Slurm refuses `--tmp=-4M` and `--cores-per-socket=0`, so pilots would never be submitted."""
    for option in SLURM.options:
        made = forwarded(text, SLURM, {"Disk": f"option {option}"}, hosts)
        assert (made.flags, made.is_possible, unmapped_text(made) != "") == ((), True, True)
