"""`./bench NAME [--json] [options]`: the last line is one JSON object."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.shapes import Absent
from benchmarks.speed import speed

FOLDER = Path(__file__).parent
FILES = {"all": "every"}
"""Benchmarks whose module has another name, since `all` is a function of Python."""


def summaries() -> dict[str, str]:
    """The benchmarks by name: each module of this folder with a `SUMMARY`. Read, not imported: that would be slow."""
    found = {}
    names = {file: name for name, file in FILES.items()}
    for file in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SUMMARY":
                found[names.get(file.stem, file.stem)] = str(ast.literal_eval(node.value))
    return found


def main() -> int:
    known = summaries()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        print(
            "usage: ./bench NAME [options]\n\n"
            + "\n".join(f"  {name:8} {text}" for name, text in known.items())
        )
        return 2
    # Servers that were started end with the benchmark.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1]
    module = importlib.import_module(f"benchmarks.{FILES.get(name, name)}")
    parser = argparse.ArgumentParser(prog=f"./bench {name}", description=known[name])
    parser.add_argument("--json", action="store_true", help="the JSON line only")
    module.options(parser)
    options = parser.parse_args(sys.argv[2:])
    before = speed()
    try:
        figure: Figure = module.run(options)
    except Absent as reason:
        print(f"{name}: {reason}", file=sys.stderr)
        print(json.dumps({"name": name, "skipped": str(reason)}))
        return 0
    figure.notes["speed"] = (
        f"{before:.1f} and {speed():.1f} million turns of a loop a second, before and after"
    )
    if not options.json:
        figure.print()
    print(json.dumps(asdict(figure)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
