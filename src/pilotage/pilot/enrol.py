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

from .enrol_machine import EnrolFailure, EnrolMachine
from .log import log
from .node import NodeResources
from .pilot_config import PilotConfig
from .system import clock
from .transport import ServerConnection, ServerUnavailable

_SIGNAL_CHECK = 0.1
"""Seconds between two looks for a signal while the pilot waits."""
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

    Raises RequestRefused, and ServerUnavailable after `options.patience` seconds or when `is_cancelled` is true.
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
    machine = EnrolMachine(options.patience, time.monotonic(), random.Random())  # noqa: S311 (jitter)
    while True:
        request.age = max(0.0, clock() - began)
        request.clock = time.time()
        try:
            return connection.post(ENROL.path, request, EnrolResponse)
        except ServerUnavailable as error:
            failure = EnrolFailure(str(error), error.untrusted, error.retry_after)
            retry = machine.on_failure(failure, time.monotonic(), is_cancelled=is_cancelled())
            if retry is None:
                raise
            if retry.is_news:
                log("server unavailable", reason=error, patience=f"{retry.patience:.0f}s")
            while (left := retry.at - time.monotonic()) > 0 and not is_cancelled():
                time.sleep(min(_SIGNAL_CHECK, left))


def make_config(
    answer: EnrolResponse,
    resources: NodeResources,
    options: argparse.Namespace,
    start: float,
    unix_start: float,
    unfit: str = "",
) -> PilotConfig:
    """The settings of this pilot.

    `start`: when the batch job began, by `clock`. `unix_start`: the same by the clock of this node, since 1970.
    """
    end = start + answer.wall if answer.wall > 0 else math.inf
    if options.batch_end:
        # The clock of this node may be wrong, so both instants should be by the clock of the batch system.
        end = min(end, start + options.batch_end - (options.batch_start or unix_start))
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
        leaves_cut_off=options.cut_off == "leave",
        disk=answer.disk,
        send_log=answer.send_log,
    )
