"""Start a pilot: harden, fork the guardian, enrol, run. See docs/reference/pilot.md."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
from typing import List, NoReturn, Optional

from .folders import make_work_folder, remove_stale
from .guardian import run_guarded
from .options import parse
from .system import forbid_dumps

REFUSED = 4
SERVER_UNAVAILABLE = 5


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    """The program; ends the process."""
    # Before the secret is read: nobody who runs as this user shall read our memory, payloads least of all.
    forbid_dumps()
    options = parse(arguments, os.environ)
    if options.program_fd >= 0:
        os.set_inheritable(options.program_fd, False)
    host = socket.gethostname()
    # The lock is held by this process and its child, whichever lives longer.
    folder, _ = make_work_folder(options.workdir, f"{options.batch_id or 'pilot'}-{options.index}", host)
    run_guarded(folder, lambda: _run(options, folder))


def _run(options: argparse.Namespace, folder: str) -> int:
    # Imported here, in the child: the guardian lives as long as the pilot and shall stay small.
    from .enrol import enrol, make_config, read_secret
    from .log import log
    from .loop import Loop, WakeUp, started_at
    from .node import find_node
    from .transport import Connection, RequestRefused, ServerUnavailable

    secret = read_secret(options.secret_fd)
    if not secret:
        log("no secret on the file descriptor", fd=options.secret_fd)
        return 2
    wake_up = WakeUp()
    wake_up.install()
    connection = Connection(options.server, options.fingerprint)
    try:
        answer = enrol(connection, secret, options, lambda: bool(wake_up.signals))
    except RequestRefused as error:
        log("not enrolled", why=error)
        return REFUSED
    except ServerUnavailable as error:
        log("server away", why=error)
        return SERVER_UNAVAILABLE
    finally:
        connection.close()
    del secret
    resources = find_node(
        os.environ,
        processors=options.processors or answer.processors,
        memory=options.memory or answer.memory,
        tags=tuple(answer.tags),
    )
    config = make_config(answer, resources, options, os.environ, started_at())
    log("enrolled", pilot=answer.pilot, site=answer.site, ce=answer.ce, processors=resources.node.processors)
    host = socket.gethostname()
    threading.Thread(target=lambda: _remove_stale_folders(options.workdir, host), daemon=True).start()
    log_facts = {"pilot": str(answer.pilot), "batch_id": options.batch_id, "node": resources.node.hostname}
    return Loop(
        config,
        resources,
        lambda: Connection(options.server, options.fingerprint, answer.token),
        wake_up,
        folder,
        os.environ,
        log_facts,
    ).run()


def _remove_stale_folders(workdir: str, host: str) -> None:
    """Remove what pilots left that were killed together with their guardians."""
    from .log import log

    for name in remove_stale(workdir, host, time.time()):
        log("removed what a dead pilot left", folder=name)


if __name__ == "__main__":
    sys.exit(main())
