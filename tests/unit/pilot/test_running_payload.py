"""How the end of a payload's first process becomes its finish."""

from __future__ import annotations

import resource
import signal

import pytest

from pilotage.pilot.payload import RunningPayload
from pilotage.wire.pilot import OfferedJob, Payload


def finish_of(status: int, cpu: float, cpu_time: float) -> str:
    """The failure of a payload that used `cpu` seconds in a process tree of 2 cores."""
    running = RunningPayload(OfferedJob(1, 1, Payload("/bin/true", cpu_time=cpu_time, processors=2)), 0.0)
    running.cpu = cpu
    running.on_leader_reaped(status, resource.struct_rusage([0] * 16), 1.0, power=2.0)
    return running.finish.failure


@pytest.mark.parametrize(
    ("cpu", "failure"), [(9.0, ""), (10.5, ""), (11.0, ""), (11.1, "limit-cpu"), (1000.0, "limit-cpu")]
)
def test_a_success_beyond_the_limit_of_one_process_is_none(cpu: float, failure: str) -> None:
    """The kernel may have ended a child between two samples, and its parent may not have noticed."""
    assert finish_of(0, cpu, cpu_time=10.0) == failure
    assert finish_of(0, cpu, cpu_time=0.0) == ""


def test_the_kernel_ends_the_first_process() -> None:
    assert finish_of(signal.SIGXCPU, 1.0, cpu_time=10.0) == "limit-cpu"
    assert finish_of(signal.SIGXCPU, 1.0, cpu_time=0.0) == ""
    assert finish_of(signal.SIGTERM, 1.0, cpu_time=10.0) == ""
