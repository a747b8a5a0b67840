"""The storage places of jobs of requests: which ones a pilot is given, and which files it may register there.

Each place that is given is stored first. The finish may come after a change of the policy, or to another server,
whose home folder is another place.
"""

from __future__ import annotations

import posixpath
from functools import partial

from pilotage.core.requests.specification import Output
from pilotage.services.pool.state import Pool
from pilotage.store.tables import storage_places
from pilotage.store.writer.transaction import Transaction


def places_to_give(pool: Pool, tx: Transaction, output: Output, site: str) -> tuple[str, ...]:
    """The places of a site for the files of `output`, the best first, stored as given."""
    paths = chosen_places(pool, output, site)
    for path in paths:
        place = (site, path)
        if place not in pool.jobs.given_places:
            storage_places.insert_new(tx.connection, site, path)
            pool.jobs.given_places.add(place)
            tx.on_rollback(partial(pool.jobs.given_places.discard, place))
    return paths


def chosen_places(pool: Pool, output: Output, site: str) -> tuple[str, ...]:
    """The storage places of the site, or the request's choice among them, in its order."""
    paths = pool.policy.storage_of(site, pool.server.home_storage)
    return tuple(path for path in output.places if path in paths) if output.places else paths


def is_folder_of(pool: Pool, tx: Transaction, prefix: str, folder: str, output: Output, site: str) -> bool:
    """Whether `prefix` is the folder of a data set at a place that pilots of the site may have for `output`."""
    if any(prefix == posixpath.join(path, folder) for path in chosen_places(pool, output, site)):
        return True
    given = storage_places.of_site(tx.connection, site)
    return any(
        prefix == posixpath.join(path, folder) for path in given if not output.places or path in output.places
    )
