"""`./bench NAME [--json] [options]`: the last line is one JSON object."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from dataclasses import asdict

from benchmarks.figure import Figure
from benchmarks.shapes import Absent
from benchmarks.speed import speed

NAMES = {
    "match": "matches/s, each committed with its event: in process, or with --http of a server",
    "plot": "what a match costs against jobs and queues: a picture in the docs, and its data",
    "restart": "s from the start of a server to the whole index of waiting jobs; reports of pilots before",
    "submit": "jobs/s from the client's call to all jobs waiting, durable",
    "life": "no-op jobs/s through submit, match, confirm, run /bin/true, finish with local pilots",
    "history": "jobs/s out of the hot table, of the writer's time: a million that have ended; pages of them",
    "shares": "ms of one share correction and all priorities after it: 5,000 queues, 1,000 owners, a month of use",
    "why": "ms of one answer of why, with a million waiting jobs in 5,000 queues",
    "all": "everything that docs/reference/benchmarks.md lists, and the table of aims and figures",
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(
            "usage: ./bench NAME [options]\n\n"
            + "\n".join(f"  {name:8} {text}" for name, text in NAMES.items())
        )
        return 2
    # Servers that were started end with the benchmark.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1]
    module = importlib.import_module("benchmarks.every" if name == "all" else f"benchmarks.{name}")
    parser = argparse.ArgumentParser(prog=f"./bench {name}", description=NAMES[name])
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
