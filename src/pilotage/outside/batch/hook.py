"""Runs the site's own program for requirements: bounded in time and output, and never through a shell."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping

from pilotage.core.errors import InvalidInput

HOOK_TIMEOUT = 10.0
"""Seconds."""
MAX_OUTPUT = 16 * 1024
"""Bytes of its standard output."""
MAX_ERRORS = 2000
"""Bytes of its standard error output that are read; further ones are thrown away."""


def run_hook(program: str, environment: Mapping[str, str], timeout: float = HOOK_TIMEOUT) -> str:
    """The standard output of `program`. `InvalidInput` with the reason if it fails, hangs or prints too much.

    `environment` is its whole environment. All its processes are killed at its end.
    """
    try:
        process = subprocess.Popen(
            [program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise InvalidInput(f"it cannot be run: {getattr(error, 'strerror', None) or error}") from None
    end = time.monotonic() + timeout
    with process:
        try:
            output, errors = _read(process, end)
            _await_end(process, end)
        except TimeoutError:
            raise InvalidInput(f"it did not end within {timeout:g} s") from None
        finally:
            # Before `wait`: until then no other process can get its id, nor can another group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    if status:
        said = " ".join(errors.decode(errors="replace").split())[:200]
        outcome = f"it was killed by signal {-status}" if status < 0 else f"it ended with status {status}"
        raise InvalidInput(f"{outcome}: {said}" if said else outcome)
    try:
        return output.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidInput("it printed characters that are not ASCII") from None


def _await_end(process: subprocess.Popen[bytes], end: float) -> None:
    """Wait for its end and leave it a zombie. `TimeoutError`: it runs at the instant `end`."""
    descriptor = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            if not selector.select(max(0.0, end - time.monotonic())):
                raise TimeoutError
    finally:
        os.close(descriptor)


def _read(process: subprocess.Popen[bytes], end: float) -> tuple[bytes, bytes]:
    """Its output and errors. `TimeoutError`: it has not closed both at the instant `end`."""
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, read in ((process.stdout, output), (process.stderr, errors)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, read)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, 4096)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
            if len(output) > MAX_OUTPUT:
                raise InvalidInput(f"it printed more than {MAX_OUTPUT} bytes")
            del errors[MAX_ERRORS:]
            if time.monotonic() > end:
                raise TimeoutError
    return bytes(output), bytes(errors)
