"""The presets of the policy. A module in this folder with a `PRESET` is found by itself."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from pilotage.core.policy.preset import Preset

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for module in iter_modules(__path__)
    if isinstance(preset := getattr(import_module(f"{__name__}.{module.name}"), "PRESET", None), Preset)
}
"""The presets by name."""
