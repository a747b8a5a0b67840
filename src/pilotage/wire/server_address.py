"""Addresses that a client, an agent or a pilot may send a token to. Without `ssl`, which the guardian does not need."""

from __future__ import annotations

import ipaddress
import urllib.parse


class UnsafeAddress(ValueError):
    """A secret sent to this address could be read on the way, or by another server."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, by its address or as `localhost`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(address: str, *, pinned: bool) -> None:
    """Raise ValueError unless it is the address of a server, UnsafeAddress unless a secret may be sent there.

    A pin, or a host off loopback, needs https.
    """
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(f"not an http or https address: {address[:200]}")
    if parts.scheme == "https":
        return
    if pinned:
        raise UnsafeAddress(
            f"{address} has no certificate, so a fingerprint cannot protect it: https is needed"
        )
    if not is_loopback(parts.hostname):
        raise UnsafeAddress(
            f"{address} is not encrypted: everybody on the way could read the token; https is needed"
        )
