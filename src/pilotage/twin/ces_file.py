"""Reads and writes the CEs of the twin as a TOML document, and makes the CE of a trace that comes without one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from pilotage.core.errors import InvalidInput, check_mistakes
from pilotage.core.key_lines import line_of
from pilotage.core.policy import toml
from pilotage.core.policy.bounds import shown_bound
from pilotage.core.policy.ce_names import mistake_in_name
from pilotage.core.policy.parser import in_words_of_toml, parse_toml
from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import COUNT, YEAR, Setting, keys_of
from pilotage.twin.ces import TwinCe, TwinNodes

EXAMPLE_HINT: Final = "write `[[ces.NAME.nodes]]` with `count = 100` and `processors = 8`"
MOST_CES: Final = 1000
MOST_WAITS: Final = 10_001
SMALLEST_DEFAULT_NODE: Final = 8
"""Cores of a node of the CE that is made for a trace, unless a job or the trace itself says otherwise."""


class NodesTable(PolicyTable, frozen=True):
    count: Annotated[int, Setting("number of nodes that are alike", 1, 10**6)]
    processors: Annotated[int, Setting("cores of each node", 1, 10**6)]
    memory: Annotated[int, Setting("MB (2^20 bytes) of each node; 0: it bounds no job", *COUNT)] = 0


class TwinCeTable(PolicyTable, frozen=True):
    nodes: Annotated[tuple[NodesTable, ...], Setting("the nodes of the CE, by kind")]
    wall: Annotated[
        float, Setting("seconds after which the batch system ends a batch job", 60.0, 100 * YEAR)
    ] = 604800.0
    start_delay: Annotated[
        float, Setting("seconds from the begin of a batch job until its pilot asks for work", 0.0, YEAR)
    ] = 10.0
    waits: Annotated[
        tuple[float, ...],
        Setting(
            "seconds that batch jobs wait there: quantiles at equal distances, the smallest first; none: a batch job"
            " begins as soon as it fits a node",
            0.0,
            YEAR,
        ),
    ] = ()
    failure_rate: Annotated[float, Setting("failures per hour of a running pilot", 0.0, 3600.0)] = 0.0
    isolates: Annotated[
        bool,
        Setting("whether its nodes let pilots isolate payloads; false: a pilot serves one owner at a time"),
    ] = True


def parse_ces(text: str) -> tuple[TwinCe, ...]:
    """The CEs of a document. Raises `InvalidInput` with the line and the key of each mistake."""
    plain = parse_toml(text, "the file of CEs")
    for unknown in plain:
        if unknown != "ces":
            raise InvalidInput(
                f"unknown key {unknown}",
                hint=f"the file has tables [ces.NAME] only; {EXAMPLE_HINT}",
                line=line_of(text, [unknown]),
                field=unknown,
            )
    tables = plain.get("ces")
    if not isinstance(tables, dict) or not tables:
        raise InvalidInput("the file of CEs has no table [ces.NAME]", hint=EXAMPLE_HINT)
    if len(tables) > MOST_CES:
        raise InvalidInput(f"the file of CEs has {len(tables):,} CEs; the limit is {MOST_CES:,}")
    check_mistakes(mistake for name, table in tables.items() for mistake in _mistakes(name, table, text))
    return tuple(_ce(name, msgspec.convert(table, TwinCeTable)) for name, table in tables.items())


def ces_text(ces: Sequence[TwinCe]) -> str:
    """The document of these CEs, for `parse_ces`."""
    return "".join(f"{line}\n" for ce in ces for line in _lines_of(ce))


def _lines_of(ce: TwinCe) -> Iterator[str]:
    yield toml.table("ces", ce.name)
    yield f"wall = {toml.number(ce.wall)}"
    yield f"start_delay = {toml.number(ce.start_delay)}"
    yield f"waits = [{', '.join(map(toml.number, ce.waits))}]"
    yield f"failure_rate = {toml.number(ce.failure_rate)}"
    yield f"isolates = {str(ce.isolates).lower()}"
    for kind in ce.nodes:
        yield f"[{toml.table('ces', ce.name, 'nodes')}]"
        yield f"count = {kind.count}"
        yield f"processors = {kind.processors}"
        yield f"memory = {kind.memory}"


def _ce(name: str, table: TwinCeTable) -> TwinCe:
    return TwinCe(
        name=name,
        nodes=tuple(TwinNodes(kind.count, kind.processors, kind.memory) for kind in table.nodes),
        wall=table.wall,
        start_delay=table.start_delay,
        waits=table.waits,
        failure_rate=table.failure_rate,
        isolates=table.isolates,
    )


def _mistakes(name: str, plain: object, text: str) -> Iterator[InvalidInput]:
    """The mistakes of the table `[ces.NAME]`."""
    if reason := mistake_in_name(name):
        yield _mistake(f"the name {name[:80]!r} of a CE {reason}", "", text, ("ces", name))
        return
    try:
        table = msgspec.convert(plain, TwinCeTable)
    except msgspec.ValidationError as error:
        yield _translated(str(error), name, text)
        return
    if not table.nodes:
        yield _mistake(f"CE {name} has no nodes", EXAMPLE_HINT, text, ("ces", name, "nodes"))
    if len(table.waits) > MOST_WAITS:
        reason = f"CE {name}: waits has {len(table.waits):,} entries; the limit is {MOST_WAITS:,}"
        yield _mistake(reason, "", text, ("ces", name, "waits"))
    elif list(table.waits) != sorted(table.waits):
        reason = f"CE {name}: waits must not decrease"
        yield _mistake(reason, "they are quantiles, the smallest first", text, ("ces", name, "waits"))
    for path, value, setting in _numbers(table):
        low, high = setting.range or COUNT
        if not low <= value <= high:
            bounds = f"{shown_bound(low)} to {shown_bound(high)}"
            reason = f"ces.{name}.{'.'.join(path)} must be a number from {bounds}"
            yield _mistake(reason, setting.meaning, text, ("ces", name, *path))


def _numbers(table: TwinCeTable) -> Iterator[tuple[tuple[str, ...], float, Setting]]:
    """Each number of a CE with its keys and its setting."""
    settings = {key.name: key.setting for key in keys_of(TwinCeTable)}
    for name in ("wall", "start_delay", "failure_rate"):
        yield (name,), getattr(table, name), settings[name]
    for wait in table.waits:
        yield ("waits",), wait, settings["waits"]
    for place, kind in enumerate(table.nodes):
        for name in ("count", "processors", "memory"):
            yield ("nodes", str(place), name), getattr(kind, name), settings[f"nodes.*.{name}"]


def _translated(message: str, name: str, text: str) -> InvalidInput:
    """The error of msgspec in TOML's terms, with the line, and the nearest known name for an unknown key."""
    reason, _, path = message.partition(" - at `")
    keys = tuple(re.findall(r"[^.\[\]`$]+", path))
    pattern = ".".join("*" if key.isdigit() else key for key in keys)
    settings = {key.name: key.setting.meaning for key in keys_of(TwinCeTable)}
    below = [known for known in settings if known.startswith(f"{pattern}." if pattern else "")]
    here = [known.removeprefix(f"{pattern}.").partition(".")[0] for known in below]
    if unknown := re.search(r"unknown field `(\w+)`", reason):
        near = difflib.get_close_matches(unknown[1], here, 1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(dict.fromkeys(here))}"
        return _mistake(f"unknown key {unknown[1]}", hint, text, ("ces", name, *keys, unknown[1]))
    if missing := re.search(r"required field `(\w+)`", reason):
        return _mistake(
            f"CE {name}: the key {missing[1]} is missing", EXAMPLE_HINT, text, ("ces", name, *keys)
        )
    where = ".".join(("ces", name, *keys))
    return _mistake(
        f"{where}: {in_words_of_toml(reason)}", settings.get(pattern, ""), text, ("ces", name, *keys)
    )


def _mistake(message: str, hint: str, text: str, keys: tuple[str, ...]) -> InvalidInput:
    return InvalidInput(message, hint=hint, line=line_of(text, keys), field=".".join(keys))


def one_ce(cores: int, largest_job: int) -> tuple[TwinCe, ...]:
    """A CE with this number of cores, on nodes that have room for the largest job."""
    size = min(cores, max(SMALLEST_DEFAULT_NODE, largest_job))
    count, rest = divmod(cores, size)
    kinds = (TwinNodes(count, size), *([TwinNodes(1, rest)] if rest else []))
    return (TwinCe("trace", kinds),)
