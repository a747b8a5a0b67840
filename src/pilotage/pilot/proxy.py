"""The HTTP proxy of the environment: http_proxy, https_proxy, no_proxy, in lower or upper case."""

from __future__ import annotations

import base64
import urllib.parse
import urllib.request
from typing import Dict, NamedTuple, Optional

from pilotage.wire.server_address import is_loopback


class Proxy(NamedTuple):
    """An HTTP proxy, and the header fields that it needs."""

    host: str
    port: int
    headers: Dict[str, str]


def find_proxy(scheme: str, host: str) -> Optional[Proxy]:
    """The proxy for a server, if there is one. A loopback address is always reached directly."""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    address = urllib.request.getproxies().get(scheme, "")
    parts = urllib.parse.urlsplit(address if "//" in address else f"//{address}")
    if not parts.hostname:
        return None
    headers = {}
    if parts.username is not None:
        user = urllib.parse.unquote(parts.username)
        password = urllib.parse.unquote(parts.password or "")
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers["Proxy-Authorization"] = f"Basic {encoded}"
    return Proxy(parts.hostname, parts.port or 3128, headers)
