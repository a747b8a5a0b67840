"""Answers of the match as messages: the order in which they are shown, and their text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.cli.time_format import format_duration
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.cli.console import CommandOutput
    from pilotage.core.brokering.ce_answer import CeAnswer
    from pilotage.wire.matchmaking import CeMatch, MatchReport

_ORDER = ("yes", "full", "closed", "refused", "no hosts", "impossible", "unfit", "unasked")


def ce_match(answer: CeAnswer) -> CeMatch:
    """The message for an answer of the match."""
    import msgspec

    from pilotage.core.brokering.ce_answer import as_plain

    return msgspec.convert(as_plain(answer), wire.matchmaking.CeMatch)


def fitting_first(answer: CeMatch) -> tuple[int, float, str]:
    """CEs that fit come first, of these the highest rank."""
    place = _ORDER.index(answer.verdict) if answer.verdict in _ORDER else len(_ORDER)
    return place, -answer.rank if answer.rank is not None else float("inf"), answer.ce


def show_report(screen: CommandOutput, report: MatchReport, now: float) -> None:
    """A block of facts for each CE, and the counts of verdicts."""
    if note := _describe_state(report.job_state):
        screen.note(f"note: {note}: the answer is for a new job like it")
    for warning in report.warnings:
        screen.note(f"warning: {warning}")
    for answer in report.ces:
        screen.facts(_facts(answer, now))
        screen.line()
    counts = ", ".join(
        f"{count} {verdict}" for verdict, count in sorted(report.verdicts.items(), key=_by_order)
    )
    screen.line(f"{plural(sum(report.verdicts.values()), 'CE')}: {counts}" if counts else "there is no CE")


def _describe_state(state: str) -> str:
    """Why the answer is not about the job itself; empty: it is, or there is no job."""
    from pilotage.core.jobs.states import FINAL, JobState

    if state in ("", JobState.WAITING, JobState.RESCHEDULED):
        return ""
    return f"the job has ended ({state})" if state in FINAL else f"the job does not wait ({state})"


def _by_order(item: tuple[str, int]) -> int:
    return _ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER)


def _facts(answer: CeMatch, now: float) -> Iterator[tuple[str, object]]:
    yield "CE", answer.ce
    reason = f": {answer.reason}" if answer.reason else ""
    yield "match", "yes" if answer.verdict == "yes" else f"{_word(answer.verdict)}{reason}"
    for refusal in answer.refusals:
        yield "said no" if refusal.side == "job" else "CE said no", refusal.text
    yield "rank", "" if answer.rank is None else f"{answer.rank:g}"
    yield "residual", answer.residual
    if answer.host_classes is not None and answer.fitting_classes is not None:
        yield "hosts", f"{answer.fitting_classes} of {answer.host_classes} classes fit"
    yield "flags", " ".join(answer.flags)
    yield "unmapped", answer.unmapped
    yield "forwarding", answer.forwarding
    if answer.hook:
        yield "hook", f"{answer.hook} decides further: it may add flags or refuse; it was not run"
    for name, value in sorted(answer.hook_environment.items()):
        if name not in ("PATH", "LANG"):
            yield "hook gets", f"{name}={_shown(value)}"
    yield "state", answer.state
    if answer.updated is not None:
        age = f"{format_duration(max(0.0, now - answer.updated))} old"
        yield "facts", f"{age}, expired: changing facts are unknown" if answer.is_expired else age


MOST_SHOWN = 500
"""Characters of one variable of a hook."""


def _shown(value: str) -> str:
    """A value on one line, as a shell would take it."""
    from shlex import quote

    text = value if len(value) <= MOST_SHOWN else f"{value[:MOST_SHOWN]} ..."
    return quote(text.replace("\n", "\\n")) if text else ""


def _word(verdict: str) -> str:
    return verdict if verdict in ("full", "closed", "unasked") else "no"
