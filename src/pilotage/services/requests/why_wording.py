"""The words of `why` for requests: the condition of the closest site, and the change to begin with."""

from __future__ import annotations

from collections.abc import Sequence, Set

from pilotage.core.workqueue.why import ElementUnblock, Hold, SiteVerdict, closeness, opening

CHANGES_SHOWN = 20
SITES_NAMED = 3

_CLOSED = frozenset({Hold.DOWN, Hold.DRAINED, Hold.BANNED_BY_POLICY, Hold.DRAINED_BY_POLICY})


def closest_condition(rows: Sequence[SiteVerdict]) -> str:
    """The condition of the sites that come closest, with their names: these fail at the last condition."""
    refused = [(closeness(row.verdict), row) for row in rows if row.verdict is not None]
    if not refused:
        return "the policy has no site"
    last = max(place for place, _ in refused)
    closest = [row for place, row in refused if place == last]
    names = [row.site for row in closest]
    more = f" and {len(names) - SITES_NAMED} more" if len(names) > SITES_NAMED else ""
    return f"{closest[0].verdict} ({', '.join(names[:SITES_NAMED])}{more})"


def best_advice(
    rows: Sequence[SiteVerdict], changes: Sequence[ElementUnblock], closed_by_policy: Set[str]
) -> str:
    """The change with the largest effect. If no single one helps, a site that is closed is the first to open."""
    if changes:
        return f"{changes[0].change} (would let {changes[0].number:,} go)"
    closed = [row for row in rows if row.verdict in _CLOSED]
    if not closed:
        return ""
    first = max(closed, key=lambda row: row.number).site
    return f"{opening(first, in_policy=first in closed_by_policy)}; that alone is not enough"
