"""The cases of other systems, read from the folder `cases`, whose README tells where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).with_name("cases")


def dirac_suites() -> dict[str, dict[str, Any]]:
    """DIRAC's suites by id. Most have a list `cases`."""
    return {suite["id"]: suite for suite in json.loads((CASES / "dirac.json").read_text())["suites"]}


def wmcore_scenarios() -> dict[str, dict[str, Any]]:
    """WMCore's scenarios by id."""
    return {case["id"]: case for case in json.loads((CASES / "wmcore.json").read_text())["scenarios"]}
