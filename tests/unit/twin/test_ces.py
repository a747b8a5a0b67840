"""CEs of the twin, and the file that has them."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput, Mistakes
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.ces_file import one_ce, parse_ces

NODES = "[[ces.a.nodes]]\ncount = 2\nprocessors = 8\n"


def test_a_file_has_all_keys() -> None:
    text = f"[ces.a]\nwall = 3600\nstart_delay = 5\nwaits = [0, 60, 600]\nfailure_rate = 0.01\n{NODES}memory = 16000\n"
    assert parse_ces(text) == (TwinCe("a", (TwinNodes(2, 8, 16000),), 3600.0, 5.0, (0.0, 60.0, 600.0), 0.01),)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "the file of CEs has no table [ces.NAME]", None),
        ("x = 1", "unknown key x", 1),
        ("[ces.a", "the file of CEs is not valid TOML: Expected ']' at the end of a table declaration", 1),
        ("\n[ces.a]\n", "CE a: the key nodes is missing", 2),
        ("[ces.a]\nnodes = []", "CE a has no nodes", 2),
        ("[ces.a]\nwal = 3\nnodes = []", "unknown key wal", 2),
        (NODES.replace("2", '"two"'), "ces.a.nodes.0.count: must be a whole number, not a text", 2),
        (NODES.replace("8", "0"), "ces.a.nodes.0.processors must be a number from 1 to 1,000,000", 3),
        (f"[ces.a]\nwaits = [9, 3]\n{NODES}", "CE a: waits must not decrease", 2),
        (f"[ces.a]\nwaits = [0, nan]\n{NODES}", "ces.a.waits must be a number from 0 to 31,622,400", 2),
        ("[ces]\na = 3", "ces.a: must be a table, not a whole number", 2),
        (NODES.replace("ces.a", 'ces." a"'), "has characters that cannot be shown, or blanks at an end", 1),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, message: str, line: int | None) -> None:
    with pytest.raises(InvalidInput, match=r".") as error:
        parse_ces(text)
    assert message in error.value.message
    assert error.value.line == line


def test_all_ces_with_mistakes_are_told() -> None:
    with pytest.raises(Mistakes) as error:
        parse_ces(NODES.replace("8", "0") + NODES.replace("ces.a", "ces.b").replace("count", "cout"))
    assert [mistake.line for mistake in error.value.all] == [3, 5]
    assert error.value.all[1].hint == "did you mean count?"


def test_waits_are_between_the_quantiles() -> None:
    ce = TwinCe("a", (), waits=(0.0, 10.0, 110.0))
    assert [ce.wait_at(part) for part in (0.0, 0.25, 0.5, 0.75, 1.0)] == [0.0, 5.0, 10.0, 60.0, 110.0]
    assert TwinCe("a", (), waits=(7.0,)).wait_at(0.3) == 7.0
    assert TwinCe("a", ()).wait_at(0.3) == 0.0


def test_a_job_fits_one_node() -> None:
    ce = TwinCe("a", (TwinNodes(9, 8, 1000), TwinNodes(1, 16)))
    assert ce.fits(8, 1000)
    assert ce.fits(16, 10**6)
    assert not ce.fits(17, 0)
    assert not TwinCe("a", (TwinNodes(9, 8, 1000),)).fits(1, 1001)


@pytest.mark.parametrize(
    ("cores", "largest", "nodes"),
    [
        (24515, 1, (TwinNodes(3064, 8), TwinNodes(1, 3))),
        (64, 16, (TwinNodes(4, 16),)),
        (4, 16, (TwinNodes(1, 4),)),
    ],
)
def test_the_ce_of_a_trace_has_all_its_cores(cores: int, largest: int, nodes: tuple[TwinNodes, ...]) -> None:
    assert one_ce(cores, largest)[0].nodes == nodes
