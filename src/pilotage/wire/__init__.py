"""The messages between the server and its clients, and between the server and its pilots.

Each module describes the routes of one subject and their bodies; docs/reference/api.md lists all routes. These rules
hold for every route under /v1:

- Bodies are JSON of the dataclasses here. Instants are seconds since 1970 (UTC); memory is in MB (2^20 bytes).
- Lists are paged by key: `after` is the last id received, `limit` is at most MAX_PAGE (wire/limits.py).
- Every answer that is not 2xx has an `ErrorBody` (wire/pilot.py).
- Requests carry `Authorization: Bearer <JSON Web Token>`. /live, /ready and /metrics need no token.
- With a token of a trusted issuer the header `Pilotage-Group` chooses the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotage.wire import (
        accounting as accounting,
    )
    from pilotage.wire import (
        agents as agents,
    )
    from pilotage.wire import (
        attempts as attempts,
    )
    from pilotage.wire import (
        audit as audit,
    )
    from pilotage.wire import (
        bans as bans,
    )
    from pilotage.wire import (
        catalogues as catalogues,
    )
    from pilotage.wire import (
        ces as ces,
    )
    from pilotage.wire import (
        costs as costs,
    )
    from pilotage.wire import (
        data as data,
    )
    from pilotage.wire import (
        datasets as datasets,
    )
    from pilotage.wire import (
        director as director,
    )
    from pilotage.wire import (
        duties as duties,
    )
    from pilotage.wire import (
        history as history,
    )
    from pilotage.wire import (
        identity as identity,
    )
    from pilotage.wire import (
        intervals as intervals,
    )
    from pilotage.wire import (
        isolation as isolation,
    )
    from pilotage.wire import (
        issuers as issuers,
    )
    from pilotage.wire import (
        jobs as jobs,
    )
    from pilotage.wire import (
        limits as limits,
    )
    from pilotage.wire import (
        matchmaking as matchmaking,
    )
    from pilotage.wire import (
        outputs as outputs,
    )
    from pilotage.wire import (
        pilot as pilot,
    )
    from pilotage.wire import (
        pilots as pilots,
    )
    from pilotage.wire import (
        policy as policy,
    )
    from pilotage.wire import (
        pool as pool,
    )
    from pilotage.wire import (
        request_why as request_why,
    )
    from pilotage.wire import (
        requests as requests,
    )
    from pilotage.wire import (
        resubmissions as resubmissions,
    )
    from pilotage.wire import (
        server_address as server_address,
    )
    from pilotage.wire import (
        server_trust as server_trust,
    )
    from pilotage.wire import (
        shares as shares,
    )
    from pilotage.wire import (
        shutdown as shutdown,
    )
    from pilotage.wire import (
        sites as sites,
    )
    from pilotage.wire import (
        storage as storage,
    )
    from pilotage.wire import (
        submission_progress as submission_progress,
    )
    from pilotage.wire import (
        submissions as submissions,
    )
    from pilotage.wire import (
        tls as tls,
    )
    from pilotage.wire import (
        trace as trace,
    )
    from pilotage.wire import (
        uploads as uploads,
    )
    from pilotage.wire import (
        web as web,
    )
    from pilotage.wire import (
        why as why,
    )
else:

    def __getattr__(name):
        """Import a module at its first use, since the dataclasses of all would take most of a command's start."""
        if name.startswith("_"):
            raise AttributeError(name)
        import importlib

        try:
            return importlib.import_module("%s.%s" % (__name__, name))
        except ModuleNotFoundError as missing:
            raise AttributeError(name) from missing
