"""The command line of the pilot."""

from __future__ import annotations

import argparse
import os
import re
from typing import Callable, List, Mapping, Optional

from pilotage.wire.server_address import check_address


def _fingerprint(text: str) -> str:
    """Checked here without `ssl`, which the guardian does not need."""
    fingerprint = text.replace(":", "").lower()
    if not re.fullmatch("[0-9a-f]{64}", fingerprint):
        raise argparse.ArgumentTypeError(f"not a SHA-256 fingerprint: {text!r}")
    return fingerprint


def parse(arguments: Optional[List[str]], environment: Mapping[str, str]) -> argparse.Namespace:
    """Parse and check the options. Defaults come from the environment, as given."""
    parser = argparse.ArgumentParser(
        prog="pilotage.pilot",
        description="Take jobs from a Pilotage server and run them on this node. The secret is read from standard "
        "input or another file descriptor, never from the command line or the environment.",
    )
    _add_server(parser.add_argument)
    _add_identity(parser.add_argument)
    _add_node(parser.add_argument, environment)
    _add_ends(parser.add_argument)
    options = parser.parse_args(arguments)
    for server in options.server:
        try:
            check_address(server, pinned=bool(options.fingerprint))
        except ValueError as error:
            parser.error(f"--server: {error}")
    if options.processors < 0 or options.memory < 0:
        parser.error("--processors and --memory cannot be negative")
    if options.workdir and not os.path.isdir(options.workdir):
        parser.error(f"--workdir: there is no folder {options.workdir}")
    return options


def _add_server(add: Callable[..., object]) -> None:
    add(
        "--server",
        required=True,
        action="append",
        metavar="URL",
        help="address of a server of the pool; may be repeated: the next one is used when one does not answer",
    )
    add(
        "--fingerprint",
        action="append",
        type=_fingerprint,
        default=[],
        metavar="SHA256",
        help="accept a server with this certificate, whoever has issued it; may be repeated",
    )
    add(
        "--ca-file",
        default="",
        help="file of accepted CAs, if no fingerprint is given; default: the system's",
    )
    add(
        "--program-fd",
        type=int,
        default=-1,
        help="file descriptor that this program is read from; payloads do not inherit it",
    )
    add("--secret-fd", type=int, default=0, help="file descriptor to read the secret from")


def _add_identity(add: Callable[..., object]) -> None:
    add("--index", required=True, type=int, help="number of this pilot within its submission")
    add(
        "--stamp", default="", help="name by which the director finds this process; the pilot does not use it"
    )
    add("--properties", default="", help="facts for listings of processes; the pilot does not use them")
    add(
        "--ce",
        default="",
        help="name of the computing element, for the process list; the pilot does not use it",
    )
    add("--batch-id", default="", help="id of the batch job")
    add("--batch-host", default="", help="name of this host in the batch system")
    add(
        "--batch-start",
        type=float,
        default=0.0,
        help="start of the batch job by the clock of --batch-end, in seconds since 1970; 0: not known",
    )
    add(
        "--batch-end",
        type=float,
        default=0.0,
        help="end of the batch job, in seconds since 1970; 0: not known",
    )
    add("--restarts", type=int, default=0, help="how often the batch system has started this job again")


def _add_node(add: Callable[..., object], environment: Mapping[str, str]) -> None:
    add("--processors", type=int, default=0, help="processors to use; 0: detect")
    add("--memory", type=int, default=0, help="memory to use in MB (2^20 bytes); 0: detect")
    add(
        "--workdir",
        default=environment.get("TMPDIR", ""),
        help="folder for the work folder (default: TMPDIR)",
    )


def _add_ends(add: Callable[..., object]) -> None:
    add("--idle", type=float, default=None, help="seconds without work after which the pilot leaves")
    add(
        "--patience",
        type=float,
        default=600.0,
        help="seconds to wait for an unavailable server while no job is held",
    )
    add(
        "--cut-off",
        choices=("stay", "leave"),
        default="stay",
        help="what the pilot does when its lease is over and no server answers. stay: it goes on, and keeps results "
        "until its end; leave: it stops its payloads and leaves (default stay)",
    )
