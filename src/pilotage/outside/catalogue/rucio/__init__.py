"""Rucio as a catalogue: its containers and data sets are our data sets and blocks, its RSEs are places."""

from __future__ import annotations

from pilotage.core.policy import OutsideCatalogue
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.outside.catalogue.adapter import CatalogueAdapter
from pilotage.outside.catalogue.rucio.adapter import RucioCatalogue
from pilotage.outside.catalogue.rucio.session import RucioSession


def make_catalogue(section: OutsideCatalogue) -> CatalogueAdapter:
    """The adapter of one Rucio server."""
    options = section.options_as(RucioOptions)
    return RucioCatalogue(RucioSession(options), options, section.places)
