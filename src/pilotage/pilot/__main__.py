"""Start a pilot: harden, fork the guardian, enrol, run. See docs/reference/pilot.md."""

from __future__ import annotations

import argparse
import os
import sys
from typing import List, NoReturn, Optional

from .folders import make_work_folder, remove_tree
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
    folder = make_work_folder(options.workdir, f"{options.batch_id or 'pilot'}-{options.index}")
    guard(folder, lambda: _run(options, folder))


def _run(options: argparse.Namespace, folder: str) -> int:
    # Imported here, in the child: the guardian lives as long as the pilot and shall stay small.
    from .enrol import enrol, read_secret, terms_of
    from .log import log
    from .loop import Loop, WakeUp, started_at
    from .node import find_node
    from .transport import Away, Line, Refused

    if options.own_folder:
        # Everything is loaded; what is not there, no payload can tamper with.
        remove_tree(options.own_folder)
    secret = read_secret(options.secret_fd)
    if not secret:
        log("no secret on the file descriptor", fd=options.secret_fd)
        return 2
    wake_up = WakeUp()
    wake_up.install()
    line = Line(options.server, options.fingerprint)
    try:
        answer = enrol(line, secret, options, lambda: bool(wake_up.signals))
    except Refused as error:
        log("not enrolled", why=error)
        return REFUSED
    except Away as error:
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
    facts = {"pilot": str(answer.pilot), "batch_id": options.batch_id, "node": found.node.hostname}
    return Loop(
        terms,
        found,
        lambda: Line(options.server, options.fingerprint, answer.token),
        wake_up,
        folder,
        os.environ,
        facts,
    ).run()


if __name__ == "__main__":
    sys.exit(main())
