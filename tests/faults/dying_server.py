"""A server that kills itself, as a power cut would, while it starts its first pilot: `python dying_server.py up ...`.

PILOTAGE_TEST_DIES names the moment: `intent` (the process is not started yet), `half` (its shell has half of the
script), `called-home` (it runs a job, and its start is not recorded). For the last one PILOTAGE_TEST_MARKER is a file
that the job makes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from pilotage.main import main
from pilotage.outside.batch import local
from pilotage.outside.batch.local import LocalBatch

MOMENT = os.environ["PILOTAGE_TEST_DIES"]
MARKER = Path(os.environ["PILOTAGE_TEST_MARKER"])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingBatch(LocalBatch):
    def _spawn(self, words: Sequence[str], index: int, log: Path, cores: set[int]) -> subprocess.Popen[bytes]:
        if MOMENT == "intent":
            die()
        return super()._spawn(words, index, log, cores)

    def _feed(self, process: subprocess.Popen[bytes], script: str) -> None:
        if MOMENT == "half":
            assert process.stdin is not None
            process.stdin.write(script[: len(script) // 2].encode())
            process.stdin.flush()
            die()
        super()._feed(process, script)
        # In a thread of its own: the server answers the pilot meanwhile.
        deadline = time.monotonic() + float(os.environ["PILOTAGE_TEST_PATIENCE"])
        while not MARKER.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        die()


if __name__ == "__main__":
    local.LocalBatch = DyingBatch
    raise SystemExit(main())
