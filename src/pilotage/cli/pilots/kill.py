"""`pilotage pilot kill`: end pilots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import ReasonOption, Session, YesOption, connected
from pilotage.client.selections import parse_ids
from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.pilots import PilotKillResponse

REFUSALS_SHOWN = 10

DONE = {
    "drain": "told to leave after the running jobs",
    "cancel": "told to give jobs back and leave at the next call",
    "kill": "told to end at once",
}

NOT_CALLED = "without a call home yet: the batch system cancels at its next listing"


def summary(answer: PilotKillResponse, order: str, *, dry_run: bool) -> Iterator[str]:
    """The lines that tell how the pilots end: first the pilots that have called home, then the others."""
    called = answer.done - answer.not_called
    if dry_run:
        yield f"{answer.done:,} of {plural(answer.matched, 'pilot')} would get this order"
        return
    if called or not answer.not_called:
        yield f"{called:,} of {plural(answer.matched, 'pilot')} {DONE[order]}"
    if answer.not_called:
        yield f"{answer.not_called:,} of {plural(answer.matched, 'pilot')} {NOT_CALLED}"


@connected
def kill(
    session: Session,
    ids: Annotated[list[str] | None, CommandArgument("Pilot ids: 12, 12-40 or 12,15", "[ID]...")] = None,
    ce: Annotated[str, CommandOption("All live pilots of this CE", "NAME")] = "",
    drain: Annotated[bool, CommandOption("Let the present jobs end first, and take no more")] = False,
    now: Annotated[
        bool, CommandOption("Cancel the batch jobs too, without waiting for the next call")
    ] = False,
    dry_run: Annotated[bool, CommandOption("Only print the number of pilots")] = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
) -> None:
    """End pilots; their jobs wait again and lose no try (administrators).

    A pilot gives its jobs back at its next call, and leaves. One that has not called home is cancelled in its batch
    system. To submit no further pilots to a CE, disable it first: `pilotage ce disable`.
    """
    if drain and now:
        raise InvalidInput("--drain and --now exclude each other")
    if bool(ids) == bool(ce):
        raise InvalidInput("name pilots by id, or a CE with --ce, one of the two")
    numbers = parse_ids(ids) if ids else None
    order = "drain" if drain else "kill" if now else "cancel"
    with session.client() as client:
        if ce and not yes and not dry_run:
            would = client.kill_pilots(ce=ce, order=order, dry_run=True)
            question = f"end {plural(would.done, 'pilot')} of CE {ce}?"
            if would.done and not session.screen.ask(question):
                raise InvalidInput(f"nothing done: {question}", hint="use -y to skip the confirmation")
        answer = client.kill_pilots(numbers, ce=ce, order=order, dry_run=dry_run, reason=reason)
    session.screen.json(answer)
    for line in summary(answer, order, dry_run=dry_run):
        session.screen.line(line)
    for refusal in answer.refused[:REFUSALS_SHOWN]:
        session.screen.note(f"pilot {refusal.pilot}: {refusal.message}")
    if answer.matched - answer.done > REFUSALS_SHOWN:
        session.screen.note(f"... {plural(answer.matched - answer.done, 'pilot')} did not get the order")
    if not answer.matched:
        raise NotFound(f"CE {ce} has no live pilot")
    if not answer.done and not dry_run:
        raise Conflict("none of these pilots can be ended", hint="see `pilotage pilot list --all`")
