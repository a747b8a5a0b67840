"""Checks of a policy that only the server's machine can make: programs of the site, and names in batch systems."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Iterator
from typing import Final

from pilotage.core.errors import Unreachable
from pilotage.core.policy import Ce, Policy, toml
from pilotage.outside.batch.adapter import BatchAdapter, Shape
from pilotage.outside.batch.hook import obstacle_to_run
from pilotage.server.context import Context
from pilotage.server.duties.batch_clients import waiting_adapter

DEADLINE: Final = 10.0
"""Seconds for all checks of a policy."""
AT_ONCE: Final = 4
"""Batch systems that are asked at the same time."""


async def machine_warnings(context: Context, policy: Policy, names: Collection[str]) -> list[str]:
    """Warnings about these CEs, as far as they can be checked in `DEADLINE` seconds. The rest is named."""
    warnings = await asyncio.to_thread(
        lambda: [text for name in names for text in _of_files(name, policy.ces[name])]
    )
    asked = [name for name in names if policy.ces[name].type != "local"]
    open_adapters: dict[str, BatchAdapter] = {}
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str) -> list[str]:
        async with turns:
            adapter = open_adapters[name] = waiting_adapter(context, policy.ces[name])
            try:
                return await asyncio.to_thread(_of_batch_system, name, policy.ces[name], adapter)
            finally:
                del open_adapters[name]

    tasks = {name: asyncio.create_task(ask(name)) for name in asked}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=DEADLINE)
    for name, task in tasks.items():
        if task.done():
            warnings += task.result()
        else:
            task.cancel()
            warnings.append(f"ces.{toml.key(name)} was not checked: no answer within {DEADLINE:g} s")
    for adapter in open_adapters.values():
        adapter.close()
    return warnings


def _of_files(name: str, ce: Ce) -> Iterator[str]:
    """Warnings about the CE's files on this machine."""
    key, here = toml.key(name), f"on the server's machine ({socket.gethostname()})"
    if ce.forward_hook and (reason := obstacle_to_run(ce.forward_hook)):
        yield (
            f"ces.{key}: forward_hook {ce.forward_hook} {here}: {reason}; jobs with requirements over hosts get no"
            " pilot there until then"
        )
    if ce.log_folder and not os.path.isdir(ce.log_folder):
        yield (
            f"ces.{key}: the folder {ce.log_folder} is not {here}: without it commands do not show the output of"
            " pilots"
        )


def _of_batch_system(name: str, ce: Ce, adapter: BatchAdapter) -> list[str]:
    """Warnings of the batch system of a CE about its options, rules and hosts."""
    key = toml.key(name)
    hosts = [host for entry in ce.hosts for host in entry.hosts]
    try:
        mistakes = adapter.check_terms(ce.forward_table.with_rules(ce.forward), hosts)
        refusal = adapter.check(Shape(ce.pilot_processors, ce.pilot_memory, ce.wall))
    except Unreachable as error:
        return [f"ces.{key} was not checked with its batch system: {error.message}"]
    warnings = [f"ces.{key}.{mistake}" for mistake in mistakes]
    return (
        [*warnings, f"ces.{key}: the batch system would refuse its pilots: {refusal}"]
        if refusal
        else warnings
    )
