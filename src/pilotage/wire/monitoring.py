"""Calls that need no token: signs of life, metrics, and the program of the pilot."""

from __future__ import annotations

from typing import Dict

from pilotage.wire.call import ANYBODY, ApiCall, NoRequest

LIVE = ApiCall("GET", "/live", NoRequest, Dict[str, str], ANYBODY)
READY = ApiCall("GET", "/ready", NoRequest, Dict[str, str], ANYBODY)
METRICS = ApiCall("GET", "/metrics", NoRequest, bytes, ANYBODY)
