"""The outside catalogues that a policy can name as `catalogues.*.type`. A module in this folder is found by itself.

The name of the module is the type. Its adapter is the module or folder of the same name in outside/catalogue.
"""

from __future__ import annotations

from pilotage.core.plug_ins import classes_at
from pilotage.core.policy.catalogue_options import CatalogueOptions

CATALOGUE_TYPES: dict[str, type[CatalogueOptions]] = classes_at(
    "catalogue_types", __name__, __path__, CatalogueOptions, check=lambda kind: kind()
)
"""The class of each type's options, by type."""
