"""The pages about the code name files and rooms that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "pilotage"
EXPLANATION = ROOT / "docs" / "explanation"
WALKS = ["one-job-through-the-code.md", "one-request-through-the-code.md"]
PATH = re.compile(r"`([a-z_]+/[a-z_/]+(?:\.py)?)`")
FLOORS = ["core", "services", "store", "server"]


@pytest.mark.parametrize("page", WALKS)
def test_walks_name_files_that_exist(page: str) -> None:
    named = set(PATH.findall((EXPLANATION / page).read_text(encoding="utf-8"))) - {"src/pilotage"}
    assert len(named) > 30
    assert [path for path in sorted(named) if not (SOURCE / path).exists()] == []


def rows_of_table(floor: str) -> list[list[str]]:
    """The rooms of each row of architecture.md's table of a floor."""
    text = (EXPLANATION / "architecture.md").read_text(encoding="utf-8")
    _, _, table = text.partition(f"| `{floor}` | contents |\n|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    return [re.findall(r"`(\w+)`", row.split("|")[1]) for row in rows]


def layers_of_contract(floor: str) -> list[list[str]]:
    """The folders of each layer of a floor's import contract."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = configuration["tool"]["importlinter"]["contracts"]
    contract = next(contract for contract in contracts if contract["name"] == f"Rooms of {floor}")
    layers = [layer.split(" | ") for layer in contract["layers"]]
    folders = [[room for room in layer if (SOURCE / floor / room).is_dir()] for layer in layers]
    return [layer for layer in folders if layer]


@pytest.mark.parametrize("floor", FLOORS)
def test_architecture_names_the_rooms_of_the_contracts(floor: str) -> None:
    assert rows_of_table(floor) == layers_of_contract(floor)
