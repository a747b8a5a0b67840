"""A program that runs commands of Pilotage in odd surroundings, each in a fork of its own.

Arguments: the streams, the commands as JSON, a file for the error output of a command, and a file that gets a line for
each command: its words, its exit code and its error output.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import threading
from collections.abc import Sequence

from pilotage.cli.root import Root, build, run
from pilotage.main.command_line import SERVER_COMMANDS

NOWHERE = ["up", "--database-url", "postgresql://127.0.0.1:1/none"]
FIRST = (["queue", "list"], ["db", "check"], ["policy", "preset", "nothing"], ["ce", "add", "x"], NOWHERE)
"""Commands at which libraries import further modules."""


def main(streams: str, commands: str, errors: str, told_path: str) -> None:
    root = build(SERVER_COMMANDS)
    for module in {command.module for command in root.commands.values()}:
        importlib.import_module(module)
    for words in FIRST:
        import_as(root, words, told_path)
    # A collection of garbage in a child would copy the memory of all these modules.
    gc.collect()
    gc.freeze()
    if streams == "no folder":
        os.rmdir(os.getcwd())
    with open(told_path, "w") as told:
        for words in json.loads(commands):
            child = os.fork()
            if not child:
                told.close()
                os._exit(run_with(root, words, streams, errors))
            status = os.waitpid(child, 0)[1]
            with open(errors, errors="replace") as text:
                told.write(json.dumps([words, os.waitstatus_to_exitcode(status), text.read()]) + "\n")
            told.flush()


def import_as(root: Root, words: Sequence[str], names: str) -> None:
    """Import the modules that a command imports: else each child would do so again."""
    if not os.fork():
        with open(os.devnull, "w") as nothing, contextlib.suppress(SystemExit):
            sys.stdout = sys.stderr = nothing
            run(root, words)
        with open(names, "w") as loaded:
            json.dump(list(sys.modules), loaded)
        os._exit(0)
    os.wait()
    with open(names) as loaded:
        for module in json.load(loaded):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)


def run_with(root: Root, words: Sequence[str], streams: str, errors: str) -> int:
    """Run a command as Python begins with such streams; its exit code."""
    log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    os.close(log)
    if streams in ("no stdout", "no streams"):
        os.close(1)
        sys.stdout = None
    if streams == "no streams":
        os.close(0)
        sys.stdin = None
        os.close(2)
        sys.stderr = None
    if streams == "full":
        replace_stdout(os.open("/dev/full", os.O_WRONLY))
    if streams == "reader gone":
        read, write = os.pipe()
        os.close(read)
        replace_stdout(write)
    if streams == "few files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))
    code = run(root, [word.encode("latin-1").decode("utf-8", "surrogateescape") for word in words])
    # The rest of an exit takes longer than most commands: it would copy all of the parent's memory.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return code or 0


def replace_stdout(file: int) -> None:
    os.dup2(file, 1)
    old = sys.stdout
    sys.stdout = os.fdopen(1, "w", encoding=old.encoding, errors=old.errors, closefd=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
