"""Builds the file system that an isolated payload sees: an allowlist of the node's, in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from pilotage.wire.isolation import SYSTEM_FOLDERS

from .kernel import (
    MS_BIND,
    MS_NOATIME,
    MS_NODEV,
    MS_NODIRATIME,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
    MS_SLAVE,
    KernelRefused,
    mount,
    pivot_root,
    unmount,
)

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_OTHER_DEVICES = ("nvidia*", "dri", "kfd", "infiniband", "fuse")
"""Devices for computing. Their own permissions decide who may use them."""
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_OLD, _NEW = "/oldroot", "/newroot"
_MEMORY = "/dev/shm"  # noqa: S108
_SHARED_MEMORY = _NEW + _MEMORY
_OPTIONS = {
    "ro": MS_RDONLY,
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME,
    "nodiratime": MS_NODIRATIME,
    "relatime": MS_RELATIME,
}


@dataclass(frozen=True)
class VisiblePath:
    """A path of the node that payloads see."""

    path: str
    writable: bool = False


def parse_visible(text: str) -> VisiblePath:
    """Parse PATH, PATH:ro or PATH:rw."""
    path, _, mode = text.rpartition(":")
    return VisiblePath(path, mode == "rw") if path and mode in ("ro", "rw") else VisiblePath(text)


def is_visible(path: str, visible: List[VisiblePath]) -> bool:
    """Whether payloads see this path, links on the way followed."""
    places = [*SYSTEM_FOLDERS, *(entry.path for entry in visible)]
    real = os.path.realpath(path)
    return any(is_below(real, os.path.realpath(place)) for place in places)


def can_show(folder: str) -> bool:
    """Whether a payload may see this folder, whose path has no links. It has its own root, processes and devices."""
    is_own = folder == "/" or is_below(folder, "/proc") or is_below(folder, "/dev")
    return not is_own or is_below(folder, _MEMORY)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is this folder or in it; both without links."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def enter_root(folder: str, tmp: str, visible: List[VisiblePath], hidden: Sequence[str]) -> None:
    """Replace the root of the calling process, which must have its own mount and PID namespace.

    `folder` and `tmp` stay at their paths; /tmp and /var/tmp are `tmp` too. The folders of `hidden` are empty if
    a larger visible folder contains them. Raises OSError.
    """
    resolver = VisiblePath(os.path.realpath("/etc/resolv.conf"))
    # Links are resolved while the node's root is still the root.
    shown = [(os.path.realpath(entry.path), entry) for entry in visible]
    real_folder, real_tmp = os.path.realpath(folder), os.path.realpath(tmp)
    # Nothing that happens here reaches the node; later mounts of the node still appear here.
    mount("none", "/", None, MS_SLAVE | MS_REC)
    mount("tmpfs", real_tmp, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    os.chdir(real_tmp)
    os.mkdir(_NEW[1:], 0o755)
    os.mkdir(_OLD[1:], 0o755)
    mount(_NEW[1:], _NEW[1:], None, MS_BIND | MS_REC)
    pivot_root(".", _OLD[1:])
    os.chdir("/")
    root = _NewRoot()
    for path in SYSTEM_FOLDERS:
        root.show_system(path)
    if not any(is_below(resolver.path, path) for path in ("/etc", "/usr")):
        root.show_optional(resolver.path, resolver)
    root.make_devices()
    root.make_processes()
    for path in ("/tmp", "/var/tmp"):  # noqa: S108
        root.show(real_tmp, path, writable=True)
    # A folder comes before the folders in it, which would be hidden otherwise.
    steps = [*((entry.path, real, entry) for real, entry in shown), *((path, path, None) for path in hidden)]
    for path, real, entry_or_none in sorted(steps, key=lambda step: step[0]):
        if entry_or_none is None:
            root.hide(path)
        else:
            root.show_optional(real, entry_or_none)
    root.show(real_folder, folder, writable=True)
    root.show(real_tmp, tmp, writable=True)
    root.restrict()
    mount("none", _OLD, None, MS_PRIVATE | MS_REC)
    unmount(_OLD)
    os.chdir(_NEW)
    pivot_root(".", ".")
    unmount(".")
    os.chdir("/")


class _NewRoot:
    """The new root while it is built. The old root is at `_OLD`."""

    def __init__(self) -> None:
        self._writable: Dict[str, bool] = {_NEW: False}
        """Whether a shown folder or file is writable, by its path."""
        self._devices: List[str] = []

    def show_system(self, path: str) -> None:
        """Show a folder of the node if it exists; a link to another one stays a link."""
        old = _OLD + path
        if os.path.islink(old):
            os.symlink(os.readlink(old), _NEW + path)
        elif os.path.isdir(old):
            self.show(path, path, writable=False)

    def show_optional(self, real: str, entry: VisiblePath) -> None:
        """Show a path, unless the node does not have it. `real`: the path without links."""
        if os.path.exists(_OLD + real):
            self.show(real, entry.path, writable=entry.writable)

    def show(self, source: str, path: str, *, writable: bool) -> None:
        """Bind `source` of the node, with everything mounted below it, to `path`."""
        target = _NEW + path
        _make_mount_point(_OLD + source, target)
        mount(_OLD + source, target, None, MS_BIND | MS_REC)
        self._writable[target] = writable

    def hide(self, path: str) -> None:
        """Cover a folder by an empty one if it is visible."""
        if os.path.isdir(_NEW + path) and not os.path.islink(_NEW + path):
            mount("tmpfs", _NEW + path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
            self._writable[_NEW + path] = False

    def make_devices(self) -> None:
        """Make /dev with harmless devices, devices for computing, and its own shared memory."""
        os.mkdir(_NEW + "/dev", 0o755)
        names = list(_DEVICES)
        for pattern in _OTHER_DEVICES:
            names += [os.path.basename(path) for path in glob.glob(f"{_OLD}/dev/{pattern}")]
        for name in names:
            if os.path.exists(f"{_OLD}/dev/{name}"):
                self.show(
                    f"/dev/{name}", f"/dev/{name}", writable=False
                )  # a device can be written to all the same
                self._devices.append(f"{_NEW}/dev/{name}")
        for name, target in _LINKS.items():
            os.symlink(target, f"{_NEW}/dev/{name}")
        os.mkdir(_SHARED_MEMORY, 0o1777)
        mount("tmpfs", _SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
        os.mkdir(_NEW + "/dev/pts", 0o755)
        with contextlib.suppress(KernelRefused):  # a payload seldom needs terminals
            mount("devpts", _NEW + "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666")
        self._writable[_SHARED_MEMORY] = self._writable[_NEW + "/dev/pts"] = True

    def make_processes(self) -> None:
        """Mount a /proc that shows the processes of this PID namespace only."""
        os.mkdir(_NEW + "/proc", 0o555)
        mount("proc", _NEW + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        self._writable[_NEW + "/proc"] = True

    def restrict(self) -> None:
        """Make every mount read-only that was not shown as writable; programs and devices lose their rights.

        Flags that the node has set must stay: the kernel does not let a user namespace clear them.
        """
        for point, flags in _mount_points():
            shown = max((path for path in self._writable if is_below(point, path)), key=len, default="")
            if not shown:
                continue
            flags |= MS_NOSUID
            if shown not in self._devices:
                flags |= MS_NODEV
            if not self._writable[shown]:
                flags |= MS_RDONLY
            with contextlib.suppress(FileNotFoundError):  # hidden below another mount
                mount("none", point, None, MS_BIND | MS_REMOUNT | flags)


def _make_mount_point(source: str, target: str) -> None:
    """Make an empty folder or file, as `source` is one, unless it exists."""
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
    if not os.path.lexists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444))


def _mount_points() -> List[Tuple[str, int]]:
    """All mounts with their present flags."""
    points = []
    with open(_OLD + "/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields = line.split(b" ")
            path = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), fields[4])
            flags = 0
            for option in fields[5].decode("ascii", "replace").split(","):
                flags |= _OPTIONS.get(option, 0)
            points.append((os.fsdecode(path), flags))
    return points
