"""The environment of a site's hook follows from the residual; its arguments are checked and combined."""

from __future__ import annotations

import pytest
from hypothesis import given

from pilotage.core.classads import ClassAd, evaluate, parse_expression
from pilotage.core.classads.partial import Kind
from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.hook import condition_variables, read_arguments, with_arguments
from pilotage.core.glue.information import Value, ad_of
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from tests.unit.core.forwarding.test_forward import DRAWN_KINDS, HOSTILE, SI00, expressions, hosts_drawn

SLURM = SlurmOptions.forwarding
NAMES = {"x": "X", "y": "Y", "z": "Z", "t": "T", "l": "L", SI00.lower(): SI00}
KINDS = {**DRAWN_KINDS, SI00.lower(): Kind.INTEGER, "r": Kind.NUMBER}


def variables(text: str) -> dict[str, str]:
    return condition_variables(parse_expression(text), KINDS, NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"other.{SI00} > 500", {f"{SI00}_Min": "501", "PILOTAGE_COMPLETE": "1"}),
        ("other.X >= 2 && other.X < 5", {"X_Min": "2", "X_Max": "4", "PILOTAGE_COMPLETE": "1"}),
        ("other.X > 2 || other.X > 7 && other.Y > 1", {"X_Min": "3", "PILOTAGE_COMPLETE": "0"}),
        ("other.X > 2 || other.Y > 7", {"PILOTAGE_COMPLETE": "0"}),
        ('other.T == "a"', {"T_Equal": "a", "PILOTAGE_COMPLETE": "1"}),
        (
            'member("a", other.L) && member("b", other.L)',
            {"L_Member_0": "a", "L_Member_1": "b", "PILOTAGE_COMPLETE": "1"},
        ),
        ("other.LD_PRELOAD > 3", {"PILOTAGE_COMPLETE": "0"}),
        ("other.X != 3", {"PILOTAGE_COMPLETE": "0"}),
    ],
)
def test_conditions_become_variables(text: str, expected: dict[str, str]) -> None:
    assert variables(text) == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_out_of_the_variables(text: str) -> None:
    from pilotage.core.classads import quote

    assert variables(f"other.T == {quote(text)} && other.X > 1") == {"X_Min": "2", "PILOTAGE_COMPLETE": "0"}


@given(expressions, hosts_drawn)
def test_variables_hold_on_each_host_that_satisfies_the_residual(
    text: str, drawn: list[dict[str, Value]]
) -> None:
    made = variables(text)
    tree = parse_expression(text)
    for host in drawn:
        is_true = evaluate(tree, my=ClassAd(), target=ad_of(host), now=0.0) is True
        holds = all(_holds(name, value, host, made) for name, value in made.items())
        assert holds or not is_true
        if made["PILOTAGE_COMPLETE"] == "1" and "=?=" not in text:
            assert holds == is_true


def _holds(name: str, value: str, host: dict[str, Value], made: dict[str, str]) -> bool:
    attribute, _, bound = name.partition("_")
    if attribute == "PILOTAGE" or bound.endswith("Exclusive"):
        return True
    actual = host.get(attribute)
    if actual is None:
        return False
    if bound == "Equal":
        return str(actual).lower() == value.lower()
    if bound.startswith("Member"):
        assert isinstance(actual, tuple)
        return value.lower() in {text.lower() for text in actual}
    assert isinstance(actual, int)
    return actual >= float(value) if bound == "Min" else actual <= float(value)


@pytest.mark.parametrize(
    ("flags", "printed", "combined"),
    [
        ((), "--constraint=a|b\n# comment\n\n--tmp 100M", ("--constraint=own&(a|b)", "--tmp=100M")),
        (("--constraint=own&(x|y)",), "--constraint=a", ("--constraint=own&(x|y)&a",)),
        (("--exclude=n1",), "--exclude=n2,n3", ("--exclude=n1,n2,n3",)),
    ],
)
def test_arguments_of_the_hook_are_added(
    flags: tuple[str, ...], printed: str, combined: tuple[str, ...]
) -> None:
    assert with_arguments(flags, read_arguments(printed, SLURM), SLURM, "own") == combined


@pytest.mark.parametrize(
    "printed",
    [
        *(
            "--wrap=id",
            "--constraint=$(id)",
            "--constraint=a b",
            "--constraint=a;b",
            "nonsense",
            "--export=ALL",
        ),
        *(
            "--tmp=-1",
            "--constraint=(a)",
            "--uid=0",
            "-p x",
            "--tmp=1\n--tmp=2",
            "--output=/etc/x",
            "--gres=a\x00b",
        ),
        *("--constraint", "--constraint=", "\n".join("#--x\n--tmp=1" for _ in range(60)), "--exclude=[n1]"),
    ],
)
def test_other_arguments_of_the_hook_are_refused(printed: str) -> None:
    with pytest.raises(InvalidInput):
        read_arguments(printed, SLURM)


def test_arguments_that_cannot_be_combined_are_refused() -> None:
    for flags, printed in (
        (("--constraint=(a&b)|(c&d)",), "--constraint=x"),
        (("--tmp=5M",), "--tmp=6M"),
    ):
        with pytest.raises(InvalidInput):
            with_arguments(flags, read_arguments(printed, SLURM), SLURM, "")
