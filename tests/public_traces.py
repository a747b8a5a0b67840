"""Public traces, which are not part of the project.

PILOTAGE_TRACES names their folder; without it, it is `shared/traces` beside the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("PILOTAGE_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces"))


def public_trace(name: str) -> Path:
    """The file of a trace; skips the test if it is not there."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"there is no trace {path}: PILOTAGE_TRACES names the folder of public traces")
    return path
