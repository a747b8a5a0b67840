"""The same residuals in the syntaxes of PBS, Torque and LSF, read back by a model of each batch system."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pytest

from pilotage.core.classads import evaluate, parse_expression
from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.forward import Forwarding
from pilotage.core.forwarding.hook import read_arguments, with_arguments
from pilotage.core.forwarding.table import ForwardTable
from pilotage.core.glue.information import HostClass, Value, ad_of
from pilotage.core.policy.batch_systems.lsf import LsfOptions
from pilotage.core.policy.batch_systems.pbs import PbsOptions
from pilotage.core.policy.batch_systems.torque import TorqueOptions
from tests.unit.core.forwarding.test_forward import FEATURES, HOSTS, OS, SI00, SMP, forwarded, unmapped_text

PBS, TORQUE, LSF = PbsOptions.forwarding, TorqueOptions.forwarding, LsfOptions.forwarding
RESOURCES = {SI00: "complex si00 <=", OS: "complex os == string", SMP: "complex mem_total <= megabytes"}
SELECTED = {SI00: "feature si00_{}", OS: "complex os == string", SMP: "complex ncpus <="}


def pbs_accepts(flags: Sequence[str], host: Mapping[str, Value]) -> bool:
    """Every request of a chunk: a number at least as much, a text equal."""
    values = {"si00": host.get(SI00), "os": host.get(OS), "mem_total": host.get(SMP)}
    for request in ":".join(flags[1::2]).split(":") if flags else ():
        name, _, text = request.partition("=")
        value = values[name]
        if isinstance(value, int) and int(text.removesuffix("mb")) <= value:
            continue
        if value != text:
            return False
    return True


def torque_accepts(flags: Sequence[str], host: Mapping[str, Value]) -> bool:
    """A node has all of the properties."""
    return set(filter(None, ":".join(flags[1::2]).split(":"))) <= properties(host)


def properties(host: Mapping[str, Value]) -> set[str]:
    software = host.get("Software", ())
    assert isinstance(software, tuple)
    named = {f"si00_{host[SI00]}"} if SI00 in host else set()
    return named | ({f"os_{host[OS]}"} if OS in host else set()) | {f"has_{word}" for word in software}


def lsf_accepts(flags: Sequence[str], host: Mapping[str, Value]) -> bool:
    """All selections, with the operators of LSF."""
    names = {**dict.fromkeys(properties(host), True), "os": host.get(OS), "ncpus": host.get(SMP, 0)}

    def evaluated(text: str) -> bool:
        assert re.fullmatch(r"[A-Za-z0-9_>=<&|()]+", text), text
        words = re.sub(r"==([A-Za-z]\w*)", r"=='\1'", text).replace("&&", " and ").replace("||", " or ")
        words = re.sub(r"\b([A-Za-z]\w*)\b(?!')", _lookup, words)
        return bool(eval(words, {"names": names}))

    return all(evaluated(flag[len("select[") : -1]) for flag in flags[1::2])


def _lookup(match: re.Match[str]) -> str:
    return match[1] if match[1] in ("and", "or") else f"names.get('{match[1]}')"


SYSTEMS: Mapping[str, tuple[ForwardTable, Mapping[str, str], Callable[..., bool]]] = {
    "pbs": (PBS, RESOURCES, pbs_accepts),
    "torque": (TORQUE, FEATURES, torque_accepts),
    "lsf": (LSF, SELECTED, lsf_accepts),
}
TEXTS = (
    f"other.{SI00} > 500",
    f"other.{SI00} == 600",
    f"other.{SI00} < 500",
    f'other.{OS} == "SL4"',
    f'other.{OS} == "SL4" && other.{SI00} >= 800',
    f"other.{SMP} >= 8",
    f"other.{SMP} >= 8 && other.{SI00} > 500",
    f'other.{OS} == "SL4" || other.{OS} == "SL5"',
    'member("gcc", other.Software)',
    f"other.{SI00} > 500 ? other.{SMP} > 4 : other.{SMP} > 2",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_flags_accept_the_hosts_that_fit(system: str, text: str) -> None:
    table, rules, accepts = SYSTEMS[system]
    forwarding = forwarded(text, table, rules)
    fitting = [known for known in HOSTS if fits(text, known)]
    assert fitting, "some class fits"
    accepted = [known for known in HOSTS if accepts(forwarding.flags, known.attributes)]
    assert all(known in accepted for known in fitting), (forwarding.flags, text)
    if forwarding.unmapped is None:
        assert accepted == fitting, (forwarding.flags, text)


def fits(text: str, known: HostClass) -> bool:
    """Whether the text is true on a class of hosts."""
    return evaluate(parse_expression(text), my=None, target=ad_of(known.attributes)) is True


@pytest.mark.parametrize(
    ("system", "text", "flags"),
    [
        ("pbs", f"other.{SI00} > 500", ["-l", "si00=501"]),
        ("pbs", f'other.{OS} == "SL4" && other.{SMP} >= 8', ["-l", "os=SL4:mem_total=8mb"]),
        ("torque", f"other.{SI00} == 600", ["-l", "si00_600"]),
        ("torque", f'other.{SI00} == 800 && other.{OS} == "SL4"', ["-l", "si00_800:os_SL4"]),
        ("torque", f"other.{SI00} > 500", []),
        ("lsf", f"other.{SI00} > 500", ["-R", "select[(si00_600||si00_800)]"]),
        (
            "lsf",
            f'other.{SI00} == 800 && other.{OS} == "SL4" && other.{SMP} >= 8',
            ["-R", "select[si00_800&&os==SL4&&ncpus>=8]"],
        ),
    ],
)
def test_each_system_has_its_words(system: str, text: str, flags: list[str]) -> None:
    table, rules, _ = SYSTEMS[system]
    forwarding = forwarded(text, table, rules)
    assert list(forwarding.flags) == flags
    assert unmapped_text(forwarding) == ("" if flags else text)


def test_lsf_takes_names_of_hosts() -> None:
    made: Forwarding = forwarded(f"other.{SI00} > 500", LSF, SELECTED, selects_hosts=True)
    assert made.flags == ("-m", "n2 n3 n4")


def test_properties_of_the_policy_stay_in_force() -> None:
    made = forwarded(f"other.{SI00} == 600", TORQUE, FEATURES, own_features="big:fast")
    assert made.flags == ("-l", "big:fast:si00_600")


@pytest.mark.parametrize(
    ("table", "flags", "line", "own", "combined"),
    [
        (
            PBS,
            ("-l", "si00=500"),
            "-l model=epyc:arch=linux",
            "",
            ("-l", "si00=500", "-l", "model=epyc:arch=linux"),
        ),
        (TORQUE, ("-l", "big:si00_600"), "-l fast", "big", ("-l", "big:si00_600:fast")),
        (TORQUE, (), "-l fast", "big", ("-l", "big:fast")),
        (LSF, ("-R", "select[a]"), "-R select[b]", "", ("-R", "select[a]", "-R", "select[b]")),
        (LSF, (), "-P physics", "", ("-P", "physics")),
    ],
)
def test_the_arguments_of_a_hook_are_joined(
    table: ForwardTable, flags: tuple[str, ...], line: str, own: str, combined: tuple[str, ...]
) -> None:
    options = read_arguments(line, table)
    assert with_arguments(flags, options, table, own) == combined


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (PBS, "-l a=b;c"),
        (PBS, "-l si00=1:x y=2"),
        (TORQUE, "-l a+b"),
        (LSF, "-R rusage[mem=1]"),
        (LSF, "-m a"),
    ],
)
def test_other_arguments_of_a_hook_are_refused(table: ForwardTable, line: str) -> None:
    with pytest.raises(InvalidInput):
        read_arguments(line, table)


def test_a_hook_may_not_request_twice() -> None:
    with pytest.raises(InvalidInput, match="already"):
        with_arguments(("-l", "si00=500:a=b"), {"-l": "a=c"}, PBS, "")
