"""The storage places of jobs of requests: which ones a pilot is given, and which files it may register there.

Each place that is given is stored first. The finish may come after a change of the policy, or to another server,
whose home folder is another place.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from functools import partial

from pilotage.core.policy import Policy
from pilotage.core.policy.storage_model import words_of
from pilotage.core.requests.specification import Output
from pilotage.services.pool.state import Pool
from pilotage.store.tables import storage_places
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.data import COMMAND, S3, StoragePlace


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
    wanted = _named(pool, output)
    return tuple(path for path in wanted if path in paths) if wanted else paths


def _named(pool: Pool, output: Output) -> tuple[str, ...]:
    """The paths and addresses of the places that a request names."""
    return tuple(map(pool.policy.storage_address, output.places))


def is_folder_of(pool: Pool, tx: Transaction, prefix: str, folder: str, output: Output, site: str) -> bool:
    """Whether `prefix` is the folder of a data set at a place that pilots of the site may have for `output`."""
    if any(prefix == posixpath.join(path, folder) for path in chosen_places(pool, output, site)):
        return True
    given, wanted = storage_places.of_site(tx.connection, site), _named(pool, output)
    return any(prefix == posixpath.join(path, folder) for path in given if not wanted or path in wanted)


def place_for_pilots(policy: Policy, path: str) -> StoragePlace:
    """A place as pilots read it."""
    known = policy.storage_with(path)
    if known is None or path.startswith("/"):
        return StoragePlace(path, path)
    name, place = known
    if place.type == S3:
        return StoragePlace(name, place.address, S3, place.patience)
    command = place.command
    return StoragePlace(
        name,
        place.address,
        COMMAND,
        place.patience,
        put=words_of(command.put),
        get=words_of(command.get),
        check=words_of(command.checksum),
        remove=words_of(command.remove),
        timeout=command.timeout,
    )


def sources_of(policy: Policy, paths: Iterable[str]) -> list[StoragePlace]:
    """The places of these files that are no folders of nodes."""
    if not policy.storage:
        return []
    having = (policy.storage_with(path) for path in paths if "://" in path)
    addresses = dict.fromkeys(storage[1].address for storage in having if storage is not None)
    return [place_for_pilots(policy, address) for address in addresses]
