"""The tables `storage.NAME` of the policy: places for the files of requests that are no folders of the nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import YEAR, Setting

EVERY_SITE = "*"

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")
"""The name of a table that commands and addresses take."""

_ENDPOINT = re.compile(r"https?://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?/?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOLDER = re.compile(r"[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s?#@]+")
_ORDINARY = frozenset({"s3", "http", "https", "file"})
"""Schemes that a place of commands cannot have, since pilots open these addresses themselves."""


class StorageOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of one type of storage; each field is a key of the policy."""

    @property
    def address(self) -> str:
        """The beginning of the addresses of all files there, without a slash at its end."""
        raise NotImplementedError

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Keys with values that cannot be used, each with the reason."""
        raise NotImplementedError


class S3Options(StorageOptions, frozen=True):
    """A bucket of an S3 service, or a folder in it. Only the server has the key."""

    endpoint: Annotated[str, Setting("address of the S3 service, such as https://s3.example.org")] = ""
    bucket: Annotated[str, Setting("name of the bucket, which must exist")] = ""
    prefix: Annotated[str, Setting("folder in the bucket; empty: the whole bucket")] = ""
    region: Annotated[str, Setting("region that the service signs for")] = "us-east-1"
    style: Annotated[
        Literal["path", "virtual"],
        Setting(
            "path: the bucket is in the path of addresses; virtual: it is the first part of the host's name"
        ),
    ] = "path"
    credentials_file: Annotated[
        str,
        Setting(
            "file of the server with aws_access_key_id and aws_secret_access_key, as the AWS command line has it, which"
            " only its account may read; empty: the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the server"
        ),
    ] = ""
    profile: Annotated[str, Setting("section of credentials_file")] = "default"
    lifetime: Annotated[
        float, Setting("seconds for which an address that a pilot is given can be used", 10, 7 * 86400)
    ] = 900.0

    @property
    def address(self) -> str:
        host = urlsplit(self.endpoint).netloc.lower()
        return "/".join(part for part in (f"s3://{host}/{self.bucket}", self.prefix) if part)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not _ENDPOINT.fullmatch(self.endpoint):
            yield "endpoint", f"{self.endpoint!r} is not an address such as https://s3.example.org"
        if not _BUCKET.fullmatch(self.bucket):
            yield "bucket", f"{self.bucket!r} cannot be the name of a bucket"
        if self.prefix and (not _FOLDER.fullmatch(self.prefix) or _leads_out(self.prefix)):
            yield "prefix", f"{self.prefix!r} is not a folder such as pilotage/outputs"
        if self.credentials_file and not self.credentials_file.startswith("/"):
            yield "credentials_file", f"{self.credentials_file!r} is no absolute path"
        if not re.fullmatch(r"[A-Za-z0-9-]+", self.region):
            yield "region", f"{self.region!r} cannot be a region"


class CommandOptions(StorageOptions, frozen=True):
    """Storage that programs of the nodes read and write, such as xrdcp or gfal-copy."""

    url: Annotated[
        str, Setting("beginning of the addresses of its files, such as root://eos.example.org//eos/pilotage")
    ] = ""
    put: Annotated[
        str,
        Setting(
            "command that stores {file} at {url}, such as `xrdcp --silent {file} {url}`. No shell reads it"
        ),
    ] = ""
    get: Annotated[
        str,
        Setting("command that copies {url} to {file}; empty: programs of jobs open the addresses themselves"),
    ] = ""
    checksum: Annotated[
        str,
        Setting(
            "command that prints the adler32 checksum of {url} in hexadecimal digits; empty: a stored file is copied"
            " back by `get` and compared"
        ),
    ] = ""
    remove: Annotated[str, Setting("command that removes {url}; empty: a cleanup removes nothing there")] = ""
    timeout: Annotated[float, Setting("seconds after which a command is ended", 1, YEAR)] = 3600.0

    @property
    def address(self) -> str:
        return self.url.rstrip("/")

    def mistakes(self) -> Iterator[tuple[str, str]]:
        scheme = urlsplit(self.url).scheme if _URL.fullmatch(self.url) else ""
        if not scheme or scheme in _ORDINARY or _leads_out(self.url):
            yield "url", f"{self.url!r} is not an address such as root://eos.example.org//eos/pilotage"
        for key, fields in (
            ("put", ("{file}", "{url}")),
            ("get", ("{file}", "{url}")),
            ("checksum", ("{url}",)),
            ("remove", ("{url}",)),
        ):
            text = getattr(self, key)
            reason = _command_mistake(text, fields) if text else ""
            if reason:
                yield key, f"{text!r}: {reason}"
        if not self.put:
            yield "put", "the command that stores a file is missing"
        if not self.get and not self.checksum:
            yield "checksum", "without `get` or `checksum`, a stored file cannot be compared"


def words_of(command: str) -> list[str]:
    """The words of a command of the policy."""
    return shlex.split(command)


def _command_mistake(text: str, fields: tuple[str, ...]) -> str:
    try:
        words = words_of(text)
    except ValueError as error:
        return f"it cannot be divided into words: {error}"
    if not words or "{" in words[0]:
        return "its first word must be a program"
    missing = [field for field in fields if not any(field in word for word in words)]
    return f"{missing[0]} is missing" if missing else ""


def _leads_out(path: str) -> bool:
    return any(part in (".", "..") for part in path.split("/"))


class OutsideStorage(PolicyTable, frozen=True):
    """One storage place that is no folder. `sites.NAME.storage` names it."""

    type: Annotated[
        Literal["s3", "command"],
        Setting("s3: a bucket of an S3 service; command: storage that programs of the nodes read and write"),
    ]
    sites: Annotated[tuple[str, ...], Setting("the sites whose jobs can read its files; `*`: every site")] = (
        EVERY_SITE,
    )
    patience: Annotated[
        float,
        Setting(
            "seconds for which a pilot tries again while the place does not answer; then the job fails there",
            0,
            YEAR,
        ),
    ] = 600.0
    s3: S3Options = S3Options()
    command: CommandOptions = CommandOptions()

    @property
    def options(self) -> StorageOptions:
        """The options of its own type."""
        return self.s3 if self.type == "s3" else self.command

    @property
    def address(self) -> str:
        """The beginning of the addresses of all files there."""
        return self.options.address

    def readers(self, site: str) -> tuple[str, ...]:
        """The sites of the replicas of files that a job at `site` has stored."""
        if EVERY_SITE in self.sites:
            return (EVERY_SITE,)
        return tuple(dict.fromkeys((site, *self.sites)))
