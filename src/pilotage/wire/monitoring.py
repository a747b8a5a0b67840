"""Calls that need no token: signs of life, metrics, and the program of the pilot."""

from __future__ import annotations

from typing import Dict

from pilotage.wire.call import ANYBODY, Call, NoRequest

LIVE = Call("GET", "/live", NoRequest, Dict[str, str], ANYBODY)
READY = Call("GET", "/ready", NoRequest, Dict[str, str], ANYBODY)
METRICS = Call("GET", "/metrics", NoRequest, bytes, ANYBODY)
