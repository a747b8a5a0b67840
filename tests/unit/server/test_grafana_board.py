"""The board for Grafana asks for metrics that the server has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pilotage

ROOT = Path(__file__).parents[3]
_METRIC = re.compile(r"pilotage_[a-z_]+")


def metrics_of_board() -> set[str]:
    board = json.loads((ROOT / "examples" / "grafana" / "pilotage.json").read_text())
    return {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in _METRIC.findall(target["expr"])
    }


def test_each_metric_of_the_board_is_one_of_the_server() -> None:
    board = json.loads((ROOT / "examples" / "grafana" / "pilotage.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = metrics_of_board()
    source = Path(pilotage.__file__).parent / "server" / "http" / "routes" / "administration.py"
    known = set(re.findall(r"\"(pilotage_[a-z_]+)\"", source.read_text()))
    known |= set(re.findall(r"(pilotage_[a-z_]+) ", source.read_text()))
    assert asked <= known
    assert len(expressions) > 10
    assert all('job="$job"' in expression for expression in expressions)
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in board["panels"]]
    assert len(places) == len(set(places))
