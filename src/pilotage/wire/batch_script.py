"""A batch script of Slurm's commands, with all that its start needs, in the arguments of a job.

So the script stays as it was at submission. Its texts may be any bytes: bytes that are not UTF-8 are halves of
surrogate pairs here, and the pilot turns them back.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence

PROGRAM = "pilotage:batch-script"
"""The executable of such a job."""
_PIECE = 100_000
"""Characters of one argument."""
_MOST_BYTES = 64 * 1024 * 1024
"""Bytes of an order, so that a small text cannot fill the memory of a pilot."""


@dataclass(frozen=True)
class ScriptOrder:
    script: str
    """Empty: the arguments are a command."""
    arguments: List[str] = field(default_factory=list)
    variables: Dict[str, str] = field(default_factory=dict)
    """From the submitting shell."""
    partitions: Dict[str, List[str]] = field(default_factory=dict)
    """The CEs of each partition, if the job may run in several."""
    standard_input: str = ""
    signal: str = ""
    """The name of the signal before the end, without SIG; empty: SIGUSR1."""
    is_for_script: bool = False
    """Whether its process alone gets the signal, and not its whole group."""
    tasks: int = 1
    """How many processes run the command."""


def packed(order: ScriptOrder) -> str:
    """The order as one text."""
    return base64.b64encode(zlib.compress(json.dumps(vars(order)).encode())).decode()


def in_pieces(text: str) -> List[str]:
    """The text as the arguments of a job."""
    return [text[place : place + _PIECE] for place in range(0, len(text), _PIECE)]


def unpacked(arguments: Sequence[str]) -> ScriptOrder:
    """The order in the arguments of a job. Raises ValueError."""
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(base64.b64decode("".join(arguments)), _MOST_BYTES)
        if not inflating.eof:
            raise ValueError("the batch script is cut short, or too large")
        order = ScriptOrder(**json.loads(data))
    except (zlib.error, TypeError, RecursionError) as error:
        raise ValueError(f"this is no batch script: {error}") from None
    if not _is_sound(order):
        raise ValueError("this is no batch script: a value has another type")
    return order


def _is_sound(order: Any) -> bool:
    if not isinstance(order.variables, dict) or not isinstance(order.partitions, dict):
        return False
    lists = [order.arguments, *order.partitions.values()]
    if not all(isinstance(entries, list) for entries in lists):
        return False
    texts = [order.script, order.standard_input, order.signal, *order.variables.values()]
    texts += [entry for entries in lists for entry in entries]
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(order.is_for_script, bool)
        and isinstance(order.tasks, int)
    )
