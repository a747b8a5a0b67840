"""Output patterns, matched against names folder by folder.

A state says how far a folder matches a pattern. A folder in which no pattern has a state need not be read.
"""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass
from typing import Callable, FrozenSet, Iterable, List, Optional, Set, Tuple

from .folders import stays_inside

_DEEP = "**"
ALL = -1
"""The position in a pattern that has matched a folder: everything below the folder matches."""
State = Tuple[int, int]
"""(pattern number, position): how many parts of the pattern the folders down to here have matched."""


@dataclass(frozen=True)
class _PatternPart:
    """The part of a pattern between two slashes."""

    text: str
    match: Optional[Callable[[str], object]]
    """None if the part has no wildcards."""

    def fits(self, name: str) -> bool:
        if self.match is None:
            return name == self.text
        # As in a shell, wildcards do not match hidden files. A file that has the text as its name is meant, too.
        return name == self.text or (
            bool(self.match(name)) and (not name.startswith(".") or self.text.startswith("."))
        )


@dataclass(frozen=True)
class _OutputPattern:
    parts: Tuple[_PatternPart, ...]
    only_folders: bool


class OutputPatterns:
    """All output patterns of a payload. Patterns that no name can match have no states."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: List[str] = list(texts)
        self._patterns = [_parse_pattern(text) for text in self.texts]

    def initial_states(self) -> FrozenSet[State]:
        """The states in the payload's folder."""
        starts = {(number, 0) for number, pattern in enumerate(self._patterns) if pattern is not None}
        return frozenset(self._with_empty_matches(starts))

    def _next_part(self, state: State) -> Optional[_PatternPart]:
        """The part that the next name must match; None if all parts have matched."""
        pattern = self._patterns[state[0]]
        assert pattern is not None
        return pattern.parts[state[1]] if 0 <= state[1] < len(pattern.parts) else None

    def literal_names(self, states: FrozenSet[State]) -> Optional[Set[str]]:
        """The only names that can match in this folder; None if a pattern has wildcards here."""
        names = set()
        for state in states:
            part = self._next_part(state)
            if part is None or part.match is not None:
                return None
            names.add(part.text)
        return names

    def can_match(self, name: str, states: FrozenSet[State]) -> bool:
        return any(state[1] == ALL or self._fits(state, name) for state in states)

    def _fits(self, state: State, name: str) -> bool:
        part = self._next_part(state)
        if part is None:
            return False
        return not name.startswith(".") if part.text == _DEEP else part.fits(name)

    def _with_empty_matches(self, states: Set[State]) -> Set[State]:
        """Add the states that are reached without a folder, since ** also matches no folder."""
        for state in list(states):
            number, position = state
            part = self._next_part(state)
            while part is not None and part.text == _DEEP:
                position += 1
                states.add((number, position))
                part = self._next_part((number, position))
        return states

    def states_below(self, states: FrozenSet[State], name: str) -> Set[State]:
        """The states in the folder `name`."""
        below: Set[State] = set()
        for state in states:
            number, position = state
            if position == ALL:
                below.add(state)
            elif self._fits(state, name):
                part = self._next_part(state)
                below.add(state if part is not None and part.text == _DEEP else (number, position + 1))
        closed = self._with_empty_matches(below)
        return {state if self._next_part(state) is not None else (state[0], ALL) for state in closed}

    def matching_patterns(self, states: FrozenSet[State], name: str) -> Set[int]:
        """The patterns that the file `name` matches."""
        matching = set()
        for state in states:
            number, position = state
            pattern = self._patterns[number]
            assert pattern is not None
            last_part = (
                position == len(pattern.parts) - 1 and not pattern.only_folders and self._fits(state, name)
            )
            if position == ALL or last_part:
                matching.add(number)
        return matching


def _parse_pattern(text: str) -> Optional[_OutputPattern]:
    """Parse a pattern; None if no name can match it."""
    if not stays_inside(text):
        return None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return None
    parts = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if not any(char in part for char in "*?["):
            parts.append(_PatternPart(part, None))
            continue
        try:
            parts.append(_PatternPart(part, re.compile(fnmatch.translate(part)).match))
        except re.error:  # a range such as [z-a]
            parts.append(_PatternPart(part, None))
    return _OutputPattern(tuple(parts), text.endswith("/"))
