"""The command line."""

from __future__ import annotations

import argparse
import os
from typing import List, Mapping, Optional

from .node import batch_id


def parse(arguments: Optional[List[str]], environment: Mapping[str, str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pilotage.pilot",
        description="Take jobs from a Pilotage server and run them on this node. The secret is read from standard "
        "input or another file descriptor, never from the command line or the environment.",
    )
    add = parser.add_argument
    add("--server", required=True, metavar="URL")
    add("--index", required=True, type=int, help="which pilot of its submission this is")
    add("--stamp", default="", help="name by which its director finds this process; nothing else uses it")
    add("--ce", default="", help="for the log only")
    add("--processors", type=int, default=0, help="0: find out")
    add("--memory", type=int, default=0, help="MB (2^20 bytes); 0: find out")
    add("--workdir", default=environment.get("TMPDIR", ""), help="default: TMPDIR")
    add("--batch-id", default=batch_id(environment))
    add("--idle", type=float, default=None, help="leave after so many seconds without work")
    add("--patience", type=float, default=600.0, help="leave after so many seconds without a server or work")
    add("--fingerprint", default="", help="SHA-256 of the server's certificate, in hexadecimal")
    add(
        "--program-fd",
        type=int,
        default=-1,
        help="descriptor that this program is read from: kept from payloads",
    )
    add("--secret-fd", type=int, default=0, help="file descriptor to read the secret from")
    options = parser.parse_args(arguments)
    if options.processors < 0 or options.memory < 0:
        parser.error("processors and memory can't be negative")
    if options.workdir and not os.path.isdir(options.workdir):
        parser.error(f"no such folder: {options.workdir}")
    return options
