"""Methods of the client for administrators: batch systems, tokens of others, the policy, the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.agents import AgentMethods
from pilotage.client.answers import decode

if TYPE_CHECKING:
    from pilotage.wire.bans import BanSummary
    from pilotage.wire.ces import BatchSystem, CeJob, CeProbe, CeRefusal, CeSummary
    from pilotage.wire.director import DirectorReport
    from pilotage.wire.identity import RotateKeyResponse, TokenResponse, TokenSummary
    from pilotage.wire.policy import PolicyDocument, PolicyVersion
    from pilotage.wire.sites import SiteSummary
    from pilotage.wire.trace import Trace


class AdministrationMethods(AgentMethods):
    """Methods of the client that only administrators may call."""

    def enable_ce(self, name: str, reason: str = "") -> CeSummary:
        """Submit pilots to a CE again, and end its pause. Administrators only."""
        return self._post("/v1/ces/enable", wire.ces.CeChange(name, reason), wire.ces.CeSummary)

    def disable_ce(self, name: str, reason: str) -> CeSummary:
        """Submit no more pilots to a CE until it is enabled. Its pilots go on. Administrators only."""
        return self._post("/v1/ces/disable", wire.ces.CeChange(name, reason), wire.ces.CeSummary)

    def probe_ce(self, name: str) -> CeProbe:
        """Submit one probe to a CE, or return the probe that is under way. Administrators only."""
        return self._post("/v1/ces/probe", wire.ces.CeProbeRequest(name), wire.ces.CeProbe)

    def ce_probe(self, name: str) -> CeProbe:
        """Return the last probe of a CE. Administrators only. Raises NotFound."""
        return self._get("/v1/ces/probe", wire.ces.CeProbe, {"name": name})

    def ce_jobs(self, name: str) -> list[CeJob]:
        """Return the batch jobs of a CE's pilots, read from its batch system. Administrators only.

        Raises NotFound, and Unreachable if the batch system does not answer.
        """
        return self._get("/v1/ces/jobs", list[wire.ces.CeJob], {"name": name})

    def trace(self, *, batch_id: str = "", node: str = "", at: float | None = None) -> Trace:
        """Return the pilots and jobs of a batch id, or of a node at an instant (seconds since 1970; otherwise now).

        Administrators; administrators of a site for its pilots. Raises NotFound if no such pilot is known.
        """
        query = {"batch_id": batch_id, "node": node, "at": None if at is None else str(at)}
        return self._get(
            "/v1/trace", wire.trace.Trace, {name: value for name, value in query.items() if value}
        )

    def ban_user(
        self, user: str, *, site: str = "", until: float | None = None, reason: str = ""
    ) -> BanSummary:
        """Ban a user from a site, or from all sites, and kill their running jobs there.

        Administrators; administrators of a site for their site.
        """
        return self._post("/v1/bans", wire.bans.BanRequest(user, site, until, reason), wire.bans.BanSummary)

    def lift_ban(self, user: str, *, site: str = "", reason: str = "") -> BanSummary:
        """End a ban. Raises NotFound."""
        return self._post("/v1/bans/lift", wire.bans.BanLift(user, site, reason), wire.bans.BanSummary)

    def bans(self, *, everything: bool = False) -> list[BanSummary]:
        """Return the bans in force that you may see; with `everything` ended ones too."""
        return self._get("/v1/bans", wire.bans.BanList, {"all": "true"} if everything else None).bans

    def set_site_state(
        self, site: str, state: str, *, until: float | None = None, reason: str = ""
    ) -> SiteSummary:
        """Make a site `normal`, `drain` it, or take it `down`, until an instant (seconds since 1970) or for good.

        Administrators; administrators of a site for their site. Raises NotFound.
        """
        return self._post(
            "/v1/sites/state", wire.sites.SiteStateRequest(site, state, until, reason), wire.sites.SiteSummary
        )

    def director(
        self, *, dry_run: bool = False, seed: int | None = None, queue: int | None = None, limit: int = 100
    ) -> DirectorReport:
        """Return the last iteration of the director, for `queue` or for at most `limit` queues. Administrators only.

        `dry_run`: compute the next iteration with `seed` (None: its own) and submit nothing. Raises NotFound for a
        queue without waiting jobs.
        """
        given = {"seed": seed, "queue": queue, "limit": limit, "dry_run": str(dry_run).lower()}
        query = {name: value for name, value in given.items() if value is not None}
        return self._get("/v1/director", wire.director.DirectorReport, query)

    def describe_batch_system(self, kind: str, options: Mapping[str, str] | None = None) -> BatchSystem:
        """Return the partitions and accounts of a batch system, such as "slurm". Administrators only.

        `options`: keys of `[ces.NAME.TYPE]` that choose the cluster, such as conf.
        Raises Unreachable if its commands are not installed on the server's machine or do not answer.
        """
        query = {"option": [f"{key}={value}" for key, value in (options or {}).items()]}
        return self._get(f"/v1/batch-systems/{kind}", wire.ces.BatchSystem, query)

    def check_ce(self, text: str, name: str) -> CeRefusal:
        """Ask the batch system whether it would accept the pilots of a CE of the policy `text`. Administrators only."""
        return self._post("/v1/ces/check", wire.ces.CeCheck(text, name), wire.ces.CeRefusal)

    def create_token(self, user: str, *, group: str = "", lifetime: float = 43200.0) -> TokenResponse:
        """Create a token for `user`, valid for `lifetime` seconds. Administrators only; others get Forbidden."""
        return self._post(
            "/v1/tokens", wire.identity.TokenRequest(user, group, lifetime), wire.identity.TokenResponse
        )

    def tokens(self) -> Iterator[TokenSummary]:
        """Iterate over the tokens that administrators have made, newest first. Other users see their own."""
        return self._pages("/v1/tokens", wire.identity.TokensPage, lambda answer: answer.tokens)

    def revoke_token(self, number: int) -> None:
        """Revoke one token: yours, or any for administrators. Raises NotFound."""
        self._post("/v1/tokens/revoke", wire.identity.RevokeRequest(id=number), wire.identity.RevokeResponse)

    def revoke_tokens_of(self, user: str) -> int:
        """Revoke all tokens of a user that were issued until now; returns how many of them were listed."""
        return self._post(
            "/v1/tokens/revoke", wire.identity.RevokeRequest(user=user), wire.identity.RevokeResponse
        ).tokens

    def revoke_pilot(self, pilot: int) -> None:
        """Revoke the token of a pilot: it ends, and its jobs wait again. Administrators only."""
        self._post(
            "/v1/tokens/revoke", wire.identity.RevokeRequest(pilot=pilot), wire.identity.RevokeResponse
        )

    def rotate_token_key(self, *, grace: float = 86400.0) -> RotateKeyResponse:
        """Sign new tokens with a new key; earlier keys count for `grace` seconds more. Administrators only."""
        return self._post(
            "/v1/tokens/rotate-key", wire.identity.RotateKeyRequest(grace), wire.identity.RotateKeyResponse
        )

    def policy(self) -> PolicyDocument:
        """Return the policy in force. Administrators only."""
        return self._get("/v1/policy", wire.policy.PolicyDocument)

    def apply_policy(
        self, text: str, *, dry_run: bool = False, reason: str = "", expect: int | None = None
    ) -> PolicyDocument:
        """Put the policy `text` (TOML) into force; with `dry_run` only check it. Administrators only.

        `reason` is recorded in the history. Raises InvalidInput for an invalid policy, and Conflict if `expect` is
        given and another version is in force.
        """
        change = wire.policy.PolicyChange(text, dry_run, reason, expect)
        return decode(
            self._transport.request("PUT", "/v1/policy", json=change).content, wire.policy.PolicyDocument
        )

    def policy_versions(self) -> Iterator[PolicyVersion]:
        """Iterate over the versions of the policy, newest first. Administrators only."""
        return self._pages(
            "/v1/policy/versions", wire.policy.PolicyVersionsPage, lambda answer: answer.versions
        )

    def policy_version(self, version: int) -> PolicyDocument:
        """Return one version of the policy. Administrators only. Raises NotFound."""
        return self._get(f"/v1/policy/versions/{version}", wire.policy.PolicyDocument)

    def roll_back_policy(
        self, version: int, *, reason: str = "", expect: int | None = None
    ) -> PolicyDocument:
        """Put an earlier version into force again, as a new version. Parameters and errors: see `apply_policy`."""
        return self._post(
            "/v1/policy/rollback",
            wire.policy.PolicyRollback(version, reason, expect),
            wire.policy.PolicyDocument,
        )

    def shutdown(self, pilots: str = "keep") -> None:
        """Ask the server to stop; return when it has accepted the request. Administrators only.

        `pilots`: "drain" lets running jobs end first, "keep" leaves pilots running, "cancel" stops them.
        """
        self._transport.request("POST", "/v1/shutdown", json=wire.shutdown.Shutdown(pilots))
