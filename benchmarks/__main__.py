"""`./bench NAME [--json] [options]`: the last line is one JSON object."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import asdict

from benchmarks.figure import Figure

NAMES = {
    "submit": "jobs/s from the client's call to all jobs waiting, durable",
    "match": "matches/s, each committed with its event: in process, or with --http of a server",
    "plot": "what a match costs against jobs and queues: a picture in the docs, and its data",
    "life": "no-op jobs/s through submit, match, confirm, run /bin/true, finish with local pilots",
    "restart": "s from the start of a server to the whole index of waiting jobs; reports of pilots before",
    "history": "jobs/s out of the hot table, of the writer's time: a million that have ended; pages of them",
    "shares": "ms of one share correction and all priorities after it: 5,000 queues, 1,000 owners, a month of use",
    "why": "ms of one answer of why, with a million waiting jobs in 5,000 queues",
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in (*NAMES, "all"):
        print(
            "usage: ./bench NAME [options]\n\n"
            + "\n".join(f"  {name:8} {text}" for name, text in NAMES.items())
        )
        return 2
    names = list(NAMES) if sys.argv[1] == "all" else [sys.argv[1]]
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        parser = argparse.ArgumentParser(prog=f"./bench {name}", description=NAMES[name])
        parser.add_argument("--json", action="store_true", help="the JSON line only")
        module.options(parser)
        options = parser.parse_args(sys.argv[2:] if len(names) == 1 else [])
        figure: Figure = module.run(options)
        if not options.json:
            figure.print()
        print(json.dumps(asdict(figure)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
