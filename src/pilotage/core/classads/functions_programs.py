"""Functions of ClassAds over the arguments and environments of programs, in HTCondor's two spellings.

Version 1 separates by blanks, or environment variables by semicolons, and cannot quote. Version 2 separates by blanks
and quotes with '; within quotes '' is one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pilotage.core.classads.functions_basic import Function, one
from pilotage.core.classads.functions_text import bounded
from pilotage.core.classads.tree import ERROR, UNDEFINED

_BLANKS: Final = " \t\r\n"
_QUOTED: Final = re.compile(r"[ \t\r\n']+")
_WORD: Final = re.compile(r"(?:[^ \t\r\n']|'(?:[^']|'')*')+")


def _joined(words: Iterable[str]) -> str:
    return bounded([_quoted(word) for word in words], " ")


def _quoted(word: str) -> str:
    return _QUOTED.sub(lambda run: f"'{run[0].replace(chr(39), chr(39) * 2)}'", word) if word else "''"


def _words(text: str) -> list[str] | None:
    """The words of a text of version 2. None: a quote is not closed."""
    words, place = list[str](), 0
    while True:
        while place < len(text) and text[place] in _BLANKS:
            place += 1
        if place == len(text):
            return words
        word = _WORD.match(text, place)
        if word is None or (word.end() < len(text) and text[word.end()] not in _BLANKS):
            return None
        words.append(_unquoted(word[0]))
        place = word.end()


def _unquoted(word: str) -> str:
    return re.sub(r"'((?:[^']|'')*)'", lambda quoted: quoted[1].replace("''", "'"), word)


def _args_to_list(arguments: Sequence[Any], world: Any) -> Any:
    version = _version(arguments)
    if version is None or not isinstance(arguments[0], str):
        return ERROR
    if version == 1:
        return tuple(re.findall(r"[^ \t\r\n]+", arguments[0]))
    words = _words(arguments[0])
    return ERROR if words is None else tuple(words)


def _list_to_args(arguments: Sequence[Any], world: Any) -> Any:
    version = _version(arguments)
    if version is None or not isinstance(arguments[0], tuple):
        return ERROR
    words = arguments[0]
    if not all(isinstance(word, str) for word in words):
        return ERROR
    if version == 2:
        return _joined(words)
    if any(mark in word for word in words for mark in _BLANKS):
        return ERROR
    return bounded(words, " ")


def _version(arguments: Sequence[Any]) -> int | None:
    """The spelling that the second argument names, by default 2. None: there is no such call."""
    if len(arguments) not in (1, 2):
        return None
    version = arguments[1] if len(arguments) == 2 else 2
    return version if type(version) is int and version in (1, 2) else None


def _environment(entries: Iterable[str]) -> dict[str, str] | None:
    """The variables of `NAME=value`, the last of a name. None: an entry has no name or no value."""
    variables = {}
    for entry in entries:
        name, mark, value = entry.partition("=")
        if not name or not mark:
            return None
        variables[name] = value
    return variables


def _spelled(variables: dict[str, str] | None) -> Any:
    if variables is None:
        return ERROR
    by_name = sorted(variables.items(), key=lambda variable: variable[0].encode("utf-8", "surrogatepass"))
    return _joined(f"{name}={value}" for name, value in by_name)


def _from_version_1(text: Any) -> Any:
    if not isinstance(text, str):
        return UNDEFINED if text is UNDEFINED else ERROR
    entries = (entry.lstrip(_BLANKS) for entry in re.split("[;\n]", text))
    return _spelled(_environment(entry for entry in entries if entry))


def _merged(arguments: Sequence[Any], world: Any) -> Any:
    """One environment of several, the last value of each variable; undefined ones are left out."""
    entries: list[str] = []
    for text in arguments:
        words = [] if text is UNDEFINED else _words(text) if isinstance(text, str) else None
        if words is None:
            return ERROR
        entries += words
    return _spelled(_environment(entries))


PROGRAMS: Final[dict[str, Function]] = {
    "argstolist": _args_to_list,
    "listtoargs": _list_to_args,
    "envv1tov2": one(_from_version_1),
    "mergeenvironment": _merged,
}
