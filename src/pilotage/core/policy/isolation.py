"""The keys of a CE about trust: whose jobs run there, and how they are isolated from each other."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pilotage.core.setting import Setting

Owners = Literal["home", "any"]
IsolationMode = Literal["none", "userns", "require"]

ISOLATED = "userns"
"""The isolation that a pilot reports when it isolates payloads."""
ISOLATED_TAG = "isolated"
"""The tag that such a pilot offers."""


class TrustSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    owners: Annotated[
        Owners | None,
        Setting(
            "home: pilots run jobs of the owner of the home only; any: jobs of all users, one owner per pilot unless it"
            ' isolates payloads; absent: any if isolation = "require", else home'
        ),
    ] = None
    isolation: Annotated[
        IsolationMode,
        Setting(
            "none: payloads have all rights of the pilot's account; userns: pilots isolate payloads in namespaces of"
            " their own where the node can; require: pilots that cannot isolate payloads run no job"
        ),
    ] = "none"
    visible: Annotated[
        tuple[str, ...],
        Setting("paths of the nodes that isolated payloads see: PATH or PATH:ro, read-only, or PATH:rw"),
    ] = ()

    @property
    def serves_everybody(self) -> bool:
        """Whether jobs of all users may run there, not only jobs of the owner of the home."""
        return (self.owners or ("any" if self.isolation == "require" else "home")) == "any"

    @property
    def binds_pilots(self) -> bool:
        """Whether each pilot is bound to one owner when it is submitted to a batch system."""
        return not (self.isolation == "require" or self.owners == "any")

    @property
    def visible_paths(self) -> tuple[str, ...]:
        """The paths of `visible`, without their modes."""
        return tuple(map(visible_path, self.visible))


def visible_path(text: str) -> str:
    """The path of an entry of `visible`."""
    path, _, mode = text.rpartition(":")
    return path if path and mode in ("ro", "rw") else text
