"""Before the request of the quickstart: describe the standard library of this Python as a data set.

    python manifest.py > manifest.json

Packages are blocks, modules are files, and lines are events. The standard library's own tests are left out.
"""

import json
import sys
import sysconfig
from pathlib import Path

SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3"}
MODULES = "modules"
"""The block of modules that are in no package."""


def describe(stdlib: Path) -> dict[str, object]:
    blocks: dict[str, list[dict[str, object]]] = {}
    for file in sorted(stdlib.rglob("*.py")):
        path = file.relative_to(stdlib)
        if SKIPPED.isdisjoint(path.parts):
            block = path.parts[0] if len(path.parts) > 1 else MODULES
            content = file.read_bytes()
            entry = {"name": str(path), "size": len(content), "events": content.count(b"\n")}
            blocks.setdefault(block, []).append(entry)
    return {
        "prefix": str(stdlib),
        "closed": True,
        "blocks": [{"name": name, "files": files} for name, files in blocks.items()],
    }


if __name__ == "__main__":
    json.dump(describe(Path(sysconfig.get_path("stdlib"))), sys.stdout, indent=1)
