"""Prints the figures of the house, which a round of cleaning compares before and after.

Lines are lines of Python files in `src`, blank ones and docstrings included. The kernel is `src` without extensions.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pilotage"
EXTENSIONS = SOURCE / "extensions"
SHORT = 60
"""Lines below which a file counts as short."""
WHOLE = ("Pool", "Context")
"""Classes with all parts of a server: a function that takes one takes everything."""


def figures() -> dict[str, int | str]:
    """Each figure by its name, in the order in which it is printed."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    lengths = {path: text.count("\n") for path, text in texts.items()}
    names = Counter(path.name for path in texts if path.name != "__init__.py")
    [(name, times)] = names.most_common(1)
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {
        "lines of src": sum(lengths.values()),
        "lines of the kernel": sum(
            length for path, length in lengths.items() if EXTENSIONS not in path.parents
        ),
        "files": len(lengths),
        f"files below {SHORT} lines": sum(length < SHORT for length in lengths.values()),
        "times of the most frequent file name": f"{times} ({name})",
        "parameters that are a whole Pool or Context": sum(
            annotation in WHOLE for text in texts.values() for annotation in _annotations(ast.parse(text))
        ),
        "words of documents": sum(
            len(re.findall(r"\S+", document.read_text(encoding="utf-8"))) for document in documents
        ),
        "decision records": len(list((ROOT / "docs" / "adr").glob("[0-9]*.md"))),
        "modules of tests": len(list((ROOT / "tests").rglob("test_*.py"))),
    }


def _annotations(module: ast.Module) -> Iterator[str]:
    """The annotation of each parameter of each function."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                if parameter.annotation is not None:
                    yield ast.unparse(parameter.annotation)


def main() -> None:
    """Print a line for each figure."""
    found = figures()
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {value:,}" if isinstance(value, int) else f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
