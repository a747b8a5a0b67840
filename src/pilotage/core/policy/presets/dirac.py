"""The rules of DIRAC's documents of 2009: the draw, the Taskqueue Director and the ratio of share corrections."""

from __future__ import annotations

from pilotage.core.policy.preset import Preset

PRESET = Preset(
    name="dirac",
    meaning="the draw, the number of pilots and the form of corrections of DIRAC's documents",
    values={
        ("matching", "rule"): "dirac",
        ("director", "demand"): "dirac",
        ("director", "pilotsPerIteration"): 100,
        ("director", "lowestCPUBoost"): 7200,
        ("director", "extraPilotFraction"): 0.2,
        ("director", "extraPilots"): 4,
        ("director", "maxPilotWaitingHours"): 6,
        ("director", "PrivatePilotFraction"): 0.5,
    },
    form="ratio",
)
