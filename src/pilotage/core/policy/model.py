"""The tables of the policy, each key with its meaning and range, and the questions that services ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, cast

import msgspec

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
    share: Annotated[
        float,
        Setting(
            "what fraction of the whole the group is entitled to, relative to the other shares",
            1e-6,
            1e12,
            or_zero=True,
        ),
    ] = 1000.0
    properties: Annotated[tuple[str, ...], Setting(f"rights of its members: {', '.join(PROPERTIES)}")] = (
        NORMAL_USER,
    )
    vo: Annotated[str, Setting("virtual organisation, for the ads of pilots; nothing reads it yet")] = ""

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(DIRAC_PROPERTIES.get(name, name) for name in self.properties))
        msgspec.structs.force_setattr(self, "properties", names)


class User(_Table, frozen=True):
    groups: Annotated[tuple[str, ...], Setting("the groups of the user; the first is the default")]
    subject: Annotated[
        str, Setting("certificate subject of the user, for the ads of pilots; nothing reads it yet")
    ] = ""


class Site(_Table, frozen=True):
    banned: Annotated[bool, Setting("true: no job starts there")] = False
    job_types: Annotated[
        tuple[str, ...] | None, Setting("the job types that the site takes; absent: all")
    ] = None


class Ce(_Table, frozen=True):
    site: Annotated[str, Setting("the site that it belongs to")]
    type: Annotated[CeType, Setting("how pilots are started: local (processes of this machine)")] = "local"
    owners: Annotated[
        Owners,
        Setting("home: pilots there serve only the owner of the home folder; any: anybody, one owner each"),
    ] = "home"
    setup: Annotated[str, Setting("setup that its pilots offer")] = ""
    processors: Annotated[
        int, Setting("cores that pilots may use together; 0: all that this program may use", 0, 10**6)
    ] = 0
    memory: Annotated[
        int, Setting("MB (2^20 bytes) that pilots may use together; 0: all of the machine", *COUNT)
    ] = 0
    tags: Annotated[
        tuple[str, ...], Setting("tags that its pilots offer, beside the tags that they detect on the node")
    ] = ()
    required_tags: Annotated[tuple[str, ...], Setting("tags that a job must have to start there")] = ()
    cpu_power: Annotated[float, Setting("reference cores per core", 1e-6, 1e6)] = 1.0
    wall: Annotated[
        float,
        Setting(
            "seconds that a pilot may live, up to 35 of which are kept for its start and end: jobs of the CPU bucket"
            " 5000 s need a wall of 5035 (with cpu_power 1)",
            1e-3,
            100 * YEAR,
        ),
    ] = 604800.0
    idle: Annotated[float, Setting("seconds without work after which a pilot leaves", *SECONDS)] = 5.0
    lease: Annotated[
        float,
        Setting("seconds for which a pilot's jobs stay its own while nothing is heard of it", 1e-3, YEAR),
    ] = 3600.0
    heartbeat: Annotated[float, Setting("seconds between two signs of life of a pilot", 1e-3, YEAR)] = 5.0
    quantum: Annotated[
        float,
        Setting(
            "seconds for which a pilot that serves one owner at a time goes on with that owner before the draw is"
            " among all again; if it is another one's turn the pilot leaves, and one for that owner is started",
            1e-3,
            100 * YEAR,
        ),
    ] = 60.0


class Matching(_Table, frozen=True):
    rule: Annotated[Rule, Setting("document (highest CPU bucket first, rand()/priority) or proportional")] = (
        "document"
    )
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


class Jobs(_Table, frozen=True):
    max_reschedules: Annotated[
        int, Setting("how often a job is tried again after failures that are not its own", 0, 10**6)
    ] = 3
    retry_delay: Annotated[float, Setting("seconds between such a failure and the next try", *SECONDS)] = 10.0
    offer_timeout: Annotated[
        float,
        Setting("seconds after which an offer that is not confirmed goes back to its queue", 1e-3, YEAR),
    ] = 300.0
    max_input_file: Annotated[int, Setting("bytes of one input file", *BYTES)] = 1_000_000_000
    max_input_sandbox: Annotated[int, Setting("bytes of all input files of a submission", *BYTES)] = (
        2_000_000_000
    )
    max_output_file: Annotated[int, Setting("bytes of one output file", *BYTES)] = 10_000_000_000
    max_waiting_per_owner: Annotated[int, Setting("jobs of one owner that may wait", *COUNT)] = 2_000_000


class LimitEntry(_Table, frozen=True):
    attribute: Annotated[str, Setting(f"attribute of the task queue: {', '.join(ATTRIBUTES)}")]
    value: Annotated[str, Setting("its value")]
    site: Annotated[str, Setting("the site where the limit holds; empty: everywhere")] = ""
    ce: Annotated[str, Setting("the CE where the limit holds; empty: all")] = ""
    running: Annotated[int | None, Setting("at most so many such jobs at a time", 0, 10**9)] = None
    delay: Annotated[float, Setting("seconds between two starts of such jobs", *SECONDS)] = 0.0
    burst: Annotated[int, Setting("starts that may be saved up", 1, 10**9)] = 1


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
        Setting(
            "seconds for which the use of each day is kept, at least the longest time_span", 0.0, 20 * YEAR
        ),
    ] = 34560000.0


DAYS_365 = 31536000.0


class Retention(_Table, frozen=True):
    hot: Annotated[
        float,
        Setting(
            "seconds after its end for which a job stays in the table of those that wait and run", *SECONDS
        ),
    ] = 3600.0
    jobs: Annotated[
        float,
        Setting(
            "seconds after its end for which a job, its submission and its description can be looked at",
            *SECONDS,
        ),
    ] = DAYS_365
    outputs: Annotated[
        float,
        Setting(
            "seconds after a job's end for which its output files, standard output and error are kept",
            *SECONDS,
        ),
    ] = DAYS_365 / 2
    attempts: Annotated[
        float | None,
        Setting(
            "seconds after their end for which tries are kept, at least accounting.history and retention.jobs;"
            " absent: two years, or the longer of these",
            *SECONDS,
        ),
    ] = None
    """None: two years, or longer where accounting.history or `jobs` is."""
    events: Annotated[
        float,
        Setting(
            "seconds for which the steps of jobs and pilots, and acts of administrators, are kept", *SECONDS
        ),
    ] = DAYS_365
    pilots: Annotated[
        float,
        Setting(
            "seconds after its end for which a pilot and its log are kept, at least the longest ces.*.wall",
            *SECONDS,
        ),
    ] = 7776000.0
    uploads: Annotated[
        float, Setting("seconds for which an input file is kept that no submission names", *SECONDS)
    ] = 2592000.0
    reasons: Annotated[float, Setting("seconds for which is kept what a queue waited for", *SECONDS)] = (
        DAYS_365
    )


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
    platforms: Annotated[
        dict[str, tuple[str, ...]], Setting("platforms whose jobs a node of this platform can run as well")
    ] = {}

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
        return max(2 * DAYS_365, self.accounting.history, self.retention.jobs) if said is None else said

    def pilots_kept(self) -> float:
        """Seconds after their end. One that was given up may report for as long as it may live."""
        return max([self.retention.pilots, *(ce.wall for ce in self.ces.values())])

    def compatible(self, platform: str) -> frozenset[str]:
        """The platforms whose jobs a node of `platform` can run, itself included."""
        return frozenset({platform, *self.platforms.get(platform, ())})

    def limit_list(self) -> tuple[Limit, ...]:
        return tuple(Limit(**msgspec.structs.asdict(entry)) for entry in self.limits)
