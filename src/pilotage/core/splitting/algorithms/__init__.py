"""The splitting algorithms that a request can name. A module in this folder is found by itself."""

from __future__ import annotations

from pilotage.core.plug_ins import classes_at
from pilotage.core.splitting.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = classes_at(
    "splitting", __name__, __path__, Algorithm, named="algorithm"
)
"""The class of each algorithm, by the name that a request gives."""
