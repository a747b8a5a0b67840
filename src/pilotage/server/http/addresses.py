"""The address that a server listens on, and its names and addresses for other machines."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from pilotage.core.errors import InvalidInput

ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses of nobody (RFC 5737, RFC 3849): the system's route to them names our address towards others."""


def parse_listen(text: str) -> tuple[str, int]:
    """(host, port) of `HOST[:PORT]`; IPv6 addresses stand in brackets. Port 0: not given."""
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidInput(f"{text!r} is not HOST[:PORT]", hint="[::]:8443")
        port = rest[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and int(port) < 65536)):
        raise InvalidInput(f"{text!r} is not HOST[:PORT]", hint="0.0.0.0:8443")
    return host, int(port or 0)


def check_proxies(text: str) -> str:
    """The addresses and networks of a list with commas, without spaces. Raises InvalidInput for anything else."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise InvalidInput(
                f"--proxies: {name[:60]!r} is no address or network", hint="127.0.0.1,::1 or 10.1.0.0/16"
            ) from None
    return ",".join(names)


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def make_url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def reachable_host(listener: socket.socket) -> str:
    """The host name or address by which other machines reach the listening socket."""
    address = str(listener.getsockname()[0])
    if not ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        return address
    name = socket.getfqdn()
    try:
        resolved = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, listener.family)}
    except OSError:
        resolved = set()
    if "." in name and resolved and not any(is_loopback(address) for address in resolved):
        return name
    return _own_address(listener.family) or socket.gethostname()


def _own_address(family: int) -> str:
    """Our address on the route to other networks. Nothing is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE[socket.AddressFamily(family)], 9))
            return str(probe.getsockname()[0])
        except OSError:
            return ""


def names_of(listener: socket.socket, further: Iterable[str]) -> list[str]:
    """The names and addresses for a certificate: of this machine, of the socket, and further ones."""
    address = str(listener.getsockname()[0])
    candidates = [reachable_host(listener), address, socket.getfqdn(), socket.gethostname(), *further]
    names = dict.fromkeys([*candidates, "localhost", "127.0.0.1"])
    return [name for name in names if name and name.isascii() and not _is_unspecified(name)]


def _is_unspecified(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False
