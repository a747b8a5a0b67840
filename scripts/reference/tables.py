"""The tables of docs/reference that show a specification of the core: states, hand-overs, reasons to wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from pilotage.core import handover
from pilotage.core.pilots import handover as pilot_handover
from pilotage.core.pilots.waits import DAY, RULES, SETTLED, WaitClass
from pilotage.core.requests.states import EDITABLE, RequestState
from pilotage.core.state_table import Row, State, StateTable
from pilotage.outside.batch.sge.wait_reasons import SENTENCES
from pilotage.outside.batch.slurm.wait_reasons import REASONS


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *rows])


def state_diagram(table: StateTable[State]) -> str:
    """The diagram of a state table, in mermaid's state diagram language."""
    lines = ["stateDiagram-v2", f"    [*] --> {table.initial}"]
    for old, row in table.rows.items():
        lines += [f"    {old} --> {new}" for new in _in_order(table.rows, row.next)]
        if not row.next:
            lines.append(f"    {old} --> [*]")
    return "\n".join(lines)


def state_table(table: StateTable[State]) -> str:
    rows = [
        f"| {old} | {row.meaning} | {row.moved_by} |"
        f" {', '.join(_in_order(table.rows, row.next)) or '(final)'} |"
        for old, row in table.rows.items()
    ]
    return _table("state | meaning | moved on by | may become", rows)


def _in_order(rows: Mapping[State, Row[State]], states: Iterable[State]) -> list[State]:
    order = {state: place for place, state in enumerate(rows)}
    return sorted(states, key=lambda state: order[state])


def editable_facts() -> str:
    """Each fact of a request, and the states in which it may be changed."""
    rows = [
        f"| {fact} | {', '.join(state for state in RequestState if state in states)} |"
        for fact, states in EDITABLE.items()
    ]
    return _table("fact | may be changed in", rows)


def hand_over_of_jobs() -> str:
    rows = [f"| {p} | {m} | {r} | {d.answer} | {d.effect} |" for (p, m, r), d in handover.TABLE.items()]
    return _table("custody | message | relation | answer | effect", rows)


def hand_over_of_pilots() -> str:
    rows = [f"| {p} | {s} | {d.action} | {d.next} |" for (p, s), d in pilot_handover.TABLE.items()]
    return _table("phase | seen | action | next phase", rows)


def classes_of_waits() -> str:
    rows = []
    for wait, (action, seconds) in RULES.items():
        after = "" if seconds == inf else "`settle`" if seconds == SETTLED else f"{seconds / DAY:.0f} days"
        rows.append(f"| {wait} | {action} | {after} |")
    return _table("class | action | after", rows)


def reasons_of_slurm() -> str:
    words = {
        wait: [f"`{word}`" for word, known in REASONS.items() if known is wait and word] for wait in WaitClass
    }
    return _table(
        "class | reasons", [f"| {wait} | {', '.join(named)} |" for wait, named in words.items() if named]
    )


def sentences_of_grid_engine() -> str:
    rows = [f"| {wait} | `{pattern.replace('|', chr(92) + '|')}` |" for pattern, wait in SENTENCES]
    return _table("class | pattern", rows)
