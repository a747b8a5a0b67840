"""The base of the tables `[ces.NAME.TYPE]`, one for each type of batch system."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from pilotage.core.forwarding.table import ForwardTable
from pilotage.core.policy.reach import SshReach
from pilotage.core.setting import Setting

LogFolder = Annotated[
    str, Setting("folder on the nodes for the output of pilots; empty: the output is thrown away")
]
"""The key `log_folder` of batch systems whose pilots write it themselves."""


class BatchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of the CEs of one batch system. Subclasses add fields; each field is a key of the policy."""

    meaning: ClassVar[str]
    """A few words for the reference of the policy."""
    own_endpoints: ClassVar[str] = "its adapter has a single way to the batch system"
    """Why a pool's `endpoints` cannot be used: part of the hint of the policy check."""

    is_experimental: ClassVar[bool] = False
    """The adapter is written after documentation, and was never tested with the batch system itself."""

    grid_flavours: ClassVar[tuple[str, ...]] = ()
    """Its CEs' service types in GOCDB and flavours in CRIC; case and characters that are no letters do not matter."""

    forwarding: ClassVar[ForwardTable] = ForwardTable()
    """The native terms for requirements over hosts. Empty: all requirements are left to the match."""

    asks_each: ClassVar[bool] = False
    """Whether a part of the batch system may be away alone: then pilots there are unknown, and the others are listed.
    """

    @property
    def own_reaches(self) -> tuple[SshReach, ...]:
        """The hosts that its adapter reaches over ssh by itself, without `reach`."""
        return ()

    @property
    def largest_pilot(self) -> tuple[int, str] | None:
        """The most cores of a pilot under these options, and the reason; None: the batch system decides."""
        return None

    @property
    def own_features(self) -> str:
        """Features of hosts that each submission asks for, in the syntax of the table's feature option."""
        return ""

    @property
    def own_queue(self) -> str:
        """The queue or partition of its pilots; empty: the batch system's default."""
        return str(getattr(self, self.partition_key, "")) if self.partition_key else ""

    @property
    def own_log_folder(self) -> str:
        """The folder for the output of its pilots, as its key `log_folder` says; empty: their output is thrown away."""
        return str(getattr(self, "log_folder", ""))

    @property
    def fetches_program(self) -> bool:
        """Whether pilots fetch their program from the server. Their script is short then."""
        return False

    partition_key: ClassVar[str] = "partition"
    """The key that names the part of the batch system, if the type has it."""

    @property
    def own_requests(self) -> frozenset[str]:
        """Names of resources that each submission asks for, where a second request for a name replaces the first."""
        return frozenset()

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Keys with values that no batch system of the type could use, each with the reason."""
        yield from ()

    def mistakes_in_names(self, pattern: str, *keys: str) -> Iterator[tuple[str, str]]:
        """The keys whose values are no names as `pattern` has them. Empty values are none."""
        for key in keys:
            value = getattr(self, key)
            if value and not re.fullmatch(pattern, value):
                yield key, f"{key} must be a name of letters, digits and `_.-`"

    def mistakes_in_paths(self, *keys: str) -> Iterator[tuple[str, str]]:
        """The keys whose values are no absolute paths. Empty values are none."""
        for key in keys:
            path = getattr(self, key)
            if path and (not path.startswith("/") or re.search(r"[\0-\037]", path)):
                yield key, f"{key} must be an absolute path"
