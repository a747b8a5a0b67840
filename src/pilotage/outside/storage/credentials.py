"""Keys of S3 services: from a file of the server, or from its environment. No other place has them."""

from __future__ import annotations

import configparser
import stat
from collections.abc import Mapping
from pathlib import Path

from pilotage.core.errors import NotAuthenticated
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.sigv4 import S3Credentials

_NAMES = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def find_credentials(options: S3Options, variables: Mapping[str, str]) -> S3Credentials:
    """The key of a place, read now. Raises `NotAuthenticated` without its contents."""
    if options.credentials_file:
        return _read_file(options)
    access, secret, session = (variables.get(name.upper(), "") for name in _NAMES)
    if not access or not secret:
        raise NotAuthenticated(
            "the server has no key for the S3 service",
            hint="set credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the server",
        )
    return S3Credentials(access, secret, session)


def _read_file(options: S3Options) -> S3Credentials:
    path = Path(options.credentials_file)
    try:
        mode = path.stat().st_mode
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise NotAuthenticated(f"credentials_file {path} cannot be read: {reason}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise NotAuthenticated(
            f"credentials_file {path}: other accounts have rights to it", hint=f"chmod 600 {path}"
        )
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        raise NotAuthenticated(f"credentials_file {path} is not a file with sections and keys") from None
    if not parser.has_section(options.profile):
        raise NotAuthenticated(f"credentials_file {path} has no section [{options.profile}]")
    access, secret, session = (parser.get(options.profile, name, fallback="").strip() for name in _NAMES)
    if not access or not secret:
        raise NotAuthenticated(
            f"credentials_file {path}: [{options.profile}] lacks aws_access_key_id or aws_secret_access_key"
        )
    return S3Credentials(access, secret, session)
