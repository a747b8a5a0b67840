"""The report of a pilot that calls home."""

from __future__ import annotations

import argparse
import time
from typing import Any

from pilotage.pilot.enrol import enrol
from pilotage.pilot.system import clock
from pilotage.pilot.transport import ServerUnavailable
from pilotage.wire.pilot import EnrolRequest


class Line:
    """A connection that fails once, then answers; it keeps copies of the requests."""

    def __init__(self) -> None:
        self.requests: list[EnrolRequest] = []

    def post(self, path: str, request: EnrolRequest, answer: type) -> Any:
        self.requests.append(EnrolRequest(**vars(request)))
        if len(self.requests) == 1:
            raise ServerUnavailable("down")
        return "enrolled"


def test_each_try_reports_the_clock_of_its_own_instant() -> None:
    line = Line()
    options = argparse.Namespace(restarts=0, index=0, batch_id="", patience=60.0, cut_off="stay")
    before = time.time()
    assert enrol(line, "s", options, lambda: False, clock() - 5.0) == "enrolled"  # type: ignore[arg-type]
    first, second = line.requests
    assert before <= first.clock < second.clock <= time.time()
    assert first.nonce == second.nonce
    assert first.age >= 5.0
