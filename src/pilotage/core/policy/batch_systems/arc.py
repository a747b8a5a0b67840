"""Options of CEs that are ARC CEs, reached by their REST interface."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pilotage.core.forwarding.table import ForwardTable
from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.setting import SECONDS, Setting

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,127}"
_ENVIRONMENT = r"[A-Za-z0-9_][A-Za-z0-9_.:+/-]{0,127}"

_FORWARDING = ForwardTable(
    rules={"GlueCEPolicyMaxWallClockTime": "wall"},
    has_wall=True,
    hook_options={"--queue": _NAME, "--rte": rf"{_ENVIRONMENT}(,{_ENVIRONMENT})*"},
)
"""ARC's job descriptions have no condition over single hosts: the match on a node decides all others."""


class ArcOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of ARC CEs, by their REST interface"
    own_endpoints: ClassVar[str] = "an ARC CE has one address, `url`; a further one is a CE of its own"
    grid_flavours: ClassVar[tuple[str, ...]] = ("ARC-CE", "org.nordugrid.arex")
    forwarding: ClassVar[ForwardTable] = _FORWARDING
    partition_key: ClassVar[str] = "queue"

    url: Annotated[str, Setting("address of the CE, such as https://ce.example.org:443/arex")] = ""
    queue: Annotated[str, Setting("queue of its pilots; empty: the CE chooses")] = ""
    token_file: Annotated[
        str,
        Setting(
            "absolute path of a file with a bearer token of the server's own, read again at each call; empty, and no"
            " certificate: BEARER_TOKEN, BEARER_TOKEN_FILE, or bt_uUID in XDG_RUNTIME_DIR or /tmp"
        ),
    ] = ""
    certificate: Annotated[
        str, Setting("absolute path of an X.509 client certificate or proxy of the server's own, in PEM")
    ] = ""
    key: Annotated[str, Setting("absolute path of its key; empty: in the file of the certificate")] = ""
    ca: Annotated[
        str,
        Setting(
            "absolute path of a file with CA certificates, or of a folder of them; empty: those of the system and of"
            " X509_CERT_DIR, by default /etc/grid-security/certificates"
        ),
    ] = ""
    credential_left: Annotated[
        float,
        Setting(
            "seconds that the credential must be valid for at a submission; else nothing is submitted",
            *SECONDS,
        ),
    ] = 300
    rte: Annotated[
        str,
        Setting("runtime environments of its pilots, with commas between them, such as ENV/PROXY,APPS/X-1"),
    ] = ""
    log_folder: Annotated[
        str,
        Setting(
            "folder of the server into which the output of ended pilots is fetched; empty: it is not fetched"
        ),
    ] = ""

    @property
    def environments(self) -> tuple[str, ...]:
        """The names of `rte`."""
        return split_names(self.rte)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if reason := _mistake_in_url(self.url):
            yield "url", f"url {reason}, such as https://ce.example.org:443/arex"
        for key in ("token_file", "certificate", "key", "ca", "log_folder"):
            path = getattr(self, key)
            if path and (not path.startswith("/") or not path.isprintable()):
                yield key, f"{key} must be an absolute path"
        if self.key and not self.certificate:
            yield "key", "key belongs to a certificate: set `certificate`"
        if self.queue and not re.fullmatch(_NAME, self.queue):
            yield "queue", "queue must be a name of letters, digits and `_.:+-`"
        for name in self.environments:
            if not re.fullmatch(_ENVIRONMENT, name):
                yield "rte", f"rte: {name[:80]!r} is no name of a runtime environment, such as ENV/PROXY"


def split_names(text: str) -> tuple[str, ...]:
    """The names of a list with commas or blanks between them."""
    return tuple(name for name in re.split(r"[, ]+", text) if name)


def _mistake_in_url(url: str) -> str:
    """The mistake in an address; empty: there is none."""
    if not url:
        return "is missing: it must be the address of the CE"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "cannot be read: it must be an address"
    if parts.scheme != "https":
        return "must begin with https://, as it carries a credential"
    if not parts.hostname or port == 0 or re.search(r"[\s\0-\037\177]", url):
        return "must have a host"
    if parts.username or parts.query or parts.fragment:
        return "must have no user, question mark or fragment"
    return ""
