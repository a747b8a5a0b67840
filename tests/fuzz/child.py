"""The process that reads the texts. Standard output has the number of each case before it is tried, and failures."""

from __future__ import annotations

import json
import os
import sys
import traceback
from random import Random

from pilotage.core.errors import InvalidInput
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS


def text_of(target: str, seed: int, number: int) -> str:
    """The same text for the same case, always."""
    return mutated(Random(f"{target} {seed} {number}"), TARGETS[target].corpus)


def attempt(target: str, text: str) -> str:
    """What is wrong with how a text was read; empty: nothing."""
    try:
        TARGETS[target].read(text)
    except InvalidInput as error:
        try:
            str(error).encode()
        except UnicodeEncodeError:
            return "the message cannot be encoded"
        return ""
    except Exception:
        return traceback.format_exc()
    return ""


def main(seed: int, first: int, last: int, targets: list[str]) -> None:
    for place in range(first, last):
        number, turn = divmod(place, len(targets))
        target = targets[turn]
        os.write(1, f"{place}\n".encode())
        wrong = attempt(target, text_of(target, seed, number))
        if wrong:
            os.write(1, (json.dumps([target, number, wrong]) + "\n").encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(","))
