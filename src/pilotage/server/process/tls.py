"""TLS of a running server: its certificate files are watched, so that a rotation needs no restart."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable

from pilotage.core.errors import PilotageError
from pilotage.server.process.certificates import (
    PREVIOUS_KEPT,
    SYSTEM,
    Certificate,
    CertificateFiles,
    load_chain,
    make_server_context,
    read_certificate,
)
from pilotage.wire.server_trust import name_of_pin

log = logging.getLogger(__name__)

WARN_BEFORE = 30 * 86400.0
"""Seconds before the end of a certificate from which on the log warns."""
WARN_PERIOD = 86400.0


class ServerTls:
    """The certificate of new connections, and the certificates that clients and pilots accept."""

    def __init__(self, files: CertificateFiles, names: Iterable[str], now: float) -> None:
        """The files of a home; the first start makes a certificate for `names`."""
        files.make_if_missing(names, now)
        self._files = files
        self._state = files.state()
        self.context: ssl.SSLContext = make_server_context(files.current)
        self.context.sni_callback = self._choose_certificate
        self._by_name: dict[str, ssl.SSLContext] = {}
        """Settings for the certificates that clients may ask for by the name of their pin."""
        self._warned_at = 0.0
        self.certificate: Certificate
        """The certificate in use."""
        self.fingerprints: tuple[str, ...] = ()
        """To pin: of the certificates in use, next and previous. Empty: a CA vouches for the server."""
        self.ca_file = ""
        """Path of the accepted CAs, on clients and nodes; empty: the system's CAs."""
        self._read()

    def refresh(self, on_change: Callable[[], None], now: float) -> None:
        """Take up changed files. A certificate that cannot be used is logged, and changes nothing."""
        self._warn_of_end(now)
        if self._files.forget_previous(now - PREVIOUS_KEPT.total_seconds()):
            log.info("the previous certificate is no longer accepted")
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
        self._warned_at = 0.0
        log.info("certificates: %s", ", ".join(self.fingerprints) or "checked by a CA")
        on_change()

    def _read(self) -> None:
        trust = self._files.read_trust()
        paths = self._files.existing()
        certificates = [read_certificate(path) for path in paths]
        self.certificate = certificates[0]
        self.fingerprints = () if trust else tuple(certificate.fingerprint for certificate in certificates)
        self.ca_file = "" if trust == SYSTEM else trust
        self._by_name = {
            name_of_pin(certificate.fingerprint): make_server_context(path)
            for certificate, path in zip(certificates, paths, strict=True)
        }

    def _choose_certificate(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        """Use the certificate whose pin the client names. Any other name gets the certificate in use."""
        asked = self._by_name.get(name or "")
        if asked is not None:
            connection.context = asked

    def warning(self, now: float) -> str:
        """The warning of a certificate that clients will soon refuse; "" for others. Pinned certificates do not end."""
        left = self.certificate.expires - now
        if self.fingerprints or left > WARN_BEFORE:
            return ""
        words = f"ends in {left / 86400:.0f} days" if left > 0 else "has ended: clients and pilots refuse it"
        return f"the certificate {words}; put a new one into use: `pilotage server certificate use FILE`"

    def _warn_of_end(self, now: float) -> None:
        """Log the warning, once a day."""
        warning = self.warning(now)
        if warning and now - self._warned_at >= WARN_PERIOD:
            self._warned_at = now
            log.warning("%s", warning)
