"""For the report of a failed test: the state of its servers, as commands tell it, and the ends of their logs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.deadlines import PATIENCE

if TYPE_CHECKING:
    from tests.instance import Instance

LINES = 40
"""Lines of a log."""
QUESTIONS = (
    *(("ce", "list"), ("pilot", "list"), ("status",), ("status", "--since", "1d", "--limit", "10")),
    *(("queue", "list"), ("director",)),
)
TIMEOUT = PATIENCE / 8
"""Seconds for an answer of a server that may be the failure."""

_open: list[Instance] = []
_states: list[tuple[str, str]] = []
"""(home, state) of servers that were closed by an error of the test."""


def watch(instance: Instance) -> None:
    _open.append(instance)


def unwatch(instance: Instance) -> None:
    """Called when an instance is about to close. Keeps its state if an error of the test closes it."""
    if instance in _open:
        _open.remove(instance)
        if sys.exc_info()[0] is not None:
            _states.append((str(instance.home), _state_of(instance)))


def sections() -> Iterator[tuple[str, str]]:
    """(title, text) for each server of the test that has just failed."""
    for home, state in [*_states, *((str(instance.home), _state_of(instance)) for instance in _open)]:
        yield f"server of {home}", state
    _states.clear()


def _state_of(instance: Instance) -> str:
    texts = []
    status = None if instance.process is None else instance.process.poll()
    if status is not None:
        texts.append(f"the server has ended with status {status} (below 0: by this signal)")
    elif instance.process is not None:
        for words in QUESTIONS:
            try:
                answer = instance.cli(*words, timeout=TIMEOUT)
                texts.append(f"$ pilotage {' '.join(words)}\n{answer.stdout}{answer.stderr}")
            except (OSError, subprocess.SubprocessError) as error:
                texts.append(f"$ pilotage {' '.join(words)}\n{error}")
    log = instance.home / "test.log"
    if log.exists():
        lines = log.read_text(errors="replace").splitlines()[-LINES:]
        texts.append("\n".join(["the end of its log:", *lines]))
    return "\n".join(texts)
