"""Registers output data sets in the outside catalogues that their names begin with: CATALOGUE:NAME THERE.

Only closed blocks are registered, and these have files of accepted results only. The intention is stored before the
first call. Each call of the catalogue may be repeated, so a registration that was interrupted begins again.
"""

from __future__ import annotations

from pilotage.core.datasets.facts import FileEntry
from pilotage.core.policy import Policy
from pilotage.core.requests.plan import UNMERGED
from pilotage.outside.catalogue.adapter import OutgoingBlock
from pilotage.services.catalogue.following import catalogue_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import datasets, replicas
from pilotage.store.tables.registrations import RegistrationRow

FILES_PER_READ = 1000


def output_catalogue(policy: Policy, name: str) -> str:
    """The catalogue that an output data set is registered in; empty: none. Pieces that are merged stay here."""
    return "" if name.endswith(UNMERGED) else catalogue_of(policy, name)


def outgoing(connection: Connection, row: RegistrationRow) -> OutgoingBlock:
    """A block with its files and its place, as a catalogue gets it."""
    places = replicas.of_blocks(connection, [row.block]).get(row.block, [])
    files: list[FileEntry] = []
    after = 0
    while page := datasets.file_page(connection, row.block, after, FILES_PER_READ):
        after = page[-1].id
        files += [FileEntry(file.name, file.size, file.events, file.checksum) for file in page]
    return OutgoingBlock(row.there, row.name, tuple(place.replica for place in places), tuple(files))
