"""The doors of the program: places where a plug-in adds a class or a function.

A module in the folder of a package is a plug-in without registration. Other distributions declare theirs by entry
points, in the group of the door. A plug-in that is of no use is named with its reason, and disables nothing else.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any, NamedTuple, TypeVar

import msgspec

Base = TypeVar("Base")
PROGRAM = "pilotage"
VERSION: str = import_module(PROGRAM).__version__


class PlugIn(NamedTuple):
    """Something that came in by a door, or could not."""

    door: str
    name: str
    distribution: str
    version: str
    problem: str = ""
    """Why it is not in use; empty: it is."""

    @property
    def words(self) -> str:
        """The plug-in and its problem, for messages."""
        where = f"{self.distribution} {self.version} ({PROGRAM}.{self.door})"
        return f"{self.name} of {where} cannot be used: {self.problem}"


class UnusablePlugIn(Exception):
    """A plug-in cannot be used; the text is the reason."""


_known: dict[tuple[str, str, str], PlugIn] = {}
"""All plug-ins of the doors that were opened, by door, name and distribution."""


def known_plug_ins() -> list[PlugIn]:
    """The plug-ins of all doors that were opened, in order."""
    return sorted(_known.values())


def unusable_in(text: str) -> str:
    """The plug-ins that a text names and that cannot be used, for the hint of an error about it; empty: none."""
    words, known = set(re.findall(r"\w+", text)), known_plug_ins()
    usable = {plug_in[:2] for plug_in in known if not plug_in.problem}
    return "; ".join(
        plug_in.words for plug_in in known if plug_in.name in words and plug_in[:2] not in usable
    )


def refuse(door: str, plug_ins: dict[str, Any], taken: Iterable[str]) -> None:
    """Take plug-ins out whose names the program has given to something else."""
    for name in plug_ins.keys() & set(taken):
        del plug_ins[name]
        for plug_in in known_plug_ins():
            if (plug_in.door, plug_in.name, plug_in.problem) == (door, name, ""):
                _note(plug_in._replace(problem="the program has a key of this name"))


def classes_at(
    door: str,
    package: str,
    path: Iterable[str],
    base: type[Base],
    *,
    named: str = "",
    check: Callable[[type[Base]], object] = lambda kind: None,
) -> dict[str, type[Base]]:
    """The subclasses of `base` at a door, by name: first our own, in the modules of a package.

    `named`: the class variable with the name; empty: it is the name of the module, or of the entry point.
    `check`: raises an error for a class of others that is of no use.
    """
    own = {
        getattr(member, named) if named else module: member
        for module, member in _own_classes(package, path, base)
    }

    def usable(name: str, value: Any) -> type[Base]:
        if not (isinstance(value, type) and issubclass(value, base)):
            raise UnusablePlugIn(f"it is no subclass of {base.__module__}.{base.__qualname__}")
        _check_class(value, base)
        _check_name(name)
        if named and getattr(value, named) != name:
            raise UnusablePlugIn(
                f"its {named} is {getattr(value, named)!r}, and the entry point is called {name!r}"
            )
        check(value)
        return value

    return opened(door, own, usable)


def functions_at(door: str, package: str, path: Iterable[str], function: str) -> dict[str, Any]:
    """The functions at a door, by name: first our own, which have one name in the modules of a package."""
    own = {}
    for module in iter_modules(path):
        member = getattr(import_module(f"{package}.{module.name}"), function, None)
        if member is not None:
            own[module.name] = member
    return opened(door, own, _callable)


def opened(door: str, own: dict[str, Base], usable: Callable[[str, Any], Base]) -> dict[str, Base]:
    """Our own plug-ins and the usable ones of other distributions, by name; each is known from then on.

    `usable`: the plug-in of a name from the loaded object. It may raise any error.
    """
    for name in own:
        _note(PlugIn(door, name, PROGRAM, VERSION))
    usable_ones = dict(own)
    owners = dict.fromkeys(own, PROGRAM)
    for entry in _entries(door):
        distribution = entry.dist
        assert distribution is not None
        owner, problem = distribution.name, ""
        try:
            if entry.name in usable_ones:
                raise UnusablePlugIn(f"{owners[entry.name]} has a plug-in of this name")
            _check_version(distribution)
            usable_ones[entry.name] = usable(entry.name, entry.load())
            owners[entry.name] = owner
        except UnusablePlugIn as reason:
            problem = str(reason)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        _note(PlugIn(door, entry.name, owner, distribution.version, problem))
    return usable_ones


def _own_classes(package: str, path: Iterable[str], base: type[Base]) -> Iterator[tuple[str, type[Base]]]:
    for module in iter_modules(path):
        name = f"{package}.{module.name}"
        for member in vars(import_module(name)).values():
            if isinstance(member, type) and issubclass(member, base) and member.__module__ == name:
                yield module.name, member


def _note(plug_in: PlugIn) -> None:
    _known[plug_in.door, plug_in.name, plug_in.distribution] = plug_in


@cache
def _all_entries() -> tuple[EntryPoint, ...]:
    prefix = f"{PROGRAM}."
    everything = entry_points()
    groups = sorted(group for group in everything.groups if group.startswith(prefix))
    return tuple(entry for group in groups for entry in everything.select(group=group))


def _entries(door: str) -> list[EntryPoint]:
    """The entry points of other distributions. The first of two with one name is that of the first distribution."""
    entries = (entry for entry in _all_entries() if entry.group == f"{PROGRAM}.{door}" and entry.dist)
    return sorted(entries, key=lambda entry: (entry.dist.name if entry.dist else "", entry.name))


def _check_version(distribution: Distribution) -> None:
    """Raise an error for a distribution that needs another version of Pilotage: installers check it only once."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    for text in distribution.requires or ():
        needed = Requirement(text)
        if canonicalize_name(needed.name) == PROGRAM and not needed.specifier.contains(
            VERSION, prereleases=True
        ):
            raise UnusablePlugIn(f"it needs {PROGRAM}{needed.specifier}, and this is {VERSION}")


def _check_class(kind: type, base: type) -> None:
    """Raise an error for a class that lacks a part, or whose fields have types that cannot be read."""
    missing = [
        name
        for parent in base.__mro__
        for name, type_ in vars(parent).get("__annotations__", {}).items()
        if "ClassVar" in str(type_) and not hasattr(kind, name)
    ]
    missing += sorted(getattr(kind, "__abstractmethods__", ()))
    if missing or inspect.isabstract(kind):
        raise UnusablePlugIn(f"{kind.__qualname__} has no {', no '.join(missing)}")
    if issubclass(kind, msgspec.Struct):
        msgspec.json.schema(kind)


def _check_name(name: str) -> None:
    if not name.isidentifier():
        raise UnusablePlugIn("its name has characters other than letters, digits and _")


def _callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise UnusablePlugIn("it is no function")
    return value
