"""The limits of a payload, as its job asks for them."""

from __future__ import annotations

import math
from typing import Dict, Optional, Tuple

from pilotage.wire.pilot import MB, Payload

_DATA_ALLOWANCE = 256_000_000
"""Bytes of data that a process may reserve beyond twice its memory limit, for example for unused thread stacks."""


def cpu_limit(payload: Payload, power: float) -> float:
    """CPU seconds on this node's cores that the whole process tree may use."""
    if not payload.cpu_time:
        return math.inf
    return payload.cpu_time * max(1, payload.processors) / (power or 1.0)


def process_cpu_limit(payload: Payload, power: float) -> Optional[int]:
    """CPU seconds after which the kernel ends a single process of the payload; None: it ends none."""
    limit = cpu_limit(payload, power)
    return None if limit == math.inf else math.ceil(limit) + 1


def resource_limits(payload: Payload, power: float) -> Dict[str, Tuple[int, int]]:
    """Soft and hard limits of each process, by their names in `resource`."""
    limits = {}
    if payload.memory:
        limit_bytes = 2 * payload.memory * MB + _DATA_ALLOWANCE
        limits["RLIMIT_DATA"] = (limit_bytes, limit_bytes)
    seconds = process_cpu_limit(payload, power)
    if seconds is not None:
        limits["RLIMIT_CPU"] = (seconds, seconds + 5)
    return limits
