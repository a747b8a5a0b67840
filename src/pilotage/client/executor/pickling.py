"""Functions and arguments as pickles of cloudpickle. Objects that cannot be pickled are named before all is sent."""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import cloudpickle

from pilotage.core.errors import InvalidInput


class NotPicklable(InvalidInput):
    """A function or an argument cannot be pickled. Nothing was sent."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PickledFunction:
    name: str
    body: bytes
    digest: str = ""
    """SHA-256 of the body. Functions of one name differ by it: lambdas, and wrappers of other functions."""


def pickle_function(function: Callable[..., Any]) -> PickledFunction:
    """Pickle a function, or raise NotPicklable with the name of the variable that it uses and that cannot be."""
    name = name_of(function)
    try:
        body = cloudpickle.dumps(function)
    except Exception as trouble:
        for variable, value in _used(function):
            if _trouble(value) is not None:
                raise NotPicklable(
                    f"{name} uses {variable!r}, a {type(value).__name__}, which cannot be pickled: {trouble}",
                    hint="make it inside of the function, or give what it is made of as an argument",
                ) from trouble
        raise NotPicklable(f"{name} cannot be pickled: {trouble}") from trouble
    return PickledFunction(name, body, hashlib.sha256(body).hexdigest())


def pickle_arguments(name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
    """Pickle the arguments of a call of the function `name`, or raise NotPicklable with the argument's name."""
    try:
        return bytes(cloudpickle.dumps((positional, dict(named))))
    except Exception as trouble:
        numbered = [(f"argument {number}", value) for number, value in enumerate(positional, 1)]
        for argument, value in [*numbered, *((f"argument {key!r}", value) for key, value in named.items())]:
            cause = _trouble(value)
            if cause is not None:
                raise NotPicklable(
                    f"{argument} of {name}, a {type(value).__name__}, cannot be pickled: {cause}"
                ) from trouble
        raise NotPicklable(f"the arguments of {name} cannot be pickled: {trouble}") from trouble


def name_of(function: Callable[..., Any]) -> str:
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _trouble(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as trouble:
        return trouble
    return None


def _used(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The variables and defaults that a function takes with it, by name."""
    if isinstance(function, functools.partial):
        yield from _used(function.func)
        yield from ((f"argument {number}", value) for number, value in enumerate(function.args, 1))
        yield from function.keywords.items()
    elif inspect.ismethod(function):
        owner = function.__self__
        yield from ((f"self.{name}", value) for name, value in getattr(owner, "__dict__", {}).items())
        yield "self", owner
    elif inspect.isfunction(function):
        yield from _variables(function).items()
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        yield from (("a default value", value) for value in defaults)


def _variables(function: types.FunctionType) -> dict[str, Any]:
    """The variables around a function that it, or a function inside of it, uses."""
    around = {
        name: function.__globals__[name] for name in _names(function.__code__) & set(function.__globals__)
    }
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has no value yet
            around[name] = cell.cell_contents
    return around


def _names(code: types.CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


class _FactsPickler(pickle.Pickler):
    """Writes the facts of a value, equally in each process. Its output is hashed and never read.

    cloudpickle's own output differs: it marks classes by chance, and shared objects by their identity.
    """

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.fast = True  # each object whole, shared or not
        self._above: set[int] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType | type) and _travels_whole(value):
            name = f"{type(value).__name__} {value.__qualname__}"
            if id(value) in self._above:
                return str, (name,)
            self._above.add(id(value))
            facts = _function_facts(value) if isinstance(value, types.FunctionType) else _class_facts(value)
            return tuple, ((name, facts),)
        if isinstance(value, types.CodeType):
            consts = [
                sorted(map(repr, const)) if isinstance(const, frozenset) else const
                for const in value.co_consts
            ]
            return tuple, ((value.co_code, consts, value.co_names, value.co_varnames),)
        if isinstance(value, types.ModuleType):
            return str, (value.__name__,)
        return NotImplemented


def _travels_whole(value: Any) -> bool:
    """Whether cloudpickle sends its code, and not its name: of the main program, of notebooks, and local ones."""
    module = sys.modules.get(value.__module__ or "")
    if module is None or value.__module__ == "__main__":
        return True
    inner: Any = module
    for part in value.__qualname__.split("."):
        inner = getattr(inner, part, None)
    return inner is not value


def _function_facts(function: types.FunctionType) -> Any:
    variables = sorted(_variables(function).items())
    return function.__code__, function.__defaults__, function.__kwdefaults__, variables


def _class_facts(value: type) -> Any:
    plain = (types.FunctionType, int, float, str, bytes, tuple)
    members = [(name, member) for name, member in vars(value).items() if isinstance(member, plain)]
    return [base.__qualname__ for base in value.__bases__], sorted(members, key=lambda pair: pair[0])


def digest(*values: Any) -> str:
    """A digest of functions and arguments that another process finds again.

    Sets of texts, and objects that contain them, have another digest in each process.
    """
    buffer = BytesIO()
    try:
        _FactsPickler(buffer).dump(values)
        content = buffer.getvalue()
    except Exception:  # a value that contains itself: cloudpickle can write it
        content = cloudpickle.dumps(values)
    return hashlib.sha256(content).hexdigest()[:32]
