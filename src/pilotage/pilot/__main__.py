"""Entry point of the pilot: protects the process, starts the guardian, enrols with the server, and runs jobs.

docs/reference/pilot.md lists the options, the exit codes, and the environment of payloads.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, List, NoReturn, Optional, Union

from .folders import make_work_folder, remove_stale
from .guardian import run_guarded
from .options import parse
from .system import clock, forbid_dumps, started_at

if TYPE_CHECKING:
    from pilotage.wire.pilot import EnrolResponse
    from pilotage.wire.server_trust import ServerTrust

    from .loop import WakeUp
    from .node import NodeResources
    from .servers import Servers

REFUSED = 4
SERVER_UNAVAILABLE = 5


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    """Run the pilot and end the process with its exit code."""
    # Before the secret is read: no other process of this user, above all no payload, may read our memory.
    forbid_dumps()
    options = parse(arguments, os.environ)
    if options.program_fd >= 0:
        os.set_inheritable(options.program_fd, False)
    host = socket.gethostname()
    # This process and its child share the lock on the folder; it is held until both have ended.
    folder, _ = make_work_folder(options.workdir, f"{options.batch_id or 'pilot'}-{options.index}", host)
    began = started_at()
    run_guarded(folder, lambda: _run(options, folder, began))


def _run(options: argparse.Namespace, folder: str, began: float) -> int:
    """Enrol and run jobs; the exit code. `began`: when the batch job began."""
    # Imported here, in the child, so that the guardian stays small: it lives as long as the pilot.
    from pilotage.wire.server_trust import ServerTrust

    from .enrol import make_config
    from .isolation.client import Launcher, set_up_isolation
    from .launch import CE_VARIABLE
    from .log import log
    from .loop import Loop, WakeUp
    from .servers import Servers
    from .transport import ServerConnection

    trust = ServerTrust(options.fingerprint, options.ca_file)
    servers = Servers(options.server, pinned=bool(options.fingerprint))
    # Forked before the secret is read and any thread is started: payloads descend from it.
    launcher = Launcher(options.secret_fd, options.program_fd)
    wake_up = WakeUp()
    wake_up.install()
    answer = _enrol(options, servers, trust, wake_up, began)
    if isinstance(answer, int):
        return answer
    isolation, unfit = set_up_isolation(launcher, answer, folder)
    resources = _find_resources(options, answer, isolated=isolation is not None)
    config = make_config(answer, resources, options, began, time.time() - (clock() - began), unfit)
    log("enrolled", pilot=answer.pilot, site=answer.site, ce=answer.ce, processors=resources.node.processors)
    if answer.probe:
        from .probe import run_probe

        return run_probe(servers, trust, answer, resources, config, folder)
    host = socket.gethostname()
    threading.Thread(target=lambda: _remove_stale_folders(options.workdir, host), daemon=True).start()
    log_facts = {"pilot": str(answer.pilot), "batch_id": options.batch_id, "node": resources.node.hostname}
    return Loop(
        config,
        resources,
        lambda: ServerConnection(servers, trust, answer.token),
        wake_up,
        folder,
        {**os.environ, CE_VARIABLE: answer.ce},
        log_facts,
        isolation,
    ).run()


def _find_resources(options: argparse.Namespace, answer: EnrolResponse, *, isolated: bool) -> NodeResources:
    from .isolation.client import TAG, USERNS
    from .node import find_node

    resources = find_node(
        os.environ,
        processors=options.processors or answer.processors,
        memory=options.memory or answer.memory,
        tags=(*answer.tags, *((TAG,) if isolated else ())),
        batch_host=options.batch_host,
    )
    resources.node.isolation = USERNS if isolated else ""
    return resources


def _enrol(
    options: argparse.Namespace, servers: Servers, trust: ServerTrust, wake_up: WakeUp, began: float
) -> Union[EnrolResponse, int]:
    """Enrol with the secret; the exit code if that fails."""
    from .enrol import enrol, read_secret
    from .log import log
    from .transport import RequestRefused, ServerConnection, ServerUnavailable

    secret = read_secret(options.secret_fd)
    if not secret:
        log("cannot start: no secret on the file descriptor", fd=options.secret_fd)
        return 2
    connection = ServerConnection(servers, trust)
    try:
        answer = enrol(connection, secret, options, lambda: bool(wake_up.signals), began)
        if answer.leave:
            log("told to leave", reason=answer.leave)
        return REFUSED if answer.leave else answer
    except RequestRefused as error:
        log("enrolment refused", reason=error)
        return REFUSED
    except ServerUnavailable as error:
        log("server unavailable, giving up", reason=error)
        return SERVER_UNAVAILABLE
    finally:
        connection.close()


def _remove_stale_folders(workdir: str, host: str) -> None:
    """Remove the work folders of pilots that were killed together with their guardians."""
    from .log import log

    for name in remove_stale(workdir, host, time.time()):
        log("removed work folder of a dead pilot", folder=name)


if __name__ == "__main__":
    sys.exit(main())
