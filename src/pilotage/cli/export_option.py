"""`--export`: which variables of the submitting shell a job gets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from pilotage.core.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HINT = "NONE, ALL, or names with commas between them: A,B=value (quote values with commas)"
OWN = "PILOTAGE_"
"""Settings of this program and the way to the user's token: they never go along."""


def parse_export(word: str, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(variables by name, names that are not set here) of `--export WORD`; "" and NONE: no variables.

    ALL takes every variable but shell functions and our own settings; later items replace earlier ones.
    """
    items = _items(word)
    if [item.upper() for item in items] in ([], ["NONE"]):
        return {}, []
    variables: dict[str, str] = {}
    unset: list[str] = []
    for item in items:
        name, equals, value = item.partition("=")
        if item.upper() == "ALL":
            variables |= {key: text for key, text in environment.items() if _goes_along(key)}
        elif item.upper() == "NONE":
            raise InvalidInput(f"--export {word}: NONE stands alone", hint=_HINT)
        elif not _NAME.match(name):
            raise InvalidInput(f"--export {word}: {name!r} is not the name of a variable", hint=_HINT)
        elif equals:
            variables[name] = value
        elif name in environment:
            variables[name] = environment[name]
        else:
            unset.append(name)
    return variables, unset


def _items(word: str) -> list[str]:
    """Split at commas that are not quoted."""
    lexer = shlex.shlex(word, posix=True)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = ",", True, ""
    try:
        return [item for item in (part.strip() for part in lexer) if item]
    except ValueError as trouble:
        raise InvalidInput(f"--export {word}: a quote is not closed", hint=_HINT) from trouble


def _goes_along(name: str) -> bool:
    return bool(_NAME.match(name)) and not name.startswith(OWN)
