"""A probe: examines the node for `pilotage ce test`, reports, and ends. It runs no job."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
import urllib.parse
from typing import List

from pilotage.wire.pilot import EnrolResponse
from pilotage.wire.pilot_calls import PROBE
from pilotage.wire.probe import ProbeAnswer, ProbeCheck, ProbeReport
from pilotage.wire.proxy import find_proxy
from pilotage.wire.server_trust import ServerTrust

from .log import log
from .node import NodeResources
from .pilot_config import PilotConfig
from .servers import Servers
from .system import clock
from .transport import RequestRefused, ServerConnection, ServerUnavailable

OK, WARNING, FAILED = "ok", "warning", "failed"

SCRATCH_TRIAL = 1 << 20
"""Bytes that are written to the scratch folder to try it."""

LITTLE_SCRATCH = 1 << 30
"""Fewer free bytes than this are worth a warning."""


def run_probe(
    servers: Servers,
    trust: ServerTrust,
    answer: EnrolResponse,
    resources: NodeResources,
    config: PilotConfig,
    folder: str,
) -> int:
    """Examine this node and report the findings; the exit code.

    `folder`: the pilot's work folder.
    """
    checks = [
        check_python(),
        check_server(servers.current, trust),
        check_scratch(folder),
        check_processors(answer.processors, len(os.sched_getaffinity(0))),
        check_memory(resources),
        check_time(config, answer.wall, clock()),
        check_tags(resources),
        *check_isolation(answer.isolation, resources, config),
    ]
    for check in checks:
        log("probe", check=check.name, state=check.state, text=check.text)
    connection = ServerConnection(servers, trust, answer.token)
    try:
        connection.post(PROBE.path, ProbeReport(checks, time.time()), ProbeAnswer)
    except (RequestRefused, ServerUnavailable) as error:
        log("the report was not received", reason=error)
        return 5
    finally:
        connection.close()
    return 0


def interpreter() -> str:
    """The path of the interpreter. Without PATH in its environment Python does not know it."""
    return sys.executable or os.path.realpath("/proc/self/exe")


def check_python() -> ProbeCheck:
    """The interpreter. The batch script starts the pilot with Python 3.9 or newer only."""
    return ProbeCheck("Python", OK, f"{platform.python_version()}, {interpreter()}")


def check_isolation(wanted: str, resources: NodeResources, config: PilotConfig) -> List[ProbeCheck]:
    """Whether payloads are isolated, where the CE asks for it."""
    if wanted == "none":
        return []
    if resources.node.isolation:
        return [ProbeCheck("isolation", OK, "a program was started in namespaces of its own")]
    if config.unfit:
        return [ProbeCheck("isolation", FAILED, config.unfit)]
    return [ProbeCheck("isolation", WARNING, "this node cannot isolate payloads; the pilot's log tells why")]


def check_server(server: str, trust: ServerTrust) -> ProbeCheck:
    """The way to the server, over which the probe has enrolled already."""
    url = urllib.parse.urlsplit(server)
    if url.scheme == "http":
        return ProbeCheck("server", OK, f"reached at {server}, without TLS")
    proxy = find_proxy(url.scheme, url.hostname or "")
    way = f" through the proxy {proxy.host}:{proxy.port}" if proxy else ""
    how = "its certificate is pinned" if trust.fingerprints else "a CA issued its certificate"
    return ProbeCheck("server", OK, f"reached at {server}{way}, over TLS: {how}")


def check_scratch(folder: str) -> ProbeCheck:
    """Write to the folder in which payloads would run."""
    path = os.path.join(folder, "probe")
    try:
        with open(path, "wb") as file:
            file.write(os.urandom(SCRATCH_TRIAL))
            file.flush()
            os.fsync(file.fileno())
        os.unlink(path)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return ProbeCheck("scratch", FAILED, f"{folder}: {error.strerror or error}")
    state = OK if free >= LITTLE_SCRATCH else WARNING
    return ProbeCheck("scratch", state, f"{folder}: {free // 1_000_000:,} MB free")


def check_processors(asked: int, usable: int) -> ProbeCheck:
    """Compare the cores that this process may use with the cores of the pilot."""
    text = f"{usable} usable, {asked or usable} for payloads"
    return ProbeCheck("cores", OK if usable >= asked else WARNING, text)


def check_memory(resources: NodeResources) -> ProbeCheck:
    """The memory for payloads."""
    memory = resources.node.memory
    return ProbeCheck("memory", OK, f"{memory:,} MB" if memory else "not known: no limit is applied")


def check_time(config: PilotConfig, wall: float, now: float) -> ProbeCheck:
    """Compare the time that is left with the shortest time for jobs. `now`: by the clock of `config.end`."""
    left = config.end - now
    if left == float("inf"):
        return ProbeCheck("time left", OK, "no limit")
    text = f"{left:.0f} s of the {wall:.0f} s of the policy" if wall else f"{left:.0f} s"
    if left - config.margin < config.min_remaining:
        return ProbeCheck("time left", FAILED, f"{text}: too short for any job")
    return ProbeCheck("time left", OK if left >= wall / 2 else WARNING, text)


def check_tags(resources: NodeResources) -> ProbeCheck:
    """The tags and the platform that jobs may ask for."""
    return ProbeCheck("offer", OK, ", ".join([resources.node.platform, *resources.node.tags]))
