"""The batch systems that a policy can name as `ces.*.type`. A module in this folder is found by itself.

The name of the module is the type. Its adapter is the module of the same name in outside/batch.
"""

from __future__ import annotations

from pilotage.core.plug_ins import classes_at
from pilotage.core.policy.batch_options import BatchOptions

BATCH_SYSTEMS: dict[str, type[BatchOptions]] = classes_at(
    "batch_systems", __name__, __path__, BatchOptions, check=lambda kind: kind()
)
"""The class of each batch system's options, by type."""
