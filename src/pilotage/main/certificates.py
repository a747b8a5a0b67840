"""`pilotage server certificate`: the certificate by which clients and pilots know this server."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.main.database_options import DEFAULT_HOME, HomeOption

if TYPE_CHECKING:
    from pilotage.server.process.certificates import Certificate, CertificateFiles

JsonOption = Annotated[bool, CommandOption("Print one JSON document and nothing else", names="--json")]
TAKEN_UP = "A running server takes it up within seconds."


def show(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> int:
    """Show the certificates of this server, and the address that users give to `pilotage login`."""
    files = _files(home)
    trust = files.read_trust()
    certificates = dict(zip(_roles(files), files.read(), strict=True))
    login = _login_url(home, [] if trust else [each.fingerprint for each in certificates.values()])
    if as_json:
        shown = {role: _as_json(certificate) for role, certificate in certificates.items()}
        print(json.dumps({"certificates": shown, "accepted": trust or "pinned", "login": login}, indent=2))
        return 0
    for role, certificate in certificates.items():
        _print_certificate(role, certificate)
    print(f"accepted by  {_describe_trust(trust)}")
    if login:
        print(f"log in with  pilotage login '{login}'")
    return 0


def rotate(
    activate: Annotated[bool, CommandOption("Put the next certificate into use")] = False,
    forget_previous: Annotated[
        bool,
        CommandOption("No longer prove the server by the replaced certificate, because its key has leaked"),
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> int:
    """Replace the server's own certificate in two steps: announce the next one, later put it into use.

    Clients and pilots that speak to the server in between learn the next fingerprint. Others find the server by the
    previous certificate for 30 days.
    """
    files = _files(home)
    if files.read_trust():
        raise InvalidInput(
            "this certificate is from a CA",
            hint="put its next one into use: `pilotage server certificate use FILE`",
        )
    certificate, words = None, ""
    if activate:
        certificate, words = files.activate(time.time()), "the next certificate is in use"
    elif not forget_previous:
        certificate = files.rotate(time.time())
        words = "the next certificate is announced; put it into use later with --activate"
    if forget_previous:
        removed = files.forget_previous()
        words += "; " * bool(words)
        words += "the previous certificate is forgotten" if removed else "there is no previous certificate"
    if as_json:
        print(json.dumps({"certificate": _as_json(certificate) if certificate else None, "message": words}))
        return 0
    print(f"{words}. {TAKEN_UP}")
    if certificate is not None:
        _print_certificate("activated" if activate else "next", certificate)
    return 0


def use(
    certificate: Annotated[
        Path, CommandArgument("PEM file: the certificate, then its intermediate CAs", "FILE")
    ],
    key: Annotated[
        Path | None, CommandOption("PEM file of the private key; default: in the same file", "FILE")
    ] = None,
    system_ca: Annotated[
        bool, CommandOption("Clients and pilots check it by the CAs of their system")
    ] = False,
    ca: Annotated[
        Path | None,
        CommandOption("Clients and pilots check it by this file of CAs, on their machines", "FILE"),
    ] = None,
    forget_previous: Annotated[
        bool, CommandOption("No longer prove the server by the replaced certificate")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> int:
    """Put a certificate of your own into use. Without --system-ca and --ca its fingerprint is pinned.

    Key, dates and names are checked first. Only its owner may read the key.
    """
    from pilotage.server.process.certificates import SYSTEM

    if system_ca and ca is not None:
        raise InvalidInput("--system-ca and --ca cannot be combined", hint="give one of them")
    trust = SYSTEM if system_ca else str(ca.expanduser().absolute()) if ca is not None else ""
    files = _files(home, make=True)
    address = urlsplit(_url(home)).hostname or ""
    facts = files.use(certificate, key or certificate, trust, time.time(), address, replace=forget_previous)
    if as_json:
        print(json.dumps({"certificate": _as_json(facts), "accepted": trust or "pinned"}, indent=2))
        return 0
    print(f"The certificate is in use. {TAKEN_UP}")
    _print_certificate("current", facts)
    print(f"accepted by  {_describe_trust(trust)}")
    return 0


def _files(home: Path, *, make: bool = False) -> CertificateFiles:
    from pilotage.home_place import refuse_copy
    from pilotage.server.process.certificates import CertificateFiles

    folder = home.expanduser()
    refuse_copy(folder)
    files = CertificateFiles(folder / "secrets")
    if not make and not files.current.exists():
        raise NotFound(
            f"the home {folder} has no certificate",
            hint="`pilotage up --listen HOST:PORT` makes one; --home names another home",
        )
    if not folder.exists():
        raise NotFound(f"there is no home {folder}", hint="`pilotage up` makes one; --home names another")
    return files


def _roles(files: CertificateFiles) -> list[str]:
    names = [path.name.removesuffix(".pem").removesuffix("certificate") for path in files.existing()]
    return [name.rstrip("-") or "current" for name in names]


def _url(home: Path) -> str:
    """The address of the running or last server of a home; "" if there was none."""
    try:
        facts = json.loads((home.expanduser() / "server.json").read_text())
        return str(facts["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _login_url(home: Path, fingerprints: list[str]) -> str:
    url = _url(home)
    if not url.startswith("https:"):
        return ""
    return f"{url}#sha256={','.join(fingerprints)}" if fingerprints else url


def _as_json(certificate: Certificate) -> dict[str, Any]:
    return {
        "sha256": certificate.fingerprint,
        "names": certificate.names,
        "issuer": certificate.issuer,
        "expires": certificate.expires,
    }


def _describe_trust(trust: str) -> str:
    if not trust:
        return "its fingerprint, which does not expire"
    return "the system's CAs" if trust == "system" else f"the CAs in {trust}"


def _print_certificate(role: str, certificate: Certificate) -> None:
    from pilotage.cli.time_format import format_instant

    until = format_instant(certificate.expires, time.time(), exact=not sys.stdout.isatty())
    print(f"{role:<12} sha256={certificate.fingerprint}")
    print(f"             for {', '.join(certificate.names) or 'no name'}; until {until}")
    print(f"             issued by {certificate.issuer}")
