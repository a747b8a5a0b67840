"""Every number, text and list of a policy has bounds; a hostile text is refused by a process that lives on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.key_lines import line_of
from pilotage.core.policy import Policy, parse
from pilotage.core.policy.bounds import RANGES, ZERO_ALLOWED
from pilotage.core.shares.correctors import CORRECTORS
from tests.deadlines import PATIENCE
from tests.unit.core.hostile_policies import POLICIES

HEAD = """\
[groups.g]
[users.u]
groups = ["g"]
[sites.s]
[ces.c]
site = "s"
"""


def _numbers(kind: Any, pattern: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The patterns of all keys that hold numbers, and their types."""
    inner = [one for one in get_args(kind) if one not in (type(None), ...)]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield from _numbers(field.type, (*pattern, field.encode_name))
    elif get_origin(kind) is Annotated:
        yield from _numbers(inner[0], pattern)
    elif kind in (int, float):
        yield ".".join(pattern), kind
    elif getattr(kind, "__origin__", None) is dict:
        yield from _numbers(inner[1], (*pattern, "*"))
    elif getattr(kind, "__origin__", None) is tuple:
        star = ("*",) if inner[0] not in (int, float) else ()
        yield from _numbers(inner[0], (*pattern, *star))
    else:
        for one in inner:
            if not isinstance(one, str):
                yield from _numbers(one, pattern)


NUMBERS = dict(_numbers(Policy))


def test_every_number_has_a_range() -> None:
    assert NUMBERS.keys() == RANGES.keys()
    assert not ZERO_ALLOWED - RANGES.keys()


def document(pattern: str, value: str) -> str:
    """A policy that is right but for one number."""
    if pattern.startswith("limits."):
        parts = {"attribute": '"owner"', "value": '"u"', "running": "1", pattern.rpartition(".")[2]: value}
        return HEAD + "[[limits]]\n" + "".join(f"{key} = {one}\n" for key, one in parts.items())
    if pattern.startswith("requests.thresholds."):
        parts = {"running": "1", pattern.rpartition(".")[2]: value}
        return HEAD + "[[requests.thresholds]]\n" + "".join(f"{key} = {n}\n" for key, n in parts.items())
    if pattern.startswith("correction.") and pattern.count("."):
        corrector = pattern.split(".")[1]
        if corrector in CORRECTORS:
            return _with_instance(corrector, pattern, value)
    table, _, key = pattern.rpartition(".")
    if pattern.endswith(("_buckets", "_bands")):
        value = f"[{value}]"
    table = table.replace("groups.*", "groups.g").replace("ces.*", "ces.c")
    header = f"[{table}]\n"
    text = HEAD if header in HEAD else HEAD + header
    return text.replace(header, f"{header}{key} = {value}\n")


def _with_instance(corrector: str, pattern: str, value: str) -> str:
    """The example of a corrector, with one key set in the table that `pattern` names."""
    table, _, key = pattern.rpartition(".")
    lines = [HEAD, f'[correction]\ncorrectors = ["{corrector}"]\n']
    for line in CORRECTORS[corrector].example.splitlines(keepends=True):
        if not line.startswith(f"{key} ="):
            lines.append(line)
        if line.startswith("[") and line.count(".") == table.count("."):
            lines.append(f"{key} = {value}\n")
    return "".join(lines)


@pytest.mark.parametrize("pattern", sorted(NUMBERS))
def test_a_number_beyond_its_range_is_refused_with_its_line(pattern: str) -> None:
    whole = NUMBERS[pattern] is int
    values = [str(2**70), str(2**63), str(-(2**70)), "-1", "0x" + "f" * 5000]
    if not whole:
        values = ["nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "-1.0"]
        if RANGES[pattern][0] == 0:
            values.remove("1e-320")
    for value in values:
        text = document(pattern, value)
        with pytest.raises(InvalidInput) as refused:
            parse(text)
        key = pattern.rpartition(".")[2]
        expected = next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(f"{key} ="))
        # Where several keys together are wrong the table is named.
        assert refused.value.line in (expected, expected - 1, expected - 3, expected - 4), (
            value,
            str(refused.value),
        )


@pytest.mark.parametrize("pattern", sorted(NUMBERS))
def test_the_ends_of_a_range_are_accepted_or_refused_for_a_reason(pattern: str) -> None:
    for end in RANGES[pattern]:
        value = str(int(end)) if NUMBERS[pattern] is int else repr(float(end))
        assert "must be a number from" not in _refusal(document(pattern, value))


def _refusal(text: str) -> str:
    try:
        parse(text)
    except InvalidInput as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEAD.replace("users.u", f"users.{'u' * 201}"), "more than 200"),
        (HEAD.replace('site = "s"', f'site = "s"\nsetup = "{"x" * 201}"'), "more than 200"),
        (HEAD.replace('site = "s"', 'site = "s"\nsetup = "a\\u0000b"'), "NUL"),
        (HEAD.replace("users.u", 'users."a\\u0000b"'), "NUL"),
        (
            HEAD.replace('site = "s"', f'site = "s"\ntags = {["t"] * 1001}'.replace("'", '"')),
            "limit is 1,000",
        ),
        (HEAD + f"[matching]\ncpu_buckets = {list(range(1, 1002))}\n", "limit is 1,000"),
    ],
)
def test_texts_and_lists_have_bounds(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as refused:
        parse(text)
    assert refused.value.line


def test_places_of_keys() -> None:
    text = """\
# [not.a.table]
[groups.physics]
share = 1000 # [x]
"a b".'c.d' = [1,
  2, "]", { x = 1 }]
z = \"""
[not.a.table]
k = 1
\"""
[[limits]]
attribute = "owner"
[[limits]]
value = 1
[ces."x]y"]
site = { a.b = 1, c = [ 1,
2 ] }
n = 1
"""
    places = {
        ("groups", "physics", "share"): 3,
        ("groups", "physics", "a b", "c.d"): 4,
        ("groups", "physics", "z"): 6,
        ("limits", "0", "attribute"): 11,
        ("limits", "1", "value"): 13,
        ("limits", "1", "running"): 12,
        ("ces", "x]y", "site", "a"): 15,
        ("ces", "x]y", "n"): 17,
        ("ces", "other"): 14,
        ("not", "a", "table"): None,
    }
    assert {keys: line_of(text, keys) for keys in places} == places


@pytest.mark.slow
def test_hostile_policies_are_refused_by_a_process_that_lives_on() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.core.hostile_policies"],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"{name}: refused" for name in POLICIES]


@pytest.mark.parametrize(
    "lines",
    [
        "[director.pools.Batch]\nRank = 'TEXT'\n",
        "[director.pools.Batch]\nCPUNormalization = 'TEXT'\n",
        "[ces.batch.attributes]\nauthorizationcheck = 'TEXT'\n",
    ],
)
def test_expressions_are_longer_than_other_texts_and_bounded(lines: str) -> None:
    """A check of several virtual organisations has some hundred characters."""
    head = '[groups.g]\n[users.u]\ngroups = ["g"]\n[sites.s]\n[ces.batch]\nsite = "s"\ntype = "slurm"\n'
    term = "1.0 + "
    parse(head + lines.replace("TEXT", term * 500 + "1.0"))
    with pytest.raises(InvalidInput, match="more than 10,000 characters"):
        parse(head + lines.replace("TEXT", term * 2000 + "1.0"))
    with pytest.raises(InvalidInput, match="more than 200 characters"):
        parse(head + lines.replace("TEXT", "1.0") + f"[ces.other]\nsite = 's'\nsetup = '{'x' * 201}'\n")


def test_the_keys_of_a_table_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """msgspec takes a millisecond for each table, and a policy may have thousands."""
    listed: list[object] = []
    fields = msgspec.structs.fields

    def counted(table: Any) -> Any:
        listed.append(table)
        return fields(table)

    monkeypatch.setattr(msgspec.structs, "fields", counted)
    parse(HEAD + "".join(f'[ces.n{number}]\nsite = "s"\n' for number in range(50)))
    assert len(listed) < 50
