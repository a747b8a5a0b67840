"""The page docs/reference/batch-systems.md: what works with which batch system, read from options and adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_type_hints

from pilotage.core.forwarding.table import ForwardTable, HostSelection
from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.registry import adapter_makers

_TOLD = {
    "--batch-id": "its batch id",
    "--batch-host": "its host",
    "--batch-start": "its start",
    "--batch-end": "its end",
    "--restarts": "earlier starts",
    "--cut-off": "to leave when its lease is over",
}


def batch_systems_markdown() -> str:
    """One row for each type of CE."""
    names = ["local", *BATCH_SYSTEMS]
    rows: Mapping[str, list[str]] = {
        "what": ["processes of the server's machine", *(BATCH_SYSTEMS[name].meaning for name in names[1:])],
        "state": [_state(name) for name in names],
        "submissions are held first": ["yes" if _adapter(name).holds else "no" for name in names],
        "a pilot is told": [
            ", ".join(_TOLD[option] for option in _adapter(name).pilot_options) or "nothing" for name in names
        ],
        "keys for a part of it": ["" if name == "local" else _partition_key(name) for name in names],
        "output of pilots": [
            "yes" if name == "local" or "log_folder" in _keys(name) else "no" for name in names
        ],
        "requirements become flags": [_forwarding(_table(name)) for name in names],
        "names of hosts": [
            "yes" if _table(name).selection is not HostSelection.NONE else "no" for name in names
        ],
        "hook of the site": ["yes" if _table(name).hook_options else "no" for name in names],
    }
    head = ["| | " + " | ".join(f"`{name}`" for name in names) + " |", "|---|" + "---|" * len(names)]
    return "\n".join(head + [f"| {title} | " + " | ".join(cells) + " |" for title, cells in rows.items()])


def _adapter(name: str) -> type[BatchAdapter]:
    made: type[BatchAdapter] = get_type_hints(adapter_makers()[name])["return"]
    return made


def _state(name: str) -> str:
    return "experimental" if name in BATCH_SYSTEMS and BATCH_SYSTEMS[name].is_experimental else "live"


def _keys(name: str) -> tuple[str, ...]:
    return BATCH_SYSTEMS[name].__struct_fields__


def _partition_key(name: str) -> str:
    key = BATCH_SYSTEMS[name].partition_key
    return f"`{key}`" if key in _keys(name) else ""


def _table(name: str) -> ForwardTable:
    return BATCH_SYSTEMS[name].forwarding if name in BATCH_SYSTEMS else ForwardTable()


def _forwarding(table: ForwardTable) -> str:
    options = dict.fromkeys(option for option in (table.feature_option, table.complex_option) if option)
    return ", ".join(f"`{option}`" for option in options) or "no"
