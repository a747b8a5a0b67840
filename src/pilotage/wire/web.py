"""Messages of the web pages. Rules of bodies, instants and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.wire.call import PERSON, ApiCall, NoRequest


@dataclass
class SignInCode:
    """A way for a browser to sign in as the caller, once."""

    address: str
    """Below the address of the server."""
    expires: float


CREATE_SIGN_IN_CODE = ApiCall("POST", "/v1/web/codes", NoRequest, SignInCode, PERSON)
