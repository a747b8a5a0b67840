"""The page docs/reference/forwarding.md: rules, and a matrix of the batch systems, made from their tables."""

from __future__ import annotations

from collections.abc import Mapping

from pilotage.core.forwarding.hook import VARIABLES
from pilotage.core.forwarding.table import ForwardTable, HostSelection

_SYNTAX = (
    (
        "feature NAME_{}",
        "a host with the value V has the feature NAME_V",
        "any condition, by the features of the known values",
    ),
    ("feature NAME", "a host has the feature if the attribute is true", "the attribute is true"),
    (
        "complex NAME RELATION",
        "a requestable resource that holds an integer, with its relop of `qconf -sc` in Grid Engine",
        "`<=`, `<`: lower bounds; `>=`, `>`: upper bounds; `==`: one value",
    ),
    ("complex NAME ==", "the complex is of type BOOL", "true or false, where the values of hosts are known"),
    ("complex NAME RELATION real", "the same with real numbers", "bounds as strict as the relation"),
    ("complex NAME RELATION megabytes", "the same; the attribute counts MB (2^20 bytes)", "bounds"),
    ("complex NAME == string", "the complex is of type STRING", "one text"),
    ("complex NAME == cstring", "the complex is of type CSTRING: its case does not count", "one text"),
    ("complex NAME == restring", "the complex is of type RESTRING", "one of several texts"),
    (
        "attribute NAME",
        "the machine's own attribute has the same value, for HTCondor",
        "any condition with operators, conditionals, `member`, `toLower`, `toUpper` and `isUndefined`",
    ),
    ("option --NAME", "an option of the table below", "a lower bound of an integer"),
    (
        "wall",
        "the pilot's own time limit asks for a queue with this wall time",
        "a lower bound that is at most `wall` of the CE",
    ),
    ("none", "never forwarded", ""),
)
"""Each form of a rule, its meaning, and the conditions that it says."""


def forwarding_markdown(tables: Mapping[str, ForwardTable]) -> str:
    """The tables of the page. `tables`: by type of CE."""
    parts = ["## Rules", "", "| rule | meaning | says |", "|---|---|---|"]
    parts += [f"| `{rule}` | {meaning} | {says} |" for rule, meaning, says in _SYNTAX]
    parts += ["", "## Batch systems", "", *_matrix(tables)]
    for name, table in tables.items():
        parts += ["", f"### {name}", "", *_details(table)]
    parts += ["", "## Variables of the hook", "", "| variable | meaning |", "|---|---|"]
    parts += [f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()]
    return "\n".join(parts) + "\n"


def _matrix(tables: Mapping[str, ForwardTable]) -> list[str]:
    rows = {
        "values as features of hosts": {
            name: _option(table.feature_option) for name, table in tables.items()
        },
        "values as requestable resources (complexes)": {
            name: _option(table.complex_option) for name, table in tables.items()
        },
        "expressions over attributes of machines": {
            name: _option(table.expression_option) for name, table in tables.items()
        },
        "options that restrict hosts and allocate nothing": {
            name: ", ".join(map(_option, table.options)) for name, table in tables.items()
        },
        "wall time of the queue": {
            name: "time limit of the pilot" if table.has_wall else "" for name, table in tables.items()
        },
        "names of hosts (`host_selection`)": {
            name: _selection(table) if table.selection is not HostSelection.NONE else ""
            for name, table in tables.items()
        },
        "hook (`forward_hook`)": {
            name: "yes" if table.hook_options else "" for name, table in tables.items()
        },
    }
    head = ["| said by | " + " | ".join(tables) + " |", "|---|" + "---|" * len(tables)]
    return head + [
        f"| {title} | " + " | ".join(cells[name] or "no" for name in tables) + " |"
        for title, cells in rows.items()
    ]


def _option(name: str) -> str:
    return f"`{name}`" if name else ""


def _selection(table: ForwardTable) -> str:
    if table.selection is HostSelection.EXCLUDE:
        return f"`{table.selection_option}` of the hosts that do not fit"
    return f"`{table.selection_option}` of the hosts that fit"


def _details(table: ForwardTable) -> list[str]:
    if table.is_empty:
        return ["Nothing is forwarded: all requirements are left to the match."]
    lines = []
    if table.rules:
        lines += ["Rules by default:", "", "| attribute | rule |", "|---|---|"]
        lines += [f"| `{name}` | `{rule}` |" for name, rule in table.rules.items()]
    if table.options:
        lines += ["", "Options for rules:", "", "| option | lower bound of |", "|---|---|"]
        lines += [f"| `{name}` | {option.meaning} |" for name, option in table.options.items()]
    if table.hook_options:
        names = ", ".join(f"`{name}`" for name in table.hook_options)
        lines += ["", f"Arguments that the hook may print: {names}."]
    return lines
