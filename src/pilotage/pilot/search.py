"""Find the output files of a payload by its patterns, in one bounded walk through its folder.

Whatever the payload left there, the walk ends: links are not followed, and entries, files, depth and time have
limits. What is left out, and why, is part of the answer.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Container, Deque, Dict, FrozenSet, Iterable, Iterator, List, Optional, Set, Tuple

from pilotage.wire.pilot import RefusedOutput

from .beneath import NotAFile, carried, check_regular, kind_of, open_folder, open_root, printable, split
from .folders import within

MOST_ENTRIES = 200_000
"""Names that are looked at."""
MOST_FILES = 10_000
MOST_NAMES = 200_000
"""Bytes of the names of all files that are found: they travel in one message."""
LONGEST_NAME = 1000
"""Bytes of one name, its folders included."""
DEEPEST = 100
"""Folders within folders."""
MOST_SECONDS = 60.0
MOST_REFUSED = 100
"""Files that are told one by one."""
_MOST_HOPS = 8
"""Links to links."""
SHOWN = 200
"""Characters of a name or a reason that is told."""

_DEEP = "**"
_ALL = -1
"""The place in a pattern that has matched a folder: all that is below belongs to it."""
State = Tuple[int, int]
"""A pattern, and how many of its parts have matched the folders down to here."""


class GivenUp(Exception):
    """Nobody wants the outputs any more."""


@dataclass(frozen=True)
class Output:
    name: str
    source: str
    """The regular file to read, relative to the folder: another than `name` if that is a link."""


@dataclass
class Found:
    outputs: List[Output] = field(default_factory=list)
    """In the order of their names."""
    missing: List[str] = field(default_factory=list)
    """Patterns that matched nothing."""
    refused: List[RefusedOutput] = field(default_factory=list)


class _Full(Exception):
    """A limit of the whole walk was reached."""


@dataclass(frozen=True)
class _Part:
    """What stands between two slashes of a pattern."""

    text: str
    match: Optional[Callable[[str], object]]
    """None: the name itself."""

    def fits(self, name: str) -> bool:
        if self.match is None:
            return name == self.text
        # As in a shell, a wildcard does not find what is hidden.
        return bool(self.match(name)) and (not name.startswith(".") or self.text.startswith("."))


@dataclass(frozen=True)
class _Pattern:
    parts: Tuple[_Part, ...]
    only_folders: bool


def find_outputs(
    folder: str,
    patterns: Iterable[str],
    *,
    inputs: Container[str] = (),
    given_up: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """The regular files below `folder` that the patterns match; a folder counts with all that is below it.

    `inputs`: names of links that are inputs of the job; they are no outputs, and nothing is said of them.
    Raises GivenUp as soon as `given_up` says so, and OSError if the folder itself can't be read.
    """
    root = open_root(folder)
    try:
        return _Search(root, folder, list(patterns), inputs, given_up, clock).run()
    finally:
        os.close(root)


class _Search:
    def __init__(
        self,
        root: int,
        folder: str,
        patterns: List[str],
        inputs: Container[str],
        given_up: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._root = root
        self._roots = {folder.rstrip("/") + "/", os.path.realpath(folder) + "/"}
        self._texts = patterns
        self._patterns = [_parsed(text) for text in patterns]
        self._inputs = inputs
        self._given_up = given_up
        self._clock = clock
        self._until = clock() + MOST_SECONDS
        self._entries = self._bytes = self._unsaid = 0
        self._matched: Set[int] = set()
        self._outputs: Dict[str, Output] = {}
        self._refused: Dict[str, str] = {}
        self._folders: Deque[Tuple[str, int, FrozenSet[State]]] = deque()

    def run(self) -> Found:
        starts = {(number, 0) for number, pattern in enumerate(self._patterns) if pattern is not None}
        self._folders.append(("", 0, frozenset(self._closed(starts))))
        reason = ""
        try:
            while self._folders:
                self._look_into(*self._folders.popleft())
        except _Full as full:
            reason = str(full)
        return self._answer(reason)

    def _answer(self, reason: str) -> Found:
        refused = [RefusedOutput(name[:SHOWN], why) for name, why in sorted(self._refused.items())]
        if self._unsaid:
            refused.append(RefusedOutput("...", f"{self._unsaid:,} more files"))
        if reason:
            shown = ", ".join(map(printable, self._texts))[:SHOWN]
            refused.append(RefusedOutput(shown, f"the search ended early: {reason}"))
        return Found(
            [self._outputs[name] for name in sorted(self._outputs)],
            [printable(text) for number, text in enumerate(self._texts) if number not in self._matched],
            refused,
        )

    # --- folders

    def _look_into(self, folder: str, depth: int, states: FrozenSet[State]) -> None:
        if depth > DEEPEST:
            self._refuse(folder, f"more than {DEEPEST} folders deep", states)
            return
        try:
            number = open_folder(self._root, folder)
        except OSError as error:
            self._refuse(folder, _unreadable(error), states)
            return
        try:
            for name, mode in self._entries_of(number, folder, states):
                self._look_at(number, f"{folder}/{name}" if folder else name, name, mode, depth, states)
        finally:
            os.close(number)

    def _entries_of(self, number: int, folder: str, states: FrozenSet[State]) -> Iterator[Tuple[str, int]]:
        """(name, mode) of what may match."""
        names = self._named(states)
        try:
            if names is not None:  # a folder with a million files is not read for one of them
                for name in names:
                    self._count()
                    try:
                        yield name, os.stat(name, dir_fd=number, follow_symlinks=False).st_mode
                    except (FileNotFoundError, NotADirectoryError):
                        continue
                return
            with os.scandir(number) as entries:
                for entry in entries:
                    self._count()
                    if self._wanted(entry.name, states):
                        try:
                            yield entry.name, entry.stat(follow_symlinks=False).st_mode
                        except FileNotFoundError:
                            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                self._refuse(folder or ".", _unreadable(error), states)

    def _count(self) -> None:
        if self._entries % 256 == 0:
            if self._given_up():
                raise GivenUp
            if self._clock() > self._until:
                raise _Full(f"it took longer than {MOST_SECONDS:.0f} s")
        self._entries += 1
        if self._entries > MOST_ENTRIES:
            raise _Full(f"more than {MOST_ENTRIES:,} names were looked at")

    # --- patterns

    def _part(self, state: State) -> Optional[_Part]:
        """What the next name must fit; None if all was matched."""
        pattern = self._patterns[state[0]]
        assert pattern is not None
        return pattern.parts[state[1]] if 0 <= state[1] < len(pattern.parts) else None

    def _named(self, states: FrozenSet[State]) -> Optional[Set[str]]:
        """The only names that can match here; None if there are wildcards."""
        names = set()
        for state in states:
            part = self._part(state)
            if part is None or part.match is not None:
                return None
            names.add(part.text)
        return names

    def _wanted(self, name: str, states: FrozenSet[State]) -> bool:
        return any(state[1] == _ALL or self._fits(state, name) for state in states)

    def _fits(self, state: State, name: str) -> bool:
        part = self._part(state)
        if part is None:
            return False
        return not name.startswith(".") if part.text == _DEEP else part.fits(name)

    def _closed(self, states: Set[State]) -> Set[State]:
        """With those that are reached without a name: ** also stands for no folder."""
        for state in list(states):
            number, place = state
            part = self._part(state)
            while part is not None and part.text == _DEEP:
                place += 1
                states.add((number, place))
                part = self._part((number, place))
        return states

    def _after(self, states: FrozenSet[State], name: str) -> Set[State]:
        """The states in the folder `name`."""
        following: Set[State] = set()
        for state in states:
            number, place = state
            if place == _ALL:
                following.add(state)
            elif self._fits(state, name):
                part = self._part(state)
                following.add(state if part is not None and part.text == _DEEP else (number, place + 1))
        closed = self._closed(following)
        return {state if self._part(state) is not None else (state[0], _ALL) for state in closed}

    def _done(self, states: FrozenSet[State], name: str) -> Set[int]:
        """The patterns that the file `name` matches."""
        done = set()
        for state in states:
            number, place = state
            pattern = self._patterns[number]
            assert pattern is not None
            last = place == len(pattern.parts) - 1 and not pattern.only_folders and self._fits(state, name)
            if place == _ALL or last:
                done.add(number)
        return done

    # --- entries

    def _look_at(
        self, folder: int, name: str, last: str, mode: int, depth: int, states: FrozenSet[State]
    ) -> None:
        if stat.S_ISDIR(mode):
            after = self._after(states, last)
            if after:
                self._folders.append((name, depth + 1, frozenset(after)))
            return
        done = self._done(states, last)
        if not done or (name in self._inputs and stat.S_ISLNK(mode)):
            return
        self._matched |= done
        try:
            if not carried(name):
                raise NotAFile("its name has characters that are not UTF-8, or control characters")
            if len(os.fsencode(name)) > LONGEST_NAME:
                raise NotAFile(f"its name has more than {LONGEST_NAME} bytes")
            source = name
            if stat.S_ISLNK(mode):
                source = self._target(name)
            else:
                check_regular(mode)
        except NotAFile as error:
            self._refuse(name, str(error))
        except OSError as error:
            self._refuse(name, _unreadable(error))
        else:
            self._take(Output(name, source))

    def _take(self, output: Output) -> None:
        if output.name in self._outputs:
            return
        self._bytes += len(os.fsencode(output.name))
        if len(self._outputs) == MOST_FILES:
            raise _Full(f"more than {MOST_FILES:,} files match")
        if self._bytes > MOST_NAMES:
            raise _Full(f"the names of the files have more than {MOST_NAMES:,} bytes")
        self._outputs[output.name] = output

    def _refuse(self, name: str, reason: str, states: Iterable[State] = ()) -> None:
        self._matched |= {number for number, place in states if place == _ALL}
        if len(self._refused) < MOST_REFUSED:
            self._refused[printable(name)] = reason
        else:
            self._unsaid += 1

    def _target(self, link: str) -> str:
        """The regular file in the folder that a link leads to. Raises OSError, NotAFile if there is none."""
        name = link
        for _ in range(_MOST_HOPS):
            name = self._step(name)
            parent, last = split(name)
            try:
                folder = open_folder(self._root, parent)
            except OSError as error:
                # Of the folders on the way none may be a link.
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise NotAFile("a link through another link") from None
                raise
            try:
                mode = os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
            finally:
                os.close(folder)
            if stat.S_ISREG(mode):
                return name
            if not stat.S_ISLNK(mode):
                raise NotAFile(f"a link to {kind_of(mode)}")
        raise NotAFile("a link to too many other links")

    def _step(self, link: str) -> str:
        """Where one link points to, as a name in the folder."""
        parent, last = split(link)
        folder = open_folder(self._root, parent)
        try:
            target = os.readlink(last, dir_fd=folder)
        finally:
            os.close(folder)
        if target.startswith("/"):
            inside = [target[len(root) :] for root in self._roots if target.startswith(root)]
            if not inside:
                raise NotAFile("a link that leads out of the folder")
            parent, target = "", inside[0]
        name = os.path.normpath(os.path.join(parent, target))
        if name == ".":
            raise NotAFile("a link to a folder")
        if name == ".." or name.startswith(("../", "/")):
            raise NotAFile("a link that leads out of the folder")
        return name


def _parsed(text: str) -> Optional[_Pattern]:
    """None: nothing can match it."""
    if not within(text):
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
            parts.append(_Part(part, None))
            continue
        try:
            parts.append(_Part(part, re.compile(fnmatch.translate(part)).match))
        except re.error:  # a range such as [z-a]
            return None
    return _Pattern(tuple(parts), text.endswith("/"))


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
