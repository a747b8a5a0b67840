"""Reads the limits of control groups (version 1 and 2) for this process: its own group and all groups above it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Iterator, List, Tuple

_ABSURD = 1 << 60
"""Numbers from here on mean "no limit": version 1 writes a number near 2^63."""


@dataclass(frozen=True)
class CgroupLimits:
    processors: float = 0.0
    """0: no limit."""
    memory: int = 0
    """Bytes; 0: no limit."""


def limits_of(root: str = "/") -> CgroupLimits:
    """The limits of the calling process. A file that cannot be read sets no limit."""
    processors: List[float] = []
    memory: List[int] = []
    for folder in _folders(root, ""):
        processors += _quota(_words(folder, "cpu.max"))
        memory += _number(_words(folder, "memory.max"))
    for folder in _folders(root, "cpu"):
        processors += _quota(_words(folder, "cpu.cfs_quota_us") + _words(folder, "cpu.cfs_period_us"))
    for folder in _folders(root, "memory"):
        memory += _number(_words(folder, "memory.limit_in_bytes"))
    return CgroupLimits(min(processors, default=0.0), min(memory, default=0))


def parse_membership(text: str) -> List[Tuple[str, str]]:
    """The pairs (controller, path) in /proc/self/cgroup; the controller of version 2 is ""."""
    pairs = []
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        pairs += [(controller, path) for controller in controllers.split(",")]
    return pairs


def _folders(root: str, controller: str) -> Iterator[str]:
    """The folders of our group and of all groups above it, for one controller."""
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:
            membership = parse_membership(file.read())
    except OSError:
        return
    base = os.path.join(root, "sys/fs/cgroup", controller)
    for name, path in membership:
        if name == controller:
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), -1, -1):
                yield os.path.join(base, *parts[:depth])


def _words(folder: str, name: str) -> List[str]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read().split()
    except OSError:
        return []


def _quota(words: List[str]) -> List[float]:
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return []
    return [int(words[0]) / int(words[1])]


def _number(words: List[str]) -> List[int]:
    return [int(word) for word in words[:1] if word.isdigit() and int(word) < _ABSURD]
