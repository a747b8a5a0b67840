"""The table of the doors for plug-ins, with our own plug-ins."""

from __future__ import annotations

from pilotage.core.plug_ins import PROGRAM
from pilotage.main.plug_ins import COMMANDS, DOORS, all_plug_ins


def doors_markdown() -> str:
    own: dict[str, list[str]] = {}
    for found in all_plug_ins():
        if found.distribution == PROGRAM:
            own.setdefault(found.door, []).append(f"`{found.name}`")
    own[COMMANDS] = ["[all commands](cli.md)"]
    rows = [
        f"| `{PROGRAM}.{door}` | {meaning} | {', '.join(own[door])} |"
        for door, (meaning, *_) in DOORS.items()
    ]
    return "\n".join(["| group | adds | of Pilotage itself |", "|---|---|---|", *rows])
