"""The tables of the policy, and what the use cases ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import msgspec

from pilotage.core.queues.draws import Rule
from pilotage.core.queues.limits import Limit
from pilotage.core.shares.corrector import CorrectorInstance
from pilotage.core.shares.correctors import CORRECTORS

ADMINISTRATOR = "ADMINISTRATOR"
JOB_ADMINISTRATOR = "JOB_ADMINISTRATOR"
JOB_SHARING = "JOB_SHARING"
GENERIC_PILOT = "GENERIC_PILOT"
NORMAL_USER = "NORMAL_USER"
PROPERTIES = (NORMAL_USER, JOB_SHARING, JOB_ADMINISTRATOR, ADMINISTRATOR, GENERIC_PILOT)
DIRAC_PROPERTIES = {
    "NormalUser": NORMAL_USER,
    "JobSharing": JOB_SHARING,
    "JobAdministrator": JOB_ADMINISTRATOR,
    "GenericPilot": GENERIC_PILOT,
}
"""What DIRAC's configuration calls them; accepted in a policy too."""

Owners = Literal["home", "any"]
CeType = Literal["local"]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of the document."""


class Group(_Table, frozen=True):
    share: float = 1000.0
    properties: tuple[str, ...] = (NORMAL_USER,)
    vo: str = ""

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(DIRAC_PROPERTIES.get(name, name) for name in self.properties))
        msgspec.structs.force_setattr(self, "properties", names)


class User(_Table, frozen=True):
    groups: tuple[str, ...]
    subject: str = ""


class Site(_Table, frozen=True):
    banned: bool = False
    job_types: tuple[str, ...] | None = None


class Ce(_Table, frozen=True):
    site: str
    type: CeType = "local"
    owners: Owners = "home"
    setup: str = ""
    processors: int = 0
    memory: int = 0
    tags: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    cpu_power: float = 1.0
    wall: float = 604800.0
    idle: float = 5.0
    lease: float = 3600.0
    heartbeat: float = 5.0
    quantum: float = 60.0


class Matching(_Table, frozen=True):
    rule: Rule = "document"
    cpu_buckets: tuple[int, ...] = (500, 5000, 50000, 300000)
    memory_buckets: tuple[int, ...] = (
        *(512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768),
        *(49152, 65536, 98304, 131072, 196608, 262144, 524288, 1048576),
    )


class Jobs(_Table, frozen=True):
    max_reschedules: int = 3
    retry_delay: float = 10.0
    offer_timeout: float = 300.0
    max_input_file: int = 1_000_000_000
    max_input_sandbox: int = 2_000_000_000
    max_output_file: int = 10_000_000_000
    max_waiting_per_owner: int = 2_000_000


class LimitEntry(_Table, frozen=True):
    attribute: str
    value: str
    site: str = ""
    ce: str = ""
    running: int | None = None
    delay: float = 0.0
    burst: int = 1


class NamedInstance(NamedTuple):
    """One instance of a corrector, `[correction.CORRECTOR.NAME]`."""

    corrector: str
    name: str
    settings: CorrectorInstance


class _Correction(_Table, frozen=True):
    """The table `correction`. It has one more field for each corrector: a table of its instances by name."""

    correctors: tuple[str, ...] = ()
    period: float = 60.0

    def instances_of(self, corrector: str) -> Mapping[str, CorrectorInstance]:
        """The instances of one corrector, by name, in the order of the document."""
        return cast(Mapping[str, CorrectorInstance], getattr(self, corrector))

    @property
    def instances(self) -> Iterator[NamedInstance]:
        """All instances in the order in which they run."""
        for corrector in self.correctors:
            for name, settings in self.instances_of(corrector).items():
                yield NamedInstance(corrector, name, settings)

    def between(self, group: str) -> tuple[CorrectorInstance, ...]:
        """The instances between the owners of `group`, or between the groups if it is empty, as they run."""
        return tuple(instance.settings for instance in self.instances if instance.settings.group == group)


if TYPE_CHECKING:
    Correction = _Correction
else:
    Correction = msgspec.defstruct(
        "Correction",
        [(name, dict[str, instance], {}) for name, instance in CORRECTORS.items()],
        bases=(_Correction,),
        frozen=True,
    )


class Accounting(_Table, frozen=True):
    history: float = 34560000.0


YEAR = 31536000.0


class Retention(_Table, frozen=True):
    hot: float = 3600.0
    jobs: float = YEAR
    outputs: float = YEAR / 2
    attempts: float | None = None
    """None: two years, or longer where accounting.history or `jobs` is."""
    events: float = YEAR
    pilots: float = 7776000.0
    uploads: float = 2592000.0
    reasons: float = YEAR


class Policy(_Table, frozen=True):
    """The whole document. All references between its tables hold: `parse` has checked them."""

    groups: dict[str, Group]
    users: dict[str, User]
    sites: dict[str, Site] = {}
    ces: dict[str, Ce] = {}
    matching: Matching = Matching()
    jobs: Jobs = Jobs()
    limits: tuple[LimitEntry, ...] = ()
    correction: Correction = Correction()
    accounting: Accounting = Accounting()
    retention: Retention = Retention()
    platforms: dict[str, tuple[str, ...]] = {}

    def properties(self, user: str, group: str) -> frozenset[str]:
        """What `user` may do in `group`; empty if the policy has no such membership."""
        known = self.users.get(user)
        if known is None or group not in known.groups or group not in self.groups:
            return frozenset()
        return frozenset(self.groups[group].properties)

    def shares(self) -> dict[str, float]:
        return {name: group.share for name, group in self.groups.items()}

    def sharing(self, group: str) -> bool:
        """Whether the members of a group draw on its share together."""
        known = self.groups.get(group)
        return known is not None and JOB_SHARING in known.properties

    def entity(self, owner: str, group: str) -> tuple[str, str]:
        return ("", group) if self.sharing(group) else (owner, group)

    def admits(self, owner: str, group: str) -> bool:
        """Whether jobs of this owner and group may start. A shared group's jobs are the group's, not the owner's."""
        if group not in self.groups:
            return False
        known = self.users.get(owner)
        return self.sharing(group) or (known is not None and group in known.groups)

    def attempts_kept(self) -> float:
        """Seconds for which tries are kept after their end: accounting and the shares live on them."""
        said = self.retention.attempts
        return max(2 * YEAR, self.accounting.history, self.retention.jobs) if said is None else said

    def pilots_kept(self) -> float:
        """Seconds after their end. One that was given up may report for as long as it may live."""
        return max([self.retention.pilots, *(ce.wall for ce in self.ces.values())])

    def compatible(self, platform: str) -> frozenset[str]:
        """The platforms whose jobs a node of `platform` can run, itself included."""
        return frozenset({platform, *self.platforms.get(platform, ())})

    def limit_list(self) -> tuple[Limit, ...]:
        return tuple(Limit(**msgspec.structs.asdict(entry)) for entry in self.limits)
