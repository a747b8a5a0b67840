"""An expression with the answers that are known for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pilotage.core.brokering.ad_columns import NumberedAd
from pilotage.core.brokering.dependencies import Dependencies
from pilotage.core.classads import Expression


@dataclass(slots=True, eq=False)
class Part:
    """Its answers are kept by the names and values of both ads that count."""

    expression: Expression
    needs: Dependencies
    answers: dict[Any, Any] = field(default_factory=dict)


def own_key(requester: NumberedAd, needs: Dependencies) -> Any:
    """The values of a requester that count."""
    whole, names = needs.needs_whole_ad, needs.names
    return tuple([item for item in requester.numbers.items() if whole or item[0] in names])
