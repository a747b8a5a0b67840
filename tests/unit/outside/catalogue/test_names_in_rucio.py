"""Two files never have one name in Rucio, and one file always has the same name, which Rucio takes."""

from __future__ import annotations

import random
import re

from pilotage.outside.catalogue.rucio.registration import LONGEST_NAME, name_below

ODD = "ab.-_ +/#?%*ü\n"


def test_plain_names_stay_as_they_are() -> None:
    assert name_below("out", "1/2-0/f.txt") == "out.1.2-0.f.txt"
    assert name_below("out", "1/2-0-17/f.txt") == "out.1.2-0-17.f.txt"
    assert name_below("out", "here.2") == "out.here.2"


def test_different_files_have_different_names_that_rucio_takes() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    texts = {"1/2-0/a b.txt", "1/2-0/a+b.txt", "1/2-0/a_b.txt", "1/2-0/a/b.txt", "1/2-0/a.b.txt"}
    texts |= {"1/2-0/" + "".join(draw.choices(ODD, k=draw.randrange(1, 5))) for _ in range(2000)}
    texts |= {"1/2-0/" + "x" * draw.randrange(200, 900) + str(number) for number in range(200)}
    names = [name_below("out.put", text) for text in texts]
    assert len(set(names)) == len(texts)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
        assert len(name) <= LONGEST_NAME
