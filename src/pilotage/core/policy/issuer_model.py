"""The tables `issuers.NAME` of the policy: OpenID Connect providers whose users sign in here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from pilotage.core.policy.entitlements import read_entitlement, read_source
from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import Setting

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
EXAMPLE = "urn:mace:egi.eu:group:vo.example.org:role=member#aai.egi.eu"


class TrustedIssuer(PolicyTable, frozen=True):
    """One provider. Its users are named here by a claim, and so are the groups in which they may work."""

    url: Annotated[str, Setting("address of the issuer, exactly as `iss` in its tokens has it")]
    client: Annotated[
        str,
        Setting(
            "id of the public client with which the command line signs in by device code; empty: only programs with"
            " tokens of their own are accepted"
        ),
    ] = ""
    scopes: Annotated[tuple[str, ...], Setting("scopes that the command line asks for")] = (
        *("openid", "profile", "offline_access"),
    )
    web_client: Annotated[
        str, Setting("id of the client with which browsers sign in to the pages; empty: none do")
    ] = ""
    web_secret_file: Annotated[
        str, Setting("absolute path of a file of the server with its secret; empty: it is a public client")
    ] = ""
    web_address: Annotated[
        str,
        Setting(
            "address of the pages as browsers see it, such as https://pool.example.org; the issuer must know it with"
            " /signin-back at its end as the redirect URI"
        ),
    ] = ""
    audience: Annotated[
        tuple[str, ...],
        Setting(
            "values of `aud` of access tokens that programs may send with each call; none: no such token is accepted"
        ),
    ] = ()
    user_claim: Annotated[str, Setting("claim with the name of the user")] = "preferred_username"
    group_claim: Annotated[
        str,
        Setting(
            "claim with the user's groups at the issuer, such as groups, eduperson_entitlement or"
            " resource_access.pool.roles, where dots lead into objects; empty: the policy alone gives groups"
        ),
    ] = "wlcg.groups"
    entitlements: Annotated[
        tuple[str, ...],
        Setting(
            "sources of entitlements, as urn:mace:egi.eu#aai.egi.eu: theirs count as the path of their group, /vo/sub,"
            " and as /vo/sub:role=ROLE. Others count by a URN in the table of groups only"
        ),
    ] = ()
    users: Annotated[
        dict[str, str],
        Setting("user of the policy by value of user_claim; other values are the names of users themselves"),
    ] = msgspec.field(default_factory=dict)
    groups: Annotated[
        dict[str, str],
        Setting(
            "group of the policy by value in group_claim; other values count if they are the name of a group, after a"
            " slash or without one. An entitlement without a role stands for each role in its group"
        ),
    ] = msgspec.field(default_factory=dict)
    lifetime: Annotated[
        float,
        Setting("seconds for which a token of this server is valid after a sign-in there", 60, 7 * 86400),
    ] = 3600.0
    new_users: Annotated[
        Literal["refuse", "accept"],
        Setting("accept: a user whom the policy lacks is added to it, with the groups that the claim names"),
    ] = "refuse"
    ca_file: Annotated[
        str, Setting("absolute path of a file with the CAs of the issuer; empty: those of the system")
    ] = ""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Keys with values that cannot be used, each with the reason."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            yield "url", f"{self.url!r} is not an address such as https://iam.example.org"
        elif parts.scheme == "http" and parts.hostname not in LOOPBACK:
            yield "url", f"{self.url!r}: keys that come without TLS prove nothing: use https"
        for key in ("ca_file", "web_secret_file"):
            if (path := getattr(self, key)) and not path.startswith("/"):
                yield key, f"{path!r} is no absolute path"
        if not self.client and not self.web_client and not self.audience:
            yield "client", "no client and no audience is given, so no token of it could be accepted"
        if self.web_client and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", self.web_address):
            yield "web_address", f"{self.web_address!r} is not an address such as https://pool.example.org"
        yield from self._mistakes_of_claims()

    def _mistakes_of_claims(self) -> Iterator[tuple[str, str]]:
        if not self.user_claim:
            yield "user_claim", "a claim needs a name"
        if not self.group_claim and self.new_users == "accept":
            yield "new_users", "new users would be in no group, as there is no group_claim"
        for source in self.entitlements:
            if read_source(source) is None:
                yield "entitlements", f"{source[:80]!r} is not a source such as urn:mace:egi.eu#aai.egi.eu"
        for value in self.groups:
            if value.lower().startswith("urn:") and ":group:" in value and read_entitlement(value) is None:
                yield "groups", f"{value[:80]!r} is not an entitlement such as {EXAMPLE}"
