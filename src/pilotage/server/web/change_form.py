"""A change that is shown before it is made: its effect, and a form with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.responses import Response

from pilotage.server.web.visit import Visit


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """Words and fields of the form."""

    title: str
    effects: Sequence[str]
    button: str
    action: str
    """The address that takes the form, relative to the first page."""
    back: str
    """The page to go back to."""
    fields: Mapping[str, str] = field(default_factory=dict)
    danger: bool = False
    needs_reason: bool = False
    inputs: Sequence[tuple[str, str, str]] = ()
    """Further fields to fill in: (name, words, value)."""
    takes_reason: bool = True
    file: str = ""
    """The words of a field for files; empty: it has none."""


async def ask_first(visit: Visit, form: ChangeForm) -> Response:
    """The page with the form. Nothing is changed."""
    return await visit.render("change_form.html", form=form)
