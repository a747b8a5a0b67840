"""Functions of ClassAds over patterns: search and replacement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pilotage.core.classads.functions_basic import Function, World
from pilotage.core.classads.functions_string_lists import items_of
from pilotage.core.classads.functions_text import absent_of, bounded, unknown_first
from pilotage.core.classads.patterns import MAX_SUBJECT, Pattern, PatternMatch, compiled
from pilotage.core.classads.tree import ERROR, UNDEFINED, Error

_REFUSED_PATTERN: Final = 6000
"""Steps: a pattern may have been given up only after much work."""


def _pattern(text: str, options: str, world: World) -> Pattern | None:
    pattern = compiled(text, options)
    if isinstance(pattern, str):
        world.charge(_REFUSED_PATTERN)
        return None
    return pattern


def _find(pattern: Pattern, subject: bytes, start: int, world: World) -> PatternMatch | None:
    size = pattern.instructions
    world.charge(size // 4 + size * (len(subject) - start) // 64)
    return pattern.search(subject, start)


def _encoded(subject: str) -> bytes | None:
    """None: it is too long, or no valid Unicode."""
    if len(subject) > MAX_SUBJECT:
        return None
    try:
        return subject.encode()
    except UnicodeEncodeError:
        return None


def _contains(pattern: Pattern, subject: str, world: World) -> bool | Error:
    encoded = _encoded(subject)
    return ERROR if encoded is None else _find(pattern, encoded, 0, world) is not None


def _regexp(arguments: Sequence[Any], world: World) -> Any:
    if len(arguments) not in (2, 3):
        return ERROR
    if not all(isinstance(value, str) for value in arguments):
        return absent_of(arguments)
    pattern = _pattern(arguments[0], "".join(arguments[2:]), world)
    return ERROR if pattern is None else _contains(pattern, arguments[1], world)


def _regexp_member(arguments: Sequence[Any], world: World) -> Any:
    """Whether one of a list's texts matches; undefined items may."""
    if len(arguments) not in (2, 3):
        return ERROR
    text, items, options = arguments[0], arguments[1], arguments[2] if len(arguments) == 3 else ""
    if not isinstance(text, str) or not isinstance(items, tuple) or not isinstance(options, str):
        return absent_of(arguments)
    pattern = _pattern(text, options, world)
    if pattern is None:
        return ERROR
    answer: Any = False
    for item in items:
        if item is UNDEFINED:
            answer = UNDEFINED
            continue
        matched = _contains(pattern, item, world) if isinstance(item, str) else ERROR
        if matched is not False:
            return matched
    return answer


def _string_list_regexp_member(arguments: Sequence[Any], world: World) -> Any:
    """`(pattern, list, delimiters, options)`; undefined for an empty list."""
    if len(arguments) not in (2, 3, 4) or not all(isinstance(value, str) for value in arguments):
        return ERROR
    pattern = _pattern(arguments[0], "".join(arguments[3:]), world)
    if pattern is None:
        return ERROR
    items = items_of(*arguments[1:3])
    if not items:
        return UNDEFINED
    for item in items:
        matched = _contains(pattern, item, world)
        if matched is not False:
            return matched
    return False


def _replaced(arguments: Sequence[Any], world: World, *, whole: bool, each: bool) -> Any:
    """The replacement for the first match, or for each; with `whole`, in its place in the text."""
    if not all(isinstance(value, str) for value in arguments):
        return unknown_first(arguments)
    text, subject, replacement, *options = arguments
    pattern, encoded = _pattern(text, "".join(options), world), _encoded(subject)
    if pattern is None or encoded is None:
        return ERROR
    parts, last = list[str](), 0
    for match in _matches(pattern, encoded, each, world):
        first, end = match.span()
        filled = None if each and first == end else _filled(replacement, match)
        if filled is None:
            return ERROR
        world.charge(len(filled) // 4)
        parts += [encoded[last:first].decode() if whole else "", filled]
        last = end
    return bounded([*parts, encoded[last:].decode() if whole else ""])


def _matches(pattern: Pattern, subject: bytes, each: bool, world: World) -> Iterator[PatternMatch]:
    start = 0
    while (match := _find(pattern, subject, start, world)) is not None:
        yield match
        if not each:
            return
        start = match.end()


def _filled(replacement: str, match: PatternMatch) -> str | None:
    r"""The replacement with the text of group 3 for \3, and of the match for \0. None: there is no such group.

    A group before the last one that took part may be absent, and is empty then.
    """
    groups = match.groups()
    last = max((place for place, group in enumerate(groups, 1) if group is not None), default=0)
    parts, place = list[str](), 0
    while (mark := replacement.find("\\", place)) >= 0:
        digit = replacement[mark + 1 : mark + 2]
        if not digit.isascii() or not digit.isdecimal():
            parts.append(replacement[place : mark + 1])
            place = mark + 1
            continue
        if int(digit) > last:
            return None
        parts += [replacement[place:mark], (match.group(int(digit)) or b"").decode()]
        place = mark + 2
    return bounded([*parts, replacement[place:]])


def _regexps(arguments: Sequence[Any], world: World) -> Any:
    """`(pattern, text, replacement, options)`. Option f keeps the text around the match, option g takes each match."""
    if len(arguments) not in (3, 4):
        return ERROR
    options = arguments[3] if len(arguments) == 4 and isinstance(arguments[3], str) else ""
    return _replaced(arguments, world, whole="f" in options, each="g" in options)


def _replacing(each: bool) -> Function:
    def apply(arguments: Sequence[Any], world: World) -> Any:
        return _replaced(arguments, world, whole=True, each=each) if len(arguments) in (3, 4) else ERROR

    return apply


PATTERNS: Final[dict[str, Function]] = {
    "regexp": _regexp,
    "regexpmember": _regexp_member,
    "regexps": _regexps,
    "replace": _replacing(False),
    "replaceall": _replacing(True),
    "stringlist_regexpmember": _string_list_regexp_member,
}

OPTIONS_PLACE: Final = {
    "regexp": 2,
    "regexpmember": 2,
    "regexps": 3,
    "replace": 3,
    "replaceall": 3,
    "stringlist_regexpmember": 3,
}
"""The place of a function's options, by name. Its pattern is the first argument."""
