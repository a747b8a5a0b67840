"""Methods of the client for pilots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client import polling
from pilotage.client.polling import LogPiece
from pilotage.client.typed_requests import TypedRequests, verb_on
from pilotage.core.errors import InvalidInput
from pilotage.core.pilots.states import FINAL
from pilotage.wire.queries import PageQuery

if TYPE_CHECKING:
    from pilotage.wire.pilots import PilotKillResponse
    from pilotage.wire.pool import PilotSummary

FINAL_STATES = frozenset(str(state) for state in FINAL)

KILL_TIMEOUT = 600.0
"""Seconds; the pilots of a large CE are ordered a few at a time."""


class PilotMethods(TypedRequests):
    """Methods of the client that list, show and end pilots."""

    def pilots(self) -> Iterator[PilotSummary]:
        """Iterate over the pilots, live and ended, newest first."""
        return self._pages(wire.pool.LIST_PILOTS, PageQuery(), lambda answer: answer.pilots)

    pilot = verb_on(lambda: wire.pilots.SHOW_PILOT)

    def pilot_log(self, pilot: int, offset: int | None = None) -> LogPiece:
        """Return the part of a pilot's own output from byte `offset` on, or else its end. Administrators only.

        Raises NotFound, with the reason, if the server has none.
        """
        answer = self._transport.send(
            wire.pilots.READ_PILOT_LOG, wire.pilots.PilotLogQuery(offset), pilot=pilot
        )
        begin = answer.headers.get("x-pilotage-offset", "0")
        return LogPiece(int(begin), answer.content, answer.headers.get("x-pilotage-state", ""))

    def pilot_logs(self, pilot: int, *, follow: bool = False) -> Iterator[LogPiece]:
        """Iterate over the end of a pilot's own output; with `follow`, until the pilot has ended."""
        piece = self.pilot_log(pilot)
        yield piece
        if follow:
            end = piece.offset + len(piece.data)
            yield from polling.follow_log(partial(self.pilot_log, pilot), FINAL_STATES, end)

    def kill_pilots(
        self,
        ids: Iterable[int] | None = None,
        *,
        ce: str = "",
        order: str = "cancel",
        dry_run: bool = False,
        reason: str = "",
    ) -> PilotKillResponse:
        """End the pilots `ids`, or all live pilots of a CE. Their jobs wait again. Administrators only.

        `order`: "drain" lets the present jobs end, "cancel" gives them back at the pilot's next call, "kill" also has
        the batch system cancel the batch job. Pilots that have not called home are always killed.
        """
        named = None if ids is None else list(ids)
        if (named is None) == (not ce):
            raise InvalidInput("name pilots by id, or a CE")
        if named is None:
            pieces: list[dict[str, object]] = [{"ce": ce}]
        else:
            steps = range(0, len(named), wire.pilots.MAX_PILOT_IDS)
            pieces = [{"ids": named[first : first + wire.pilots.MAX_PILOT_IDS]} for first in steps]
        total = wire.pilots.PilotKillResponse(0, 0)
        for piece in pieces:
            # Not a PilotKill: a condition that was not given is left out, `null` is refused.
            body = {**piece, "order": order, "dry_run": dry_run, "reason": reason}
            part = self._transport.call(wire.pilots.KILL_PILOTS, body, timeout=KILL_TIMEOUT)
            total.matched += part.matched
            total.done += part.done
            total.refused += part.refused
        return total
