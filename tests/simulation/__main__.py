"""Replay a seed, or try many: `python -m tests.simulation --seed N` or `--seeds FROM-TO`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.mistakes import MISTAKES, MISTAKES_OF_OVERLAPS, MISTAKES_OF_SEVERAL, first_seed
from tests.simulation.seeds import commit
from tests.simulation.shrink import shrunk
from tests.simulation.world import History, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed")
    parser.add_argument("--seeds", help="try the seeds FROM-TO")
    parser.add_argument("--steps", action="store_true", help="print each fault that happened")
    parser.add_argument("--only", help="let only these faults happen: their numbers, separated by commas")
    parser.add_argument(
        "--no-shrink", action="store_true", help="do not look for the shortest history that fails"
    )
    parser.add_argument(
        "--mistake", action="append", help="make this mistake: the first seed that finds it; or `all`"
    )
    parser.add_argument(
        "--store",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="postgresql: two servers on one database",
    )
    parser.add_argument(
        "--interleaved",
        action="store_true",
        help="transactions of the two servers overlap; the histories are shorter",
    )
    parser.add_argument(
        "--isolation",
        choices=("REPEATABLE READ", "SERIALIZABLE"),
        default="",
        help="the level of transactions without messages of pilots (default: that of the product)",
    )
    given = parser.parse_args()
    if given.interleaved:
        given.store = "postgresql"
    if given.seeds:
        first, _, last = given.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
    else:
        seeds = range(given.seed or 0, (given.seed or 0) + 1)
    only = {int(number) for number in given.only.split(",")} if given.only else None
    if given.mistake:
        return find(given.mistake, seeds, given.store, interleaved=given.interleaved)
    failed, begun = [], time.perf_counter()
    for seed in seeds:
        history = simulate(
            seed, only, store=given.store, interleaved=given.interleaved, isolation=given.isolation
        )
        if history.failure:
            failed.append(seed)
            tell(history, steps=given.steps)
            if not given.no_shrink:
                shorter = shrunk(history, store=given.store, interleaved=given.interleaved)
                print(f"shortest history, {len(shorter.happened)} faults:")
                tell(shorter, steps=True)
        elif len(seeds) == 1:
            tell(history, steps=given.steps)
    if len(seeds) > 1:
        seconds = time.perf_counter() - begun
        print(f"{len(seeds)} seeds in {seconds:.0f} s, {len(failed)} failed: {failed}")
    return 1 if failed else 0


def find(names: list[str], seeds: range, store: str, *, interleaved: bool) -> int:
    missed = 0
    of_several = MISTAKES_OF_OVERLAPS if interleaved else MISTAKES_OF_SEVERAL
    known = MISTAKES if store == "sqlite" else of_several
    for name in known if names == ["all"] else names:
        found = first_seed(
            name, lambda seed: simulate(seed, store=store, interleaved=interleaved).failure, seeds
        )
        missed += found is None
        print(
            f"{name}: " + ("not found" if found is None else f"seed {found[0]}: {found[1][:200]}"), flush=True
        )
    return 1 if missed else 0


def tell(history: History, *, steps: bool) -> None:
    if history.failure:
        print(f"seed {history.seed} at {commit()[:8] or 'no commit'}: {history.failure}")
    else:
        print(
            f"seed {history.seed}: {history.jobs} jobs {history.states}, {len(history.happened)} faults,"
            f" {history.starts} starts, {history.messages} messages, {history.seconds:.0f} s, {history.digest}"
        )
    if history.overlaps:
        print(f"  {history.overlaps}")
    if steps:
        for at, fault in history.happened:
            print(f"  {at:8.1f} s: fault {fault}")


if __name__ == "__main__":
    sys.exit(main())
