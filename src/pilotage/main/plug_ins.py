"""`pilotage plugins`, and the commands that other distributions add."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Final

from pilotage.cli.commands import LazyCommand
from pilotage.cli.parser import CommandOption
from pilotage.cli.root import build
from pilotage.core.plug_ins import PROGRAM, PlugIn, UnusablePlugIn, known_plug_ins, opened

COMMANDS: Final = "commands"
DOORS: Final[dict[str, tuple[str, str, str]]] = {
    "batch_adapters": (
        "make the adapter of a batch system: functions `make_adapter(ce, machine, timeout)`",
        "pilotage.outside.batch.registry",
        "adapter_makers",
    ),
    "batch_systems": (
        "batch systems, with the options of their CEs: subclasses of `BatchOptions`",
        "pilotage.core.policy.batch_systems",
        "",
    ),
    "catalogue_adapters": (
        "make the adapter of a catalogue: functions `make_catalogue(section)`",
        "pilotage.outside.catalogue.registry",
        "catalogue_makers",
    ),
    "catalogue_types": (
        "outside catalogues, with their options: subclasses of `CatalogueOptions`",
        "pilotage.core.policy.catalogue_types",
        "",
    ),
    COMMANDS: ("commands: functions as those of `pilotage.cli`", __name__, "others_commands"),
    "correctors": (
        "share correctors: subclasses of `CorrectorInstance`",
        "pilotage.core.shares.correctors",
        "",
    ),
    "splitting": (
        "splitting algorithms: subclasses of `Algorithm`",
        "pilotage.core.splitting.algorithms",
        "",
    ),
    "start_policies": (
        "start policies of requests: subclasses of `StartPolicy`",
        "pilotage.core.requests.start_policies",
        "",
    ),
}
"""The meaning of each door, the module that opens it, and the function that does so; "": the import is enough."""


def plugins(
    own: Annotated[bool, CommandOption("Also list the plug-ins of Pilotage itself", names="--all")] = False,
    as_json: Annotated[
        bool, CommandOption("Print one JSON document and nothing else", names="--json")
    ] = False,
) -> int:
    """List the plug-ins of other distributions. The reason stands beside a plug-in that cannot be used.

    A distribution adds a plug-in by an entry point in the group of its door.
    """
    from pilotage.cli.console import Column, CommandOutput

    screen = CommandOutput(as_json)
    plug_ins = [plug_in for plug_in in all_plug_ins() if own or plug_in.distribution != PROGRAM]
    screen.json({"plugins": [plug_in._asdict() for plug_in in plug_ins]})
    if not plug_ins:
        screen.note("no other distribution has added a plug-in; --all lists those of Pilotage")
        return 0
    columns = [Column(name) for name in ("door", "name", "distribution", "version")]
    screen.table([*columns, Column("problem", text=True)], plug_ins)
    return 0


def all_plug_ins() -> list[PlugIn]:
    """The plug-ins of all doors, in order."""
    for _, module, function in DOORS.values():
        opener = import_module(module)
        if function:
            getattr(opener, function)()
    return known_plug_ins()


def others_commands() -> dict[str, LazyCommand]:
    """The commands that other distributions add, by their words."""
    from pilotage.main.command_line import SERVER_COMMANDS

    own = build(SERVER_COMMANDS).commands
    return {name: command for name, command in opened(COMMANDS, own, _command).items() if name not in own}


def _command(name: str, function: Any) -> LazyCommand:
    if not callable(function) or not (function.__doc__ or "").strip():
        raise UnusablePlugIn("it is no function with a docstring, whose first line is its help")
    if not all(word.replace("-", "").isalnum() for word in name.split()):
        raise UnusablePlugIn("a command has words of letters, digits and hyphens")
    return LazyCommand(function.__module__, function.__name__, function.__doc__.strip().splitlines()[0])
