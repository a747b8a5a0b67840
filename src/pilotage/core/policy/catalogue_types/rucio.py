"""Options of catalogues that are Rucio servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pilotage.core.policy.catalogue_options import CatalogueOptions
from pilotage.core.setting import YEAR, Setting

_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


class RucioOptions(CatalogueOptions, frozen=True):
    meaning: ClassVar[str] = "a Rucio server"

    url: Annotated[str, Setting("address of the Rucio server, such as https://rucio.example.org")] = ""
    auth_url: Annotated[str, Setting("address of its authentication server; empty: the same")] = ""
    account: Annotated[str, Setting("the Rucio account; empty: the default of the token")] = ""
    auth: Annotated[
        Literal["token", "userpass"],
        Setting(
            "token: a bearer token, from token_file or where WLCG tokens are looked for; userpass: username and"
            " password_file"
        ),
    ] = "token"
    token_file: Annotated[
        str,
        Setting(
            "file with the bearer token, read again for each reading; empty: BEARER_TOKEN, BEARER_TOKEN_FILE,"
            " $XDG_RUNTIME_DIR/bt_uUID and /tmp/bt_uUID of the server, in this order"
        ),
    ] = ""
    username: Annotated[str, Setting("the user of auth = userpass")] = ""
    password_file: Annotated[str, Setting("file with the password of auth = userpass")] = ""
    ca_file: Annotated[
        str, Setting("file with the certificates that its certificate is checked by; empty: the system's")
    ] = ""
    timeout: Annotated[float, Setting("seconds without an answer after which a call fails", 1, 3600)] = 60.0
    locked: Annotated[
        bool,
        Setting(
            "true: only data sets that a rule keeps at an RSE count there; false: any complete replica counts"
        ),
    ] = True
    paths: Annotated[
        Literal["hash", "identity"],
        Setting(
            "how the path of a file follows from its scope and name at deterministic RSEs: their lfn2pfn_algorithm"
        ),
    ] = "hash"
    schemes: Annotated[
        tuple[str, ...],
        Setting(
            "protocols of RSEs without a prefix of their own here, the best first, such as root or davs; empty: the"
            " order of the RSE"
        ),
    ] = ()

    rule: Annotated[
        str,
        Setting(
            "RSE expression of the rule that keeps registered outputs; empty: the RSE where they are stored"
        ),
    ] = ""
    rule_copies: Annotated[int, Setting("copies that the rule of outputs asks for", 1, 100)] = 1
    rule_lifetime: Annotated[
        float, Setting("seconds after which the rule of outputs ends; 0: never", 0, 100 * YEAR)
    ] = 0.0

    def mistakes(self) -> Iterator[tuple[str, str]]:
        for key in ("url", "auth_url"):
            value = getattr(self, key)
            if value and not _URL.fullmatch(value):
                yield key, f"{value!r} is not an address such as https://rucio.example.org"
        for key in ("token_file", "password_file", "ca_file"):
            value = getattr(self, key)
            if value and not value.startswith("/"):
                yield key, f"{value!r} is no absolute path"
        if not self.url:
            yield "url", "the address of the Rucio server is missing"
        if self.auth == "userpass":
            for key in ("username", "password_file", "account"):
                if not getattr(self, key):
                    yield key, f'auth = "userpass" needs {key}'
