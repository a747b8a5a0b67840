"""How much of a pilot's wall time jobs can use, and the CPU time that this is.

The director, `why` and the policy check ask here. Pilots are told `margin` and `least` when they enrol, and reckon
with these numbers: so the offer of a pilot that has just started is the one that the director expected.
"""

from __future__ import annotations

import math

MARGIN, LEAST, START = 30.0, 60.0, 5.0
"""Seconds, for pilots that live long enough; shorter-lived ones keep a fixed part of their wall time."""


def margin(wall: float) -> float:
    """Seconds before the end of a pilot at which it ends its running payloads."""
    return min(MARGIN, wall / 20)


def least(wall: float) -> float:
    """Seconds before its end from which on a pilot neither takes nor starts a job."""
    return min(LEAST, wall / 8)


def start(wall: float) -> float:
    """Seconds that a pilot may take from its start to its first request for work."""
    return min(START, wall / 20)


def kept(wall: float) -> float:
    """Seconds of `wall` that jobs of a new pilot cannot count on: its start and its margin."""
    return margin(wall) + start(wall)


def wall_of_new_pilot(wall: float) -> float:
    """The seconds that a pilot started now has left for jobs when it first asks for work."""
    return max(0.0, wall - kept(wall))


def cpu_time_left(wall: float, elapsed: float, cpu_power: float) -> float:
    """CPU time in seconds of a reference core that a pilot `elapsed` seconds old has left for jobs."""
    return max(0.0, wall - margin(wall) - elapsed) * cpu_power


def cpu_time_of_new_pilot(wall: float, cpu_power: float) -> float:
    """The CPU time that a pilot started now has left when it first asks for work."""
    return cpu_time_left(wall, start(wall), cpu_power)


def wall_for(cpu_time: float, cpu_power: float) -> int:
    """The shortest wall time, in whole seconds, of pilots that fit jobs of `cpu_time`."""
    seconds = cpu_time / cpu_power
    # The kept part grows with the wall time up to MARGIN + START.
    upper = math.ceil(max(seconds + MARGIN + START, seconds / 0.9)) + 1
    lower = math.floor(seconds)
    while lower < upper:
        middle = (lower + upper) // 2
        if cpu_time_of_new_pilot(middle, cpu_power) >= cpu_time:
            upper = middle
        else:
            lower = middle + 1
    return upper


def wall_for_job(wall_time: float) -> int:
    """The shortest wall time, in whole seconds, of pilots that fit jobs of this wall time."""
    return wall_for(wall_time, 1.0)
