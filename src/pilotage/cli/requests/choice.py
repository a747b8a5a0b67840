"""Requests that a command is for: by their numbers, or by a filter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.option_groups import OptionGroup
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, YesOption
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.plurals import plural
from pilotage.core.requests.states import RequestState

if TYPE_CHECKING:
    from pilotage.client import Client

NUMBERS_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class RequestOptions(OptionGroup):
    """Options that choose requests."""

    state: Annotated[list[str] | None, CommandOption("Only in this state; may be repeated", "STATE")] = None
    owner: Annotated[str, CommandOption("Only of this owner", "NAME")] = ""
    campaign: Annotated[str, CommandOption("Only of this campaign", "TEXT")] = ""
    name: Annotated[str, CommandOption("Only with this name", "NAME")] = ""

    def states(self, default: Iterable[RequestState]) -> list[str]:
        """The states that the options name; `default`: they name none. Raises InvalidInput for an unknown state."""
        return [_known_state(text) for text in self.state or ()] or [str(state) for state in default]


@dataclass(frozen=True, kw_only=True)
class RequestChoice(RequestOptions):
    """Options of a command that changes requests."""

    yes: YesOption = False

    @property
    def _is_given(self) -> bool:
        return bool(self.state or self.owner or self.campaign or self.name)

    def check(self, numbers: list[int]) -> None:
        """Raise InvalidInput unless the requests are named by numbers or by options, and not by both."""
        if numbers and self._is_given:
            raise InvalidInput(
                "both numbers and a filter choose requests", hint="give numbers, or --state, --campaign, ..."
            )
        if not numbers and not self._is_given:
            raise InvalidInput(
                "no request is chosen", hint="give numbers, or a filter: --state, --owner, --campaign, --name"
            )

    def requests(
        self, session: Session, client: Client, numbers: list[int], verb: str, default: Iterable[RequestState]
    ) -> list[int]:
        """The numbers of the chosen requests, oldest first. A person confirms requests that the filter chooses.

        `default`: the states that the verb is for. Raises NotFound if there is none, InvalidInput without confirmation.
        """
        if numbers:
            return numbers
        rows = client.requests(
            states=self.states(default), owner=self.owner, campaign=self.campaign, name=self.name
        )
        chosen = sorted(row.id for row in rows)
        if not chosen:
            raise NotFound(
                "no request fits the filter", hint="`pilotage request list --all` shows all requests"
            )
        more = f" and {len(chosen) - NUMBERS_SHOWN:,} more" if len(chosen) > NUMBERS_SHOWN else ""
        named = f"{', '.join(map(str, chosen[:NUMBERS_SHOWN]))}{more}"
        question = f"{verb} {plural(len(chosen), 'request')} ({named})?"
        if not (self.yes or session.screen.ask(question)):
            raise InvalidInput(f"nothing done: {question}", hint="use -y to skip the confirmation")
        return chosen


def _known_state(text: str) -> str:
    try:
        return str(RequestState(text))
    except ValueError:
        states = ", ".join(RequestState)
        raise InvalidInput(f"{text!r} is no state of requests", hint=f"states: {states}") from None
