"""No start and no duty dies of a full queue of the writer: who calls it tries again."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pilotage.core.errors import Overloaded
from pilotage.server import process
from pilotage.server.context import Context
from pilotage.server.duties import startup
from pilotage.server.process import run


class _Full:
    """A writer whose queue is full at the first calls."""

    def __init__(self, refusals: int, answers: list[Any]) -> None:
        self.refusals = refusals
        self.answers = answers
        self.calls = 0

    async def acall(self, request: Callable[[Any], Any]) -> Any:
        self.calls += 1
        if self.calls <= self.refusals:
            raise Overloaded("too many requests wait")
        return self.answers.pop(0)


class _Gate:
    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.made = 0

    async def make(self, *_: Any) -> None:
        await self.write(None)

    async def write(self, _: Any) -> bool:
        self.made += 1
        if self.made <= self.refusals:
            raise Overloaded("too many requests wait")
        return True


STEPS: dict[str, tuple[Callable[[Context], Awaitable[None]], list[Any]]] = {
    "load": (startup.load_index, [False, True]),
    "forget": (startup.forget_unaccepted, [[7], [7], [7]]),
    "finish": (startup.finish_submissions, [[7, 8]]),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_start_goes_on_when_the_queue_has_room(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step, answers = STEPS[name]
    waits: list[float] = []

    async def pause(_: Context, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(startup, "pause", pause)
    writer, gate = _Full(3, list(answers)), _Gate(0 if name == "load" else 2)

    async def go() -> None:
        context = SimpleNamespace(
            writer=writer,
            clock=lambda: 0.0,
            stop=asyncio.Event(),
            pool=SimpleNamespace(peers=SimpleNamespace(shared=False)),
            work=SimpleNamespace(gate=gate),
        )
        await step(cast(Context, context))

    asyncio.run(go())
    assert len(waits) >= 3
    assert set(waits) == {startup.RETRY_PAUSE}


def test_a_start_that_is_stopped_waits_no_longer() -> None:
    async def go() -> None:
        stop = asyncio.Event()
        stop.set()
        context = SimpleNamespace(writer=_Full(1, []), stop=stop)

        async def never() -> None:
            raise AssertionError

        assert await startup.patiently(cast(Context, context), "a step", never) is None

    asyncio.run(go())


ALONE = {
    "run.py:run": "the front has stopped: nobody fills the queue",
    "schedule.py:forget_reasons": "the duty that renews leases calls it, and does so again",
}


def _callers(tree: ast.AST) -> Iterator[str]:
    """The functions outside of duties that call the writer, and are not given to `patiently`."""
    patient = {
        argument.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "patiently"
        for argument in call.args
        if isinstance(argument, ast.Name)
    }
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef) and function.name not in patient:
            inner = {
                n
                for f in ast.walk(function)
                if isinstance(f, ast.AsyncFunctionDef | ast.FunctionDef) and f is not function
                for n in ast.walk(f)
            }
            if any(
                isinstance(n, ast.Attribute) and n.attr == "acall" and n not in inner
                for n in ast.walk(function)
            ):
                yield function.name


def test_each_call_outside_of_duties_is_patient() -> None:
    """`every` runs duties again. A call anywhere else in the process of the server would end it."""
    impatient = {
        f"{file.name}:{name}"
        for file in Path(process.__file__).parent.glob("*.py")
        for name in _callers(ast.parse(file.read_text()))
    }
    assert impatient == set(ALONE)
    source = Path(startup.__file__).read_text()
    begun = set(re.findall(r"await (\w+)\(context", Path(run.__file__).read_text()))
    own = {node.name for node in ast.parse(source).body if isinstance(node, ast.AsyncFunctionDef)}
    assert begun & own == {step.__name__ for step, _ in STEPS.values()}
