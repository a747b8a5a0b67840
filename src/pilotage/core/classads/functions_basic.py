"""Functions of ClassAds over single values: types, conversion, arithmetic, choice, time and chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from pilotage.core.classads.tree import (
    ERROR,
    INT_MAX,
    UNDEFINED,
    Call,
    Error,
    Expression,
    Undefined,
    nodes_of,
)
from pilotage.core.classads.values import (
    Record,
    Value,
    absent,
    as_text,
    lower,
    number_in,
    truncate,
    truth,
    wrap,
)

LAZY_CHOICE: Final = "ifthenelse"
VOLATILE: Final = frozenset({"time", "random"})
"""Functions that may have another value in each evaluation."""


def is_steady(expression: Expression) -> bool:
    """Whether the value depends on attributes alone: no function in it is volatile."""
    return not any(isinstance(node, Call) and node.key in VOLATILE for node in nodes_of(expression))


class Chance(Protocol):
    """The source of `random()`; `random.Random` is one."""

    def random(self) -> float: ...


class World(Protocol):
    """The inputs of an evaluation (clock, chance) and the account of its cost."""

    now: float | None
    rng: Chance | None

    def charge(self, steps: int) -> None:
        """Subtract `steps` from the steps left; ends the evaluation with ERROR if there are too few."""


Function: TypeAlias = Callable[[Sequence[Any], Any], Value]


def one(apply: Callable[[Any], Value]) -> Function:
    """A function of exactly one argument, pure."""
    return lambda arguments, world: apply(arguments[0]) if len(arguments) == 1 else ERROR


def two(apply: Callable[[Any, Any], Value]) -> Function:
    """A function of exactly two arguments, pure."""
    return lambda arguments, world: apply(*arguments) if len(arguments) == 2 else ERROR


def is_of(*kinds: type) -> Function:
    return one(lambda value: type(value) in kinds)


def number(value: Any) -> int | float | None:
    """An int or float as it is, a bool as int, the number a string begins with; None for all else."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    return number_in(value) if isinstance(value, str) else None


def to_int(value: Any) -> Any:
    parsed = number(value)
    if parsed is None:
        return absent(value, value)
    return truncate(parsed) if isinstance(parsed, float) else parsed


def to_real(value: Any) -> Any:
    parsed = number(value)
    return absent(value, value) if parsed is None else float(parsed)


def to_bool(value: Any) -> Any:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(lower(value), UNDEFINED)
    return truth(value)


def _whole(cut: Callable[[float], float]) -> Function:
    def apply(value: Any) -> Any:
        parsed = number(value)
        if parsed is None:
            return ERROR
        if isinstance(parsed, int):
            return parsed
        return truncate(cut(parsed)) if math.isfinite(parsed) else truncate(parsed)

    return one(apply)


def quantize(value: Any, quantum: Any) -> Any:
    """The value moved up to a multiple of a number, or to the first item of a list not below it."""
    if isinstance(quantum, tuple):
        return _quantize_in(value, quantum)
    low, step = number(value), number(quantum)
    if low is None or step is None:
        return ERROR
    if step == 0:
        return value
    if type(value) is int and type(quantum) is int:
        return _int_multiple(value, quantum)
    if step != step:
        return step
    # Beyond 64 bits of steps there is nothing to round.
    quotient = low / step
    # The sign of a zero is kept.
    return math.copysign(math.ceil(quotient), quotient) * float(step) if abs(quotient) < 2.0**63 else value


def _int_multiple(value: int, step: int) -> int:
    """The smallest multiple not below, for steps above 0; for others the result of HTCondor's formula."""
    numerator = wrap(value + wrap(step - 1))
    quotient = abs(numerator) // abs(step)
    return wrap((quotient if (numerator < 0) == (step < 0) else -quotient) * step)


def _quantize_in(value: Any, steps: tuple[Any, ...]) -> Any:
    low = number(value)
    if low is None:
        return ERROR
    for step in steps:
        bound = number(step)
        if bound is None:
            return ERROR
        if bound >= low:
            return step
    return quantize(value, steps[-1]) if steps else value


def power(base: Any, exponent: Any) -> Any:
    b, e = number(base), number(exponent)
    if b is None or e is None:
        return ERROR
    result = _power(float(b), float(e))
    if type(base) is int and type(exponent) is int and exponent >= 0:
        return truncate(result)
    return result


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        negative = math.copysign(1.0, base) < 0 and exponent % 2 == 1
        return math.nan if base != 0 else (-math.inf if negative else math.inf)


def _time(arguments: Sequence[Any], world: World) -> Any:
    return ERROR if arguments or world.now is None else int(world.now)


def _random(arguments: Sequence[Any], world: World) -> Any:
    """A real below 1, or a number of the argument's type below it."""
    if world.rng is None or len(arguments) > 1:
        return ERROR
    bound = arguments[0] if arguments else 1.0
    if type(bound) is int and 0 < bound <= INT_MAX:
        return int(world.rng.random() * bound)
    return world.rng.random() * bound if type(bound) is float else ERROR


def interval(value: Any) -> Any:
    """Seconds as days+hours:minutes:seconds, without the parts before the first that counts."""
    seconds = to_int(value)
    if type(seconds) is not int:
        return ERROR
    minutes, second = divmod(abs(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    sign = "-" if seconds < 0 else ""
    if day:
        return f"{sign}{day}+{hour:02}:{minute:02}:{second:02}"
    if hour:
        return f"{sign}{hour}:{minute:02}:{second:02}"
    return f"{sign}{minute}:{second:02}" if minute else f"{sign}{second}"


BASIC: Final[dict[str, Function]] = {
    "isundefined": is_of(Undefined),
    "iserror": is_of(Error),
    "isstring": is_of(str),
    "isinteger": is_of(int),
    "isreal": is_of(float),
    "isboolean": is_of(bool),
    "islist": is_of(tuple),
    "isclassad": is_of(Record),
    "int": one(to_int),
    "real": one(to_real),
    "string": one(as_text),
    "bool": one(to_bool),
    "floor": _whole(math.floor),
    "ceiling": _whole(math.ceil),
    "ceil": _whole(math.ceil),
    "round": _whole(round),
    "quantize": two(quantize),
    "pow": two(power),
    "time": _time,
    "random": _random,
    "interval": one(interval),
}
