"""Models of how Slurm and Grid Engine read flags, from their text alone: independent of the code that writes them.

`tests/contract/test_forwarding.py` compares the first with a real Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from pilotage.core.glue.information import Value

_TOKEN = re.compile(r"[A-Za-z0-9_.:=-]+|[&|(),]")


def slurm_accepts(constraint: str, features: Collection[str]) -> bool:
    """`&` and `|` of equal precedence from left to right, with parentheses of one level, as Slurm 22.05 reads them."""
    tokens = _TOKEN.findall(constraint)
    assert "".join(tokens) == constraint, f"Slurm would refuse {constraint!r}"
    value, rest = _chain(tokens, features, depth=0)
    assert not rest, constraint
    return value


def _chain(tokens: Sequence[str], features: Collection[str], depth: int) -> tuple[bool, Sequence[str]]:
    value, rest = _factor(tokens, features, depth)
    while rest and rest[0] in "&|,":
        operator = rest[0]
        right, rest = _factor(rest[1:], features, depth)
        value = (value or right) if operator == "|" else (value and right)
    return value, rest


def _factor(tokens: Sequence[str], features: Collection[str], depth: int) -> tuple[bool, Sequence[str]]:
    if tokens[0] == "(":
        assert depth == 0, "nested parentheses"
        value, rest = _chain(tokens[1:], features, depth + 1)
        assert rest[0] == ")"
        return value, rest[1:]
    return tokens[0] in features, tokens[1:]


def accepted_by_slurm(flags: Sequence[str], features: Collection[str], host: str, own: str = "") -> bool:
    """Whether a node takes a job with these flags; `own`: the constraint that comes before them."""
    options = dict(flag.split("=", 1) for flag in flags)
    constraint = options.pop("--constraint", own)
    excluded = options.pop("--exclude", "").split(",")
    assert not options, options
    return (not constraint or slurm_accepts(constraint, features)) and host not in excluded


def accepted_by_grid_engine(
    flags: Sequence[str],
    complexes: Mapping[str, tuple[str, str]],
    values: Mapping[str, Value],
    host: str,
) -> bool:
    """`complexes`: name → (relation, type), as in `qconf -sc`; `values`: of the host."""
    queues = [
        name
        for option, words in zip(flags[::2], flags[1::2], strict=True)
        for name in words.split(",")
        if option == "-q"
    ]
    if queues and not any(name in (host, f"*@{host}") for name in queues):
        return False
    requests = [
        request
        for option, words in zip(flags[::2], flags[1::2], strict=True)
        for request in words.split(",")
        if option == "-l"
    ]
    for request in requests:
        name, _, wanted = request.partition("=")
        relation, type_ = complexes[name]
        value = values.get(name)
        if value is None:
            return False
        if type_ == "restring":
            if value not in wanted.split("|"):
                return False
        elif type_ == "string":
            if value != wanted:
                return False
        else:
            assert isinstance(value, int | float)
            number = float(wanted.removesuffix("M"))
            fits = {"<=": number <= value, "<": number < value, "==": number == value}
            fits |= {">=": number >= value, ">": number > value}
            if not fits[relation]:
                return False
    return True
