"""An executor for calls that may hang for minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class DaemonThreads(Executor):
    """Runs each call in a thread of its own. A call that hangs delays no other call, nor the end of the process."""

    def __init__(self, name: str) -> None:
        """`name`: the name of the threads."""
        self._name = name

    def submit(self, call: Callable[..., Answer], /, *arguments: Any, **named: Any) -> Future[Answer]:
        future: Future[Answer] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                answer = call(*arguments, **named)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(answer)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return future
