"""The server is away: requests of an executor outlive that, and stderr tells it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pilotage.client.polling import PollInterval
from pilotage.core.errors import Overloaded, PilotageError, Unreachable

if TYPE_CHECKING:
    from pilotage.client.api import Client

T = TypeVar("T")


class Outages:
    """The outages of the server of one executor. Each is told once, after a few seconds."""

    def __init__(self, client: Client) -> None:
        self._told = False
        client.tell_outages(self._tell)

    def persist(self, action: Callable[[], T]) -> T:
        """Do it again while the server is away: calls that were given are kept."""
        pace = PollInterval(0.2, 10.0)
        while True:
            try:
                answer = action()
            except (Unreachable, Overloaded) as trouble:
                self._tell(trouble)
                pace.pause(False)
            else:
                self._over()
                return answer

    def _tell(self, trouble: PilotageError) -> None:
        if not self._told:
            self._told = True
            hint = f" ({trouble.hint})" if trouble.hint else ""
            _print(
                f"{trouble.message}; trying again{hint}. Ctrl-C ends the wait, and jobs that were sent go on."
            )

    def _over(self) -> None:
        if self._told:
            self._told = False
            _print("the server answers again")


def _print(text: str) -> None:
    print(f"pilotage: {text}", file=sys.stderr, flush=True)
