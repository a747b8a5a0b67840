"""The keys of all share correctors, from the classes in `core/shares/correctors`."""

from __future__ import annotations

from typing import Final

from pilotage.core.setting import Key, keys_of
from pilotage.core.shares.correctors import CORRECTORS

CORRECTOR_KEYS: Final[tuple[Key, ...]] = tuple(
    key for name, instance in CORRECTORS.items() for key in keys_of(instance, f"correction.{name}.*")
)
