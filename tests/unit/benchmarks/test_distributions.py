"""Distances of distributions, and their picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benchmarks.distributions import draw_waits, kolmogorov


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0], 0.0),
        ([1.0, 2.0], [3.0, 4.0], 1.0),
        ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 5.0, 6.0], 0.5),
        ([0.0] * 9 + [100.0], [0.0], 0.1),
    ],
)
def test_the_distance_is_the_largest_difference(
    one: list[float], other: list[float], distance: float
) -> None:
    assert kolmogorov(one, other) == pytest.approx(distance)
    assert kolmogorov(other, one) == pytest.approx(distance)


def test_a_picture_has_a_curve_for_each_name(tmp_path: Path) -> None:
    file = tmp_path / "waits.svg"
    draw_waits("Waits", "a & b", {"real": [0.0, 5.0, 9.0], "twin": [4000.0]}, file)
    drawing = ElementTree.parse(file)
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}path")) == 2
    assert file.stat().st_size < 20_000
