"""The program knows no plug-in by its name: capabilities are class variables, and registries find the classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.core.requests.start_policies import START_POLICIES
from pilotage.core.shares.correctors import CORRECTORS
from pilotage.core.splitting.algorithms import ALGORITHMS
from tests.unit.docs.program import parsed

ADAPTERS = "pilotage.outside.batch"
SRC = Path(__file__).parents[3] / "src"
PLUG_INS = {
    **{
        name: kind.__module__
        for name, kind in (*ALGORITHMS.items(), *CORRECTORS.items(), *BATCH_SYSTEMS.items())
    },
    **{name: type(policy).__module__ for name, policy in START_POLICIES.items()},
}
"""The module of each plug-in, by its name."""
EXCUSED = {
    "pilotage/core/requests/specification.py": "the defaults of a request",
    "pilotage/core/policy/dirac_cfg/corrections.py": "reads DIRAC's configuration of its corrector",
    "pilotage/core/policy/preset.py": "the keys of DIRAC's corrector, as DIRAC sets them",
    "pilotage/services/shares/corrections.py": "shows use that nothing corrects by the slices of one corrector",
}


def texts(tree: ast.AST) -> Iterator[str]:
    """Texts, and attributes that are read or tested by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def misplaced(name: str, source: str) -> set[str]:
    """The plug-ins that a file of another place names or imports. Plug-ins of a kind may build on each other."""
    tree = parsed(source)
    said, modules = set(texts(tree)), set(imported(tree))
    own = name.removesuffix(".py").replace("/", ".")
    return {
        plug_in
        for plug_in, module in PLUG_INS.items()
        if not f"{own}.".startswith((module.rpartition(".")[0], f"{ADAPTERS}.{plug_in}."))
        and (plug_in in said or not modules.isdisjoint({module, f"{ADAPTERS}.{plug_in}"}))
    }


def test_no_file_knows_a_plug_in() -> None:
    found = {}
    for file in sorted(SRC.rglob("*.py")):
        name = file.relative_to(SRC).as_posix()
        if known := misplaced(name, file.read_text("utf-8")):
            found[name] = known
    assert {name: known for name, known in found.items() if name not in EXCUSED} == {}
    assert set(EXCUSED) <= set(found)
