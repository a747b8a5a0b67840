"""TLS of a running server: its certificate files are watched, so that a rotation needs no restart."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable

from pilotage.core.errors import PilotageError
from pilotage.server.process.certificates import (
    SYSTEM,
    CertificateFiles,
    load_chain,
    make_server_context,
)

log = logging.getLogger(__name__)


class ServerTls:
    """The certificate of new connections, and the certificates that clients and pilots accept."""

    def __init__(self, files: CertificateFiles, names: Iterable[str], now: float) -> None:
        """The files of a home; the first start makes a certificate for `names`."""
        files.make_if_missing(names, now)
        self._files = files
        self._state = files.state()
        self.context: ssl.SSLContext = make_server_context(files.current)
        self.fingerprints: tuple[str, ...] = ()
        """To pin: of the certificate in use, then of the next one. Empty: a CA vouches for the server."""
        self.ca_file = ""
        """Path of the accepted CAs, on clients and nodes; empty: the system's CAs."""
        self._read()

    def refresh(self, on_change: Callable[[], None]) -> None:
        """Take up changed files. A certificate that cannot be used is logged, and changes nothing."""
        state = self._files.state()
        if state == self._state:
            return
        self._state = state
        try:
            make_server_context(self._files.current)
            load_chain(self.context, self._files.current)
            self._read()
        except PilotageError as error:
            log.error("the certificate stays as it was: %s", error)
            return
        log.info("certificates: %s", ", ".join(self.fingerprints) or "checked by a CA")
        on_change()

    def _read(self) -> None:
        trust = self._files.read_trust()
        certificates = self._files.read()
        self.fingerprints = () if trust else tuple(certificate.fingerprint for certificate in certificates)
        self.ca_file = "" if trust == SYSTEM else trust
