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
from .guardian import guard
from .options import parse
from .system import forbid_dumps

REFUSED = 4
SERVER_AWAY = 5


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
    guard(folder, lambda: _run(options, folder))


def _run(options: argparse.Namespace, folder: str) -> int:
    # Imported here, in the child: the guardian lives as long as the pilot and shall stay small.
    from .enrol import enrol, read_secret, terms_of
    from .log import log
    from .loop import Loop, WakeUp, started_at
    from .node import find_node
    from .transport import Connection, RequestRefused, ServerAway

    secret = read_secret(options.secret_fd)
    if not secret:
        log("no secret on the file descriptor", fd=options.secret_fd)
        return 2
    wake_up = WakeUp()
    wake_up.install()
    line = Connection(options.server, options.fingerprint)
    try:
        answer = enrol(line, secret, options, lambda: bool(wake_up.signals))
    except RequestRefused as error:
        log("not enrolled", why=error)
        return REFUSED
    except ServerAway as error:
        log("server away", why=error)
        return SERVER_AWAY
    finally:
        line.close()
    del secret
    found = find_node(
        os.environ,
        processors=options.processors or answer.processors,
        memory=options.memory or answer.memory,
        tags=tuple(answer.tags),
    )
    terms = terms_of(answer, found, options, os.environ, started_at())
    log("enrolled", pilot=answer.pilot, site=answer.site, ce=answer.ce, processors=found.node.processors)
    host = socket.gethostname()
    threading.Thread(target=lambda: _tidy_up(options.workdir, host), daemon=True).start()
    facts = {"pilot": str(answer.pilot), "batch_id": options.batch_id, "node": found.node.hostname}
    return Loop(
        terms,
        found,
        lambda: Connection(options.server, options.fingerprint, answer.token),
        wake_up,
        folder,
        os.environ,
        facts,
    ).run()


def _tidy_up(workdir: str, host: str) -> None:
    """Remove what pilots left that were killed together with their guardians."""
    from .log import log

    for name in remove_stale(workdir, host, time.time()):
        log("removed what a dead pilot left", folder=name)


if __name__ == "__main__":
    sys.exit(main())
