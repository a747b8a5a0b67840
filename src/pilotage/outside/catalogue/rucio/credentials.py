"""Credentials for Rucio: bearer tokens, found in the order that WLCG has agreed on, and passwords in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pilotage.core.errors import NotAuthenticated

LARGEST = 65_536
"""Characters of a token or password."""


def find_token(token_file: str, environment: Mapping[str, str], uid: int) -> str:
    """The bearer token of a file, or the first one by the WLCG order. Raises `NotAuthenticated`."""
    if token_file:
        return _read(Path(token_file))
    if text := environment.get("BEARER_TOKEN", "").strip():
        return text
    if named := environment.get("BEARER_TOKEN_FILE", ""):
        return _read(Path(named))
    for path in _usual_files(environment, uid):
        if path.is_file():
            return _read(path)
    places = ", ".join(map(str, _usual_files(environment, uid)))
    raise NotAuthenticated(
        f"no bearer token was found: BEARER_TOKEN and BEARER_TOKEN_FILE are not set, and there is no {places}",
        hint="name a token_file in the policy, or start the server with one of these",
    )


def _usual_files(environment: Mapping[str, str], uid: int) -> Iterator[Path]:
    if runtime := environment.get("XDG_RUNTIME_DIR", ""):
        yield Path(runtime) / f"bt_u{uid}"
    yield Path("/tmp") / f"bt_u{uid}"  # noqa: S108 (WLCG has agreed on this place)


def read_password(path: str) -> str:
    """The password in a file, without the end of its line. Raises `NotAuthenticated`."""
    return _read(Path(path))


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise NotAuthenticated(f"{path} cannot be read: {reason}") from None
    if not text or not text.isprintable():
        raise NotAuthenticated(f"{path} has no token or password in its only line")
    return text
