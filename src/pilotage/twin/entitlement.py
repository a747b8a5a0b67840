"""The entitlement of parties that share cores, by their weights and by how much each can use."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Party = TypeVar("Party", bound=Hashable)


def entitled_cores(
    cores: float, weights: Mapping[Party, float], demands: Mapping[Party, float]
) -> dict[Party, float]:
    """The cores that each party with a demand is entitled to.

    Each gets its part by weight, at most its demand. Cores that a party does not need are divided among the others in
    the same way. Parties of weight 0 get the rest.
    """
    parts = {party: 0.0 for party, demand in demands.items() if demand > 0}
    open_parties = {party for party in parts if weights.get(party, 0.0) > 0}
    left = cores
    while open_parties and left > 1e-9:
        total = sum(weights[party] for party in open_parties)
        each = left / total
        sated = {party for party in open_parties if demands[party] <= each * weights[party]}
        for party in sated or open_parties:
            parts[party] = min(demands[party], each * weights[party])
            left -= parts[party]
        open_parties = open_parties - sated if sated else set()
    unweighted = {party: demands[party] for party in parts if weights.get(party, 0.0) <= 0}
    if unweighted and left > 1e-9:
        parts |= entitled_cores(left, dict.fromkeys(unweighted, 1.0), unweighted)
    return parts
