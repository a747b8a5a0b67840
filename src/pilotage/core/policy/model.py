"""The tables of the policy, each key with its meaning and range, and queries on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import msgspec

from pilotage.core.plug_ins import refuse
from pilotage.core.policy.catalogue_model import OutsideCatalogue as OutsideCatalogue
from pilotage.core.policy.ce_model import Ce as Ce
from pilotage.core.policy.ce_model import PilotType as PilotType
from pilotage.core.policy.director import UNHANDLED_POOLS, Director
from pilotage.core.policy.issuer_model import TrustedIssuer
from pilotage.core.policy.partitions import JobPartition
from pilotage.core.policy.requests import Requests
from pilotage.core.policy.retention import DAYS_365, Retention
from pilotage.core.policy.storage_model import OutsideStorage as OutsideStorage
from pilotage.core.policy.table import PolicyTable as _Table
from pilotage.core.queues.draws import Rule
from pilotage.core.queues.limits import ATTRIBUTES, Limit
from pilotage.core.setting import BYTES, COUNT, SECONDS, YEAR, Setting
from pilotage.core.shares.corrector import CorrectorInstance
from pilotage.core.shares.correctors import CORRECTORS

ADMINISTRATOR = "ADMINISTRATOR"
JOB_ADMINISTRATOR = "JOB_ADMINISTRATOR"
JOB_SHARING = "JOB_SHARING"
GENERIC_PILOT = "GENERIC_PILOT"
NORMAL_USER = "NORMAL_USER"
PRODUCTION_MANAGEMENT = "PRODUCTION_MANAGEMENT"
"""May approve and assign requests, and change requests of others."""
AGENT = "AGENT"
"""May take elements of requests and split them into jobs."""
PROPERTIES = (
    *(NORMAL_USER, JOB_SHARING, JOB_ADMINISTRATOR, ADMINISTRATOR, GENERIC_PILOT),
    *(PRODUCTION_MANAGEMENT, AGENT),
)
DIRAC_PROPERTIES = {
    "NormalUser": NORMAL_USER,
    "JobSharing": JOB_SHARING,
    "JobAdministrator": JOB_ADMINISTRATOR,
    "GenericPilot": GENERIC_PILOT,
    "ProductionManagement": PRODUCTION_MANAGEMENT,
}
"""Names of the properties in DIRAC's configuration; a policy may use them too."""


class Group(_Table, frozen=True):
    share: Annotated[
        float,
        Setting(
            "the share of the resources that the group is entitled to, relative to the other shares",
            1e-6,
            1e12,
            or_zero=True,
        ),
    ] = 1000.0
    properties: Annotated[tuple[str, ...], Setting(f"rights of its members: {', '.join(PROPERTIES)}")] = (
        NORMAL_USER,
    )
    teams: Annotated[
        tuple[str, ...],
        Setting(
            f"teams whose requests its members may split, with the property {AGENT}; `*`: all teams. An"
            f" {ADMINISTRATOR} may split requests of all teams"
        ),
    ] = ()
    vo: Annotated[
        str, Setting("virtual organisation of its members, in the ads of their jobs and pilots")
    ] = ""

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(DIRAC_PROPERTIES.get(name, name) for name in self.properties))
        msgspec.structs.force_setattr(self, "properties", names)


class User(_Table, frozen=True):
    groups: Annotated[tuple[str, ...], Setting("the groups of the user; the first is the default")]
    subject: Annotated[
        str,
        Setting("certificate subject of the user in the ads of jobs and pilots; empty: the name of the user"),
    ] = ""
    mail: Annotated[
        str, Setting("address for mail about the user's jobs, if a job names no other; empty: none")
    ] = ""


class Site(_Table, frozen=True):
    banned: Annotated[bool, Setting("true: no job starts there")] = False
    draining: Annotated[
        bool, Setting("true: pilots are submitted there only for queues that can run nowhere else")
    ] = False
    administrators: Annotated[
        tuple[str, ...], Setting("users who may ban users from the site and trace its pilots")
    ] = ()
    job_types: Annotated[
        tuple[str, ...] | None, Setting("the job types that the site accepts; absent: all")
    ] = None
    storage: Annotated[
        tuple[str, ...],
        Setting(
            "where its pilots store output files of requests, the best first: folders, or names of `storage` tables;"
            " none: the folder storage of the home, at a site with a local CE"
        ),
    ] = ()


class Matching(_Table, frozen=True):
    rule: Annotated[
        Rule,
        Setting(
            "proportional, where higher priorities of an owner go first, or dirac (highest CPU bucket first,"
            " rand()/priority)"
        ),
    ] = "proportional"
    cpu_buckets: Annotated[tuple[int, ...], Setting("seconds of a reference core, ascending", 1, 10**12)] = (
        500,
        5000,
        50000,
        300000,
    )
    memory_buckets: Annotated[tuple[int, ...], Setting("MB (2^20 bytes), ascending", 1, 10**12)] = (
        *(512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768),
        *(49152, 65536, 98304, 131072, 196608, 262144, 524288, 1048576),
    )
    disk_buckets: Annotated[tuple[int, ...], Setting("MB (2^20 bytes), ascending", 1, 10**12)] = (
        *(512, 1024, 2048, 3072, 4096, 5120, 6144, 8192, 10240, 12288, 15360, 20480, 25600, 30720, 40960),
        *(51200, 61440, 81920, 102400, 122880, 153600, 204800, 256000, 307200, 409600, 512000, 1048576),
    )


class Jobs(_Table, frozen=True):
    max_reschedules: Annotated[
        int, Setting("further attempts after failures that the job did not cause", 0, 10**6)
    ] = 3
    retry_delay: Annotated[
        float, Setting("seconds between such a failure and the next attempt", *SECONDS)
    ] = 10.0
    offer_timeout: Annotated[
        float,
        Setting("seconds after which an unconfirmed offer returns to its queue", 1e-3, YEAR),
    ] = 300.0
    max_input_file: Annotated[int, Setting("maximum bytes of an input file", *BYTES)] = 1_000_000_000
    max_input_sandbox: Annotated[int, Setting("maximum bytes of all input files of a job", *BYTES)] = (
        2_000_000_000
    )
    max_output_file: Annotated[int, Setting("maximum bytes of an output file", *BYTES)] = 10_000_000_000
    max_waiting_per_owner: Annotated[int, Setting("maximum number of waiting jobs of an owner", *COUNT)] = (
        2_000_000
    )


class Sandboxes(_Table, frozen=True):
    storage: Annotated[
        str,
        Setting(
            "name of a `storage` table of type s3, whose bucket has new outputs of jobs;"
            " empty: the server's folder of sandboxes"
        ),
    ] = ""
    inputs: Annotated[
        str,
        Setting(
            "name of a `storage` table of type s3, to whose bucket clients send large input files of jobs;"
            " empty: to the server"
        ),
    ] = ""


class Mail(_Table, frozen=True):
    server: Annotated[
        str,
        Setting("HOST or HOST:PORT of the SMTP server that takes mail about jobs; empty: no mail is sent"),
    ] = ""
    sender: Annotated[str, Setting("address that mail comes from")] = ""
    recipients: Annotated[
        tuple[str, ...],
        Setting("ends of the addresses that jobs may name, such as `@example.org`; none: only users.*.mail"),
    ] = ()


class LimitEntry(_Table, frozen=True):
    attribute: Annotated[str, Setting(f"attribute of the task queue: {', '.join(ATTRIBUTES)}")]
    value: Annotated[str, Setting("the value of the attribute")]
    site: Annotated[str, Setting("the site where the limit applies; empty: all sites")] = ""
    ce: Annotated[str, Setting("the CE where the limit applies; empty: all CEs")] = ""
    running: Annotated[
        int | None, Setting("maximum number of jobs with this value that run at the same time", 0, 10**9)
    ] = None
    delay: Annotated[
        float, Setting("minimum seconds between two starts of jobs with this value", *SECONDS)
    ] = 0.0
    burst: Annotated[
        int, Setting("starts that may follow each other without delay after a pause", 1, 10**9)
    ] = 1


class NamedInstance(NamedTuple):
    """One instance of a corrector, `[correction.CORRECTOR.NAME]`."""

    corrector: str
    name: str
    settings: CorrectorInstance


class _Correction(_Table, frozen=True):
    """The table `correction`. It has one more field for each corrector: a table of its instances by name."""

    correctors: Annotated[
        tuple[str, ...],
        Setting(
            f"the correctors to run, in this order: {', '.join(CORRECTORS)}; none: shares are not corrected"
        ),
    ] = ()
    period: Annotated[float, Setting("seconds between two corrections", 1.0, YEAR)] = 60.0

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
    refuse("correctors", CORRECTORS, _Correction.__struct_fields__)
    Correction = msgspec.defstruct(
        "Correction",
        [(name, dict[str, instance], {}) for name, instance in CORRECTORS.items()],
        bases=(_Correction,),
        module=__name__,
        frozen=True,
    )


class Accounting(_Table, frozen=True):
    history: Annotated[
        float,
        Setting("seconds for which the daily use is kept; at least the longest time_span", 0.0, 20 * YEAR),
    ] = 34560000.0


class Policy(_Table, frozen=True):
    """The whole document. `parse` has checked all references between its tables."""

    groups: dict[str, Group]
    users: dict[str, User]
    sites: dict[str, Site] = msgspec.field(default_factory=dict)
    ces: dict[str, Ce] = msgspec.field(default_factory=dict)
    partitions: dict[str, JobPartition] = msgspec.field(default_factory=dict)
    catalogues: dict[str, OutsideCatalogue] = msgspec.field(default_factory=dict)
    storage: dict[str, OutsideStorage] = msgspec.field(default_factory=dict)
    issuers: dict[str, TrustedIssuer] = msgspec.field(default_factory=dict)
    matching: Matching = Matching()
    jobs: Jobs = Jobs()
    sandboxes: Sandboxes = Sandboxes()
    mail: Mail = Mail()
    director: Director = Director()
    requests: Requests = Requests()
    limits: tuple[LimitEntry, ...] = ()
    correction: Correction = Correction()
    accounting: Accounting = Accounting()
    retention: Retention = Retention()
    platforms: Annotated[
        dict[str, tuple[str, ...]],
        Setting("further platforms that a node of this platform is compatible with"),
    ] = msgspec.field(default_factory=dict)

    def takes_turns(self, ce: str) -> bool:
        """Whether a pilot of the CE that serves one owner at a time gives way to other owners.

        With demand dirac, a place in a batch system's queue is worth more than a turn.
        """
        settings = self.ces.get(ce)
        if settings is None or not settings.serves_everybody:
            return False
        return settings.type == "local" or self.director.demand == "matched"

    def properties(self, user: str, group: str) -> frozenset[str]:
        """The rights of `user` in `group`; empty if the user is not a member."""
        known = self.users.get(user)
        if known is None or group not in known.groups or group not in self.groups:
            return frozenset()
        return frozenset(self.groups[group].properties)

    def teams(self, group: str) -> frozenset[str]:
        """The teams whose requests agents of `group` may split; `*` in it stands for all teams."""
        known = self.groups.get(group)
        return frozenset(known.teams) if known is not None and AGENT in known.properties else frozenset()

    def shares(self) -> dict[str, float]:
        return {name: group.share for name, group in self.groups.items()}

    def sharing(self, group: str) -> bool:
        """Whether the members of a group use its share together (JOB_SHARING)."""
        known = self.groups.get(group)
        return known is not None and JOB_SHARING in known.properties

    def entity(self, owner: str, group: str) -> tuple[str, str]:
        return ("", group) if self.sharing(group) else (owner, group)

    def admits(self, owner: str, group: str) -> bool:
        """Whether jobs of this owner and group may start. A sharing group owns its jobs itself."""
        if group not in self.groups:
            return False
        known = self.users.get(owner)
        return self.sharing(group) or (known is not None and group in known.groups)

    def submit_pools(self) -> tuple[str, ...]:
        """The submit pools known to the system."""
        named = self.director.known_pools
        if named is not None:
            return named
        of_ces = [ce.submit_pool for ce in self.ces.values()]
        return tuple(dict.fromkeys([*UNHANDLED_POOLS, *self.director.pools, *of_ces]))

    def default_submit_pools(self) -> tuple[str, ...]:
        """The pools of a queue that names none."""
        named = self.director.default_pools
        return self.submit_pools() if named is None else named

    def attempt_retention(self) -> float:
        """Seconds for which attempts are kept after their end. Accounting and shares are computed from them."""
        configured = self.retention.attempts
        return (
            max(2 * DAYS_365, self.accounting.history, self.retention.jobs)
            if configured is None
            else configured
        )

    def pilot_retention(self) -> float:
        """Seconds for which pilots are kept after their end. A lost pilot may report until its wall time is over."""
        return max([self.retention.pilots, *(ce.wall for ce in self.ces.values())])

    def compatible(self, platform: str) -> frozenset[str]:
        """The platforms that a node of `platform` is compatible with, including its own."""
        return frozenset({platform, *self.platforms.get(platform, ())})

    def storage_of(self, site: str, home_storage: str) -> tuple[str, ...]:
        """The storage places of a site, the best first: folders, and addresses of storage that is no folder.

        `home_storage`: the folder of the server's home, or empty.
        """
        known = self.sites.get(site)
        if known is not None and known.storage:
            return tuple(map(self.storage_address, known.storage))
        is_local = any(ce.site == site and ce.type == "local" for ce in self.ces.values())
        return (home_storage,) if is_local and home_storage else ()

    def storage_address(self, place: str) -> str:
        """The address of a storage place, which is named by its table; a folder has itself."""
        known = self.storage.get(place)
        return place if known is None else known.address

    def storage_with(self, url: str) -> tuple[str, OutsideStorage] | None:
        """The table `storage.NAME` that has a file or folder; None: it is in none of them."""
        having = [
            (name, place) for name, place in self.storage.items() if f"{url}/".startswith(f"{place.address}/")
        ]
        return max(having, key=lambda row: len(row[1].address), default=None)

    def matching_limits(self) -> tuple[Limit, ...]:
        """Running limits and thresholds of requests. Of two maxima for the same jobs the lower one counts."""
        limits = {
            limit.key: limit for limit in (Limit(**msgspec.structs.asdict(entry)) for entry in self.limits)
        }
        for limit in self.requests.running_limits(self.sites):
            known = limits.get(limit.key)
            if known is None or known.running is None or (limit.running or 0) < known.running:
                limits[limit.key] = replace(known or limit, running=limit.running)
        return tuple(limits.values())
