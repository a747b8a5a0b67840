"""Counts against expected shares, without a statistics library."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pilotage.core.queues.indexed_queue import IndexedQueue


def chi_square_limit(freedom: int, z: float = 4.0) -> float:
    """Exceeded by chance about once in 30,000 (Wilson-Hilferty, z = 4); seeds are fixed besides."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + z * math.sqrt(part)) ** 3


def assert_shares(counts: Mapping[Any, int], shares: Mapping[Any, float]) -> None:
    """That `counts` are draws of the distribution `shares`, which add up to 1."""
    assert math.isclose(sum(shares.values()), 1, abs_tol=1e-9)
    total = sum(counts.values())
    impossible = {key for key, share in shares.items() if not share}
    assert not {key for key in counts if counts[key]} - (shares.keys() - impossible)
    possible = {key: share for key, share in shares.items() if share}
    assert all(total * share >= 5 for share in possible.values()), "too few draws to tell"
    found = sum(
        (counts.get(key, 0) - total * share) ** 2 / (total * share) for key, share in possible.items()
    )
    assert found < chi_square_limit(max(1, len(possible) - 1)), (dict(counts), dict(shares))


def assert_alike(one: Counter[Any], two: Counter[Any], z: float = 4.0) -> None:
    """That two samples are of one distribution; kinds too rare to tell are taken together."""
    n, m = one.total(), two.total()
    keys = [key for key in one.keys() | two.keys() if one[key] + two[key] >= 10]
    rest = (n - sum(one[key] for key in keys), m - sum(two[key] for key in keys))
    pairs = [(one[key], two[key]) for key in keys] + ([rest] if sum(rest) >= 10 else [])
    if len(pairs) < 2:
        return
    found = sum((a * math.sqrt(m / n) - b * math.sqrt(n / m)) ** 2 / (a + b) for a, b in pairs)
    assert found < chi_square_limit(len(pairs) - 1, z), (one, two)


def first_of_owner(drawn: IndexedQueue, candidates: Sequence[IndexedQueue]) -> list[IndexedQueue]:
    """The queues of its owner with the highest UserPriority; the drawn one alone if it is one of them."""

    def owner(one: IndexedQueue) -> tuple[str, str]:
        return one.identity.owner, one.identity.group

    highest = {
        one: max(weight for weight, part in one.levels.items() if part.count)
        for one in candidates
        if owner(one) == owner(drawn)
    }
    first = [one for one, priority in highest.items() if priority == max(highest.values())]
    return [drawn] if drawn in first else first
