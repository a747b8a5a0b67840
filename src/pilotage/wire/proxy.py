"""The HTTP proxy of the environment: http_proxy, https_proxy, no_proxy, in lower or upper case."""

from __future__ import annotations

import base64
from typing import Dict, NamedTuple, Optional

from pilotage.wire.server_address import is_loopback


class UnusableProxy(OSError):
    """Servers are reached only through proxies that are themselves reached over plain HTTP."""


class Proxy(NamedTuple):
    """An HTTP proxy, and the header fields that it needs."""

    host: str
    port: int
    headers: Dict[str, str]


def find_proxy(scheme: str, host: str) -> Optional[Proxy]:
    """The proxy for a server, if there is one. A loopback address is always reached directly.

    Raises UnusableProxy if the environment names one of another kind, such as socks5 or https.
    """
    if is_loopback(host):
        return None
    import urllib.request  # here, as commands to a server of this machine do not need it

    if urllib.request.proxy_bypass(host):
        return None
    address = urllib.request.getproxies().get(scheme, "")
    parts = urllib.parse.urlsplit(address if "//" in address else f"//{address}")
    if not parts.hostname:
        return None
    if parts.scheme not in ("", "http"):
        raise UnusableProxy("the proxy of the environment is no HTTP proxy, or is itself reached over TLS")
    headers = {}
    if parts.username is not None:
        user = urllib.parse.unquote(parts.username)
        password = urllib.parse.unquote(parts.password or "")
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers["Proxy-Authorization"] = f"Basic {encoded}"
    return Proxy(parts.hostname, parts.port or 3128, headers)
