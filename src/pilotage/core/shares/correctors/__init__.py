"""The share correctors that a policy can name. A module in this folder is found by itself."""

from __future__ import annotations

from pilotage.core.plug_ins import classes_at
from pilotage.core.shares.corrector import CorrectorInstance

CORRECTORS: dict[str, type[CorrectorInstance]] = classes_at(
    "correctors", __name__, __path__, CorrectorInstance, named="corrector"
)
"""The class of each corrector, by the name that the policy gives."""
