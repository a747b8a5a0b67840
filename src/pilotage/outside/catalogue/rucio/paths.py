"""Paths of files at RSEs: how they follow from scope and name, and the URLs of protocols."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pilotage.outside.catalogue.rucio.answers import Rse, RseProtocol

DEFAULT_ALGORITHMS = (None, "", "default")
"""Values of lfn2pfn_algorithm that leave the algorithm to the server."""


def relative_path(algorithm: str, scope: str, name: str) -> str:
    """The path of a file below the prefix of a deterministic RSE."""
    folder = scope.replace(".", "/") if scope.startswith(("user", "group")) else scope
    if algorithm == "identity":
        return f"{folder}/{name}"
    digest = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
    return f"{folder}/{digest[:2]}/{digest[2:4]}/{name}"


def reason_against(rse: Rse, algorithm: str) -> str:
    """Why no path at an RSE follows from scope and name by this algorithm; empty: it does."""
    if not rse.availability_read:
        return "it may not be read now"
    if not rse.deterministic:
        return "it is not deterministic"
    if rse.lfn2pfn_algorithm not in (*DEFAULT_ALGORITHMS, algorithm):
        return f"its paths follow {rse.lfn2pfn_algorithm}, not {algorithm}"
    return ""


def folder_of(rse: Rse, schemes: Sequence[str]) -> str:
    """The folder or URL below which jobs read the files of an RSE; empty: it has no protocol that can be used."""
    protocol = _best(rse, schemes)
    if protocol is None:
        return ""
    return _prefix(protocol) if protocol.scheme in ("file", "posix") else _url(protocol)


def url_of(rse: Rse, schemes: Sequence[str]) -> str:
    """The URL below which Rucio knows the files of an RSE; empty: it has no protocol that can be used."""
    protocol = _best(rse, schemes)
    return "" if protocol is None else _url(protocol)


def _best(rse: Rse, schemes: Sequence[str]) -> RseProtocol | None:
    usable = [
        protocol
        for protocol in rse.protocols
        if _rank(protocol) and (not schemes or protocol.scheme in schemes)
    ]
    return min(usable, default=None, key=lambda p: (schemes.index(p.scheme) if schemes else 0, _rank(p)))


def _rank(protocol: RseProtocol) -> int:
    """The rank of a protocol for reading: within the site first. 0: not for reading."""
    for place, domain in enumerate(("lan", "wan")):
        known = protocol.domains.get(domain)
        if known is not None and known.read:
            return 1000 * place + known.read
    return 0


def _prefix(protocol: RseProtocol) -> str:
    return "/" + protocol.prefix.strip("/")


def _url(protocol: RseProtocol) -> str:
    host = protocol.hostname if protocol.port is None else f"{protocol.hostname}:{protocol.port}"
    # Absolute paths of XRootD begin with two slashes.
    slash = "/" if protocol.scheme in ("root", "roots", "xroot") else ""
    return f"{protocol.scheme}://{host}{_service(protocol)}{slash}{_prefix(protocol)}"


def _service(protocol: RseProtocol) -> str:
    extended = protocol.extended_attributes
    return str(extended.get("web_service_path", "")) if isinstance(extended, dict) else ""
