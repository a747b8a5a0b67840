"""One class name has one meaning in the whole program."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pilotage
from tests.unit.docs.program import parsed

SOURCE = Path(pilotage.__file__).parent


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(path.relative_to(SOURCE).as_posix())
    assert not {name: files for name, files in places.items() if len(files) > 1}
