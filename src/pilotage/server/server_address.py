"""The addresses at which clients and pilots reach the servers of a pool."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.store.cluster.servers import ServerRow


@dataclass(slots=True)
class ServerAddress:
    """The addresses and certificates of this server, and the other servers that it announces."""

    instance: str
    host: str
    """The name of this machine."""
    url: str
    pilot_url: str
    """The server's address for pilots."""
    other_servers: tuple[ServerRow, ...] = ()
    """The other servers of the pool that this server's pilots and clients may turn to."""
    fingerprints: tuple[str, ...] = ()
    """Fingerprints of the server's certificates, for pilots. Empty: pilots trust CAs, or there is no TLS."""
    ca_file: str = ""
    """File of CAs on the nodes; empty: the system's."""
    certificate_warning: str = ""
    """The warning of a certificate that ends soon; empty: there is none."""
    certificate_expires: float | None = None
    """When the certificate in use ends; None: there is no TLS."""

    @property
    def login_url(self) -> str:
        """The address with the pinned certificates, for clients."""
        return f"{self.url}#sha256={','.join(self.fingerprints)}" if self.fingerprints else self.url

    @property
    def pilot_urls(self) -> tuple[str, ...]:
        """The addresses for pilots of all servers, the own address first."""
        return tuple(dict.fromkeys((self.pilot_url, *(row.pilot_url for row in self.other_servers))))

    @property
    def pool_fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of the certificates of all servers, the own fingerprints first."""
        others = (text for row in self.other_servers for text in row.fingerprints.split(",") if text)
        return tuple(dict.fromkeys((*self.fingerprints, *others)))
