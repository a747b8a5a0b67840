"""Enrolment: exchanges the secret for a token and receives the settings of this pilot."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import random
import secrets
import socket
import time
from typing import Callable

from pilotage import __version__
from pilotage.wire.pilot import EnrolRequest, EnrolResponse
from pilotage.wire.pilot_calls import ENROL

from .log import log
from .node import NodeResources
from .pilot_config import PilotConfig
from .system import clock
from .transport import ServerConnection, ServerUnavailable

UNTRUSTED_PATIENCE = 20.0
"""Seconds. A batch job that cannot trust its server should not hold a node for long."""
_MAX_SECRET_BYTES = 4096


def read_secret(number: int) -> str:
    """Read the secret from a file descriptor, then close it. Standard input becomes /dev/null."""
    data = b""
    while len(data) < _MAX_SECRET_BYTES:
        piece = os.read(number, _MAX_SECRET_BYTES - len(data))
        if not piece:
            break
        data += piece
    null = os.open(os.devnull, os.O_RDONLY)
    if number:
        os.close(number)
    os.dup2(null, 0)
    os.close(null)
    return data.decode("utf-8", "replace").strip()


def enrol(
    connection: ServerConnection,
    secret: str,
    options: argparse.Namespace,
    is_cancelled: Callable[[], bool],
    began: float,
) -> EnrolResponse:
    """Enrol, and try again while the server is unavailable. `began`: when the batch job began, by `clock`.

    Raises RequestRefused, and ServerUnavailable after `options.patience` seconds or when `is_cancelled` is true. After
    UNTRUSTED_PATIENCE seconds of refused certificates it gives up too: they do not pass by themselves.
    """
    request = EnrolRequest(
        secret=secret,
        index=options.index,
        nonce=secrets.token_hex(16),
        version=__version__,
        hostname=socket.gethostname(),
        batch_id=options.batch_id,
        restarts=options.restarts,
    )
    until = time.monotonic() + options.patience
    rng = random.Random()  # noqa: S311 (jitter)
    pause, said, trusted_at = 0.2, "", time.monotonic()
    while True:
        request.age = max(0.0, clock() - began)
        request.clock = time.time()
        try:
            return connection.post(ENROL.path, request, EnrolResponse)
        except ServerUnavailable as error:
            if not error.untrusted:
                trusted_at = time.monotonic()
            end = min(until, trusted_at + UNTRUSTED_PATIENCE)
            if time.monotonic() > end or is_cancelled():
                raise
            wait = max(error.retry_after, pause * rng.uniform(0.5, 1.0))
            wait = min(wait, end - time.monotonic() + 0.1)  # one last attempt at the end
            if str(error) != said:
                said = str(error)
                log("server unavailable", reason=error, patience=f"{max(0.0, end - time.monotonic()):.0f}s")
            wake = time.monotonic() + wait
            while time.monotonic() < wake and not is_cancelled():
                time.sleep(min(0.1, wait))
            pause = min(2 * pause, 30.0)


def make_config(
    answer: EnrolResponse,
    resources: NodeResources,
    options: argparse.Namespace,
    start: float,
    unfit: str = "",
) -> PilotConfig:
    """The settings of this pilot. `start`: when the batch job began, by `clock`."""
    end = start + answer.wall if answer.wall > 0 else math.inf
    if options.batch_end:
        end = min(end, start + options.batch_end - time.time())
    fraction = min(1.0, (end - start) / answer.wall) if answer.wall > 0 else 1.0
    return PilotConfig(
        incarnation=answer.incarnation,
        node=dataclasses.replace(resources.node),
        lease=answer.lease,
        heartbeat=answer.heartbeat,
        idle=answer.idle if options.idle is None else options.idle,
        ahead=answer.ahead,
        cpu_power=answer.cpu_power or 1.0,
        end=end,
        margin=answer.margin * fraction,
        min_remaining=answer.least * fraction,
        max_output=answer.max_output_file,
        unfit=unfit,
        patience=options.patience,
        disk=answer.disk,
        send_log=answer.send_log,
    )
