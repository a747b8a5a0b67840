"""Finds the output files of a payload by its patterns, in one bounded walk through its folder.

The walk always ends: links are not followed, and entries, files, depth and time have limits. The result lists the
files that were left out, each with the reason.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Container, Deque, Dict, FrozenSet, Iterable, Iterator, List, Set, Tuple

from pilotage.wire.pilot import RefusedOutput

from .output_patterns import ALL, OutputPatterns, State
from .safe_open import (
    NotAFile,
    check_regular,
    escape_name,
    is_storable_name,
    kind_of,
    open_folder,
    open_root,
    split,
)

MAX_ENTRIES = 200_000
"""Directory entries that are read."""
MAX_FILES = 10_000
MAX_TOTAL_NAME_BYTES = 200_000
"""Bytes of the names of all files found, which are sent in one message."""
MAX_NAME_BYTES = 1000
"""Bytes of one name, including its folders."""
MAX_DEPTH = 100
"""Levels of nested folders."""
MAX_SECONDS = 60.0
MAX_REFUSED = 100
"""Refused files that are reported individually."""
_MAX_LINK_HOPS = 8
"""Links that lead to other links."""
MAX_SHOWN = 200
"""Characters of a name or reason in a report."""


class SearchCancelled(Exception):
    """The search was cancelled: the outputs are no longer needed."""


@dataclass(frozen=True)
class OutputEntry:
    name: str
    source: str
    """The regular file to read, relative to the folder. It differs from `name` if `name` is a link."""


@dataclass
class SearchResult:
    outputs: List[OutputEntry] = field(default_factory=list)
    """Ordered by name."""
    missing: List[str] = field(default_factory=list)
    """Patterns that matched nothing."""
    refused: List[RefusedOutput] = field(default_factory=list)


class _LimitReached(Exception):
    """A limit of the whole walk was reached."""


def find_outputs(
    folder: str,
    patterns: Iterable[str],
    *,
    inputs: Container[str] = (),
    is_cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Find the regular files below `folder` that the patterns match. A matching folder includes everything below it.

    `inputs`: names of links that are inputs of the job; they are no outputs and are left out without a report.
    Raises SearchCancelled once `is_cancelled` is true, and OSError if the folder itself cannot be read.
    """
    root = open_root(folder)
    try:
        return _Search(root, folder, patterns, inputs, is_cancelled, clock).run()
    finally:
        os.close(root)


class _Search:
    def __init__(
        self,
        root: int,
        folder: str,
        patterns: Iterable[str],
        inputs: Container[str],
        is_cancelled: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._root = root
        self._roots = {folder.rstrip("/") + "/", os.path.realpath(folder) + "/"}
        self._patterns = OutputPatterns(patterns)
        self._inputs = inputs
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._until = clock() + MAX_SECONDS
        self._entries = self._bytes = self._omitted = 0
        self._matched: Set[int] = set()
        self._outputs: Dict[str, OutputEntry] = {}
        self._refused: Dict[str, str] = {}
        self._folders: Deque[Tuple[str, int, FrozenSet[State]]] = deque()

    def run(self) -> SearchResult:
        self._folders.append(("", 0, self._patterns.initial_states()))
        reason = ""
        try:
            while self._folders:
                self._search_folder(*self._folders.popleft())
        except _LimitReached as full:
            reason = str(full)
        return self._result(reason)

    def _result(self, reason: str) -> SearchResult:
        refused = [RefusedOutput(name[:MAX_SHOWN], why) for name, why in sorted(self._refused.items())]
        if self._omitted:
            refused.append(RefusedOutput("...", f"{self._omitted:,} more files"))
        if reason:
            shown = ", ".join(map(escape_name, self._patterns.texts))[:MAX_SHOWN]
            refused.append(RefusedOutput(shown, f"the search ended early: {reason}"))
        return SearchResult(
            [self._outputs[name] for name in sorted(self._outputs)],
            [
                escape_name(text)
                for number, text in enumerate(self._patterns.texts)
                if number not in self._matched
            ],
            refused,
        )

    # --- folders

    def _search_folder(self, folder: str, depth: int, states: FrozenSet[State]) -> None:
        if depth > MAX_DEPTH:
            self._refuse(folder, f"more than {MAX_DEPTH} folders deep", states)
            return
        try:
            number = open_folder(self._root, folder)
        except OSError as error:
            self._refuse(folder, _unreadable(error), states)
            return
        try:
            for name, mode in self._entries_of(number, folder, states):
                self._check_entry(number, f"{folder}/{name}" if folder else name, name, mode, depth, states)
        finally:
            os.close(number)

    def _entries_of(self, number: int, folder: str, states: FrozenSet[State]) -> Iterator[Tuple[str, int]]:
        """Yield (name, mode) of the entries that may match."""
        names = self._patterns.literal_names(states)
        try:
            if names is not None:  # without wildcards, a folder with a million files need not be read
                for name in names:
                    self._count_entry()
                    try:
                        yield name, os.stat(name, dir_fd=number, follow_symlinks=False).st_mode
                    except (FileNotFoundError, NotADirectoryError):
                        continue
                return
            with os.scandir(number) as entries:
                for entry in entries:
                    self._count_entry()
                    if self._patterns.can_match(entry.name, states):
                        try:
                            yield entry.name, entry.stat(follow_symlinks=False).st_mode
                        except FileNotFoundError:
                            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                self._refuse(folder or ".", _unreadable(error), states)

    def _count_entry(self) -> None:
        if self._entries % 256 == 0:
            if self._is_cancelled():
                raise SearchCancelled
            if self._clock() > self._until:
                raise _LimitReached(f"it took longer than {MAX_SECONDS:.0f} s")
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise _LimitReached(f"the folder has more than {MAX_ENTRIES:,} entries")

    # --- entries

    def _check_entry(
        self, folder: int, name: str, last_part: str, mode: int, depth: int, states: FrozenSet[State]
    ) -> None:
        if stat.S_ISDIR(mode):
            states_below = self._patterns.states_below(states, last_part)
            if states_below:
                self._folders.append((name, depth + 1, frozenset(states_below)))
            return
        matching = self._patterns.matching_patterns(states, last_part)
        if not matching or (name in self._inputs and stat.S_ISLNK(mode)):
            return
        self._matched |= matching
        try:
            if not is_storable_name(name):
                raise NotAFile("its name has characters that are not UTF-8, or control characters")
            if len(os.fsencode(name)) > MAX_NAME_BYTES:
                raise NotAFile(f"its name has more than {MAX_NAME_BYTES} bytes")
            source = name
            if stat.S_ISLNK(mode):
                source = self._resolve_link(name)
            else:
                check_regular(mode)
        except NotAFile as error:
            self._refuse(name, str(error))
        except OSError as error:
            self._refuse(name, _unreadable(error))
        else:
            self._add_output(OutputEntry(name, source))

    def _add_output(self, output: OutputEntry) -> None:
        if output.name in self._outputs:
            return
        self._bytes += len(os.fsencode(output.name))
        if len(self._outputs) == MAX_FILES:
            raise _LimitReached(f"more than {MAX_FILES:,} files match")
        if self._bytes > MAX_TOTAL_NAME_BYTES:
            raise _LimitReached(f"the names of the files have more than {MAX_TOTAL_NAME_BYTES:,} bytes")
        self._outputs[output.name] = output

    def _refuse(self, name: str, reason: str, states: Iterable[State] = ()) -> None:
        self._matched |= {number for number, position in states if position == ALL}
        if len(self._refused) < MAX_REFUSED:
            self._refused[escape_name(name)] = reason
        else:
            self._omitted += 1

    def _resolve_link(self, link: str) -> str:
        """The regular file in the folder that a link leads to. Raises NotAFile if there is none, or OSError."""
        name = link
        for _ in range(_MAX_LINK_HOPS):
            name = self._read_link(name)
            parent, last_part = split(name)
            try:
                folder = open_folder(self._root, parent)
            except OSError as error:
                # No folder on the way may be a link.
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise NotAFile("a link through another link") from None
                raise
            try:
                mode = os.stat(last_part, dir_fd=folder, follow_symlinks=False).st_mode
            finally:
                os.close(folder)
            if stat.S_ISREG(mode):
                return name
            if not stat.S_ISLNK(mode):
                raise NotAFile(f"a link to {kind_of(mode)}")
        raise NotAFile("a link to too many other links")

    def _read_link(self, link: str) -> str:
        """The target of one link, as a name in the folder."""
        parent, last_part = split(link)
        folder = open_folder(self._root, parent)
        try:
            target = os.readlink(last_part, dir_fd=folder)
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


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
