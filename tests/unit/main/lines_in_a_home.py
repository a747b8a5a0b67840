"""A program that runs command lines on homes, each in a fork of its own, and tells of each how it ended.

Arguments: a file with the orders as JSON, and a file that gets a line of JSON for each command line: the number of its
order, its number in the list of lines, its exit code, its output, and the files that it opened in the folders of the
order. For the first home it runs all lines, and for the others the first line of each verb that opened that one.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from pilotage.cli.dirac.commands import DIRAC_COMMANDS
from pilotage.cli.root import Root, build, run
from pilotage.cli.slurm.commands import SLURM_COMMANDS
from pilotage.cli.slurm.run import run as run_slurm
from pilotage.home_place import INSTANCE
from pilotage.main.command_line import SERVER_COMMANDS, explain
from tests.deadlines import PATIENCE
from tests.unit.cli.odd_surroundings import FIRST, import_as

CLONE_NEWNS, CLONE_NEWUSER, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 0x1000, 0x4000, 0x40000
CANNOT_MOUNT = 77


def main(order_file: str, told_file: str) -> None:
    given = json.loads(Path(order_file).read_text())
    lines: list[tuple[str, str, list[str]]] = given["lines"]
    root = build(SERVER_COMMANDS)
    for table in (root.commands, SLURM_COMMANDS, DIRAC_COMMANDS):
        for module in {command.module for command in table.values()}:
            importlib.import_module(module)
    for words in FIRST[:-1]:
        import_as(root, words, told_file)
    # A collection of garbage in a child would copy the memory of all these modules.
    gc.collect()
    gc.freeze()
    chosen = list(range(len(lines)))
    with open(told_file, "w+") as told:
        for number, order in enumerate(given["orders"]):
            if order["mounted"]:
                mount(*order["mounted"])
            os.environ["PILOTAGE_HOME"] = order["home"]
            os.chdir(order["work"])
            for place in chosen:
                program, _, words = lines[place]
                child = os.fork()
                if not child:
                    call = command_line(root, program, words)
                    tell(call, [number, place], order["folders"], told.fileno())
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                if code:
                    raise SystemExit(f"{program} {words} ended as {code}")
            if number == 0:
                chosen = opening(lines, told)


def opening(lines: Sequence[tuple[str, str, list[str]]], told: IO[str]) -> list[int]:
    """The first line of each verb that opened the home."""
    first: dict[str, int] = {}
    told.seek(0)
    for text in told:
        _, place, _, _, opened = json.loads(text)
        if opened:
            first.setdefault(lines[place][1], place)
    return list(first.values())


def command_line(root: Root, program: str, words: Sequence[str]) -> Callable[[], int]:
    if program == "slurm":
        return lambda: run_slurm(words[0], words[1:])
    return lambda: run(root if program == "pilotage" else Root(DIRAC_COMMANDS, {}, ""), words, explain)


def mount(source: str, target: str) -> None:
    """Show a folder at a second place too, to this program and its children only."""
    libc, user, group = ctypes.CDLL(None), os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if user else 0)):
        raise SystemExit(CANNOT_MOUNT)
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path(f"/proc/self/{name}").write_text(text)
    if libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) or libc.mount(
        source.encode(), target.encode(), None, MS_BIND, None
    ):
        raise SystemExit(CANNOT_MOUNT)


def tell(call: Callable[[], int], which: list[int], folders: Sequence[str], told: int) -> None:
    """Run a command line in this fork, write how it ended, and leave the fork."""
    with tempfile.TemporaryFile("w+") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        opened: set[str] = set()
        watching = True

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            if watching and event in ("open", "sqlite3.connect"):
                path = path_of(arguments[0])
                # The file that tells where a home belongs is read by all, and that of the original too.
                inside = any(path.startswith(folder + "/") for folder in folders)
                opened.update({path} if inside and os.path.basename(path) != INSTANCE else ())

        def hang(number: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        sys.addaudithook(watch)
        signal.signal(signal.SIGALRM, hang)
        signal.alarm(int(PATIENCE))

        code = call()
        watching = False
        output.seek(0)
        os.write(told, (json.dumps([*which, code, output.read(), sorted(opened)]) + "\n").encode())
    os._exit(0)


def path_of(opened: object) -> str:
    """The path of an opened file, whose name may be an address of SQLite; empty for a descriptor."""
    if not isinstance(opened, str | bytes | os.PathLike):
        return ""
    text = os.fsdecode(opened)
    return os.path.abspath(unquote(urlsplit(text).path) if text.startswith("file:") else text)


if __name__ == "__main__":
    main(*sys.argv[1:])
