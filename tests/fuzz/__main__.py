"""`python -m tests.fuzz --seconds 600`: all parsers, in turns. Exit code 1 if anything but InvalidInput came out.

`--replay TARGET:SEED:NUMBER` reads one text again, and prints it.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.child import attempt, text_of
from tests.fuzz.runner import run
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--only", action="append", choices=sorted(TARGETS), help="one parser, may be repeated"
    )
    parser.add_argument("--replay", metavar="TARGET:SEED:NUMBER")
    options = parser.parse_args()
    if options.replay:
        target, seed, number = options.replay.split(":")
        text = text_of(target, int(seed), int(number))
        print(repr(text))
        print(attempt(target, text) or "fine")
        return 0
    outcome = run(options.only or list(TARGETS), options.seed, seconds=options.seconds)
    for target, count in outcome.cases.items():
        print(f"{target:12} {count:>10,} cases")
    print(f"seed {options.seed}: {outcome.cases.total():,} cases, {len(outcome.failures)} failures")
    for target, number, why in outcome.failures[:20]:
        print(f"\n--replay {target}:{options.seed}:{number}\n{why}")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
