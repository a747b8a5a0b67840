"""The tables `ces.NAME` of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, cast

import msgspec

from pilotage.core.forwarding.table import ForwardTable
from pilotage.core.plug_ins import refuse
from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.core.policy.director import BATCH_POOL, LOCAL_POOL
from pilotage.core.policy.isolation import TrustSettings
from pilotage.core.policy.reach import SshReach, parse_reach
from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import COUNT, SECONDS, YEAR, Setting

OptionsType = TypeVar("OptionsType", bound=BatchOptions)
OptionsClass = type[OptionsType]
"""A name for the signatures of a class that has a field `type`."""
PilotType = Literal["private", "generic"]
if TYPE_CHECKING:
    CeType = str
    """How pilots are started; the name of the adapter."""
    _CE_TYPES = ""

AttributeValue = int | float | str | bool | tuple[str, ...]
"""The value of an attribute of an ad in the policy."""


class HostsEntry(PolicyTable, frozen=True):
    """Hosts of a CE whose attributes are equal."""

    count: Annotated[int, Setting("number of hosts; 0: as many as `hosts` has, at least one", 0, 10**6)] = 0
    attributes: Annotated[
        dict[str, AttributeValue],
        Setting(
            "their attributes, by GLUE name or a name of the site",
            -(10**15),
            10**15,
        ),
    ] = msgspec.field(default_factory=dict)
    hosts: Annotated[tuple[str, ...], Setting("their names in the batch system; empty: not known")] = ()

    @property
    def size(self) -> int:
        """The number of hosts."""
        return self.count or max(1, len(self.hosts))


class _CeSection(TrustSettings, frozen=True, kw_only=True):
    """The table `ces.NAME`. It has one more field for each batch system: the table of its options."""

    site: Annotated[str, Setting("the site of the CE")]
    type: Annotated[
        CeType, Setting(f"how pilots are started: local (processes of this machine), {_CE_TYPES}")
    ] = "local"
    reach: Annotated[
        str,
        Setting(
            'where the commands of its batch system run: "ssh HOST", over a connection that `pilotage ce login` opens;'
            " options may be -F, -J, -l and -p; empty: on the server's machine"
        ),
    ] = ""
    relay: Annotated[
        str,
        Setting(
            "relay on the host of `reach`, through which its pilots reach the server: HOST or HOST:PORT as its nodes"
            ' know it, or "auto" for the name of the host and a free port; empty: pilots reach the server directly'
        ),
    ] = ""
    setup: Annotated[str, Setting("setup that its pilots offer")] = ""
    proxy: Annotated[
        str, Setting("HTTP proxy for its pilots and payloads, http://HOST:PORT; empty: that of the node")
    ] = ""
    processors: Annotated[
        int, Setting("cores that all pilots together may use; 0: all cores available to the server", 0, 10**6)
    ] = 0
    memory: Annotated[
        int, Setting("MB (2^20 bytes) that all pilots together may use; 0: all memory of the machine", *COUNT)
    ] = 0
    tags: Annotated[
        tuple[str, ...], Setting("tags that its pilots offer, in addition to the tags detected on the node")
    ] = ()
    required_tags: Annotated[tuple[str, ...], Setting("tags that a job must have to start there")] = ()
    shared_folders: Annotated[
        tuple[str, ...],
        Setting(
            'folders that its nodes share with the machines where people submit, such as "/home": jobs in place run'
            ' there, for the person whose account its pilots have; "/": all folders'
        ),
    ] = ()
    cpu_power: Annotated[float, Setting("speed of a core, in reference cores", 1e-6, 1e6)] = 1.0
    wall: Annotated[
        float,
        Setting(
            "lifetime of a pilot in seconds; up to 35 s are reserved for its start and end, so jobs of the CPU bucket"
            " 5000 s need 5035 (with cpu_power 1)",
            1e-3,
            100 * YEAR,
        ),
    ] = 604800.0
    idle: Annotated[float, Setting("seconds without work after which a pilot ends", *SECONDS)] = 5.0
    lease: Annotated[
        float,
        Setting("seconds for which a silent pilot keeps its jobs", 1e-3, YEAR),
    ] = 3600.0
    heartbeat: Annotated[float, Setting("seconds between two heartbeats of a pilot", 1e-3, YEAR)] = 5.0
    quantum: Annotated[
        float,
        Setting(
            "seconds for which a pilot that serves one owner at a time continues with this owner before all owners take"
            " part in the draw; if another owner is drawn, the pilot ends and a pilot for that owner starts",
            1e-3,
            100 * YEAR,
        ),
    ] = 60.0
    pilot_processors: Annotated[int, Setting("cores of each pilot of a batch system", 1, 10**6)] = 1
    pilot_memory: Annotated[
        int, Setting("MB (2^20 bytes) of each pilot of a batch system; 0: the system's default", *COUNT)
    ] = 0
    pilot_disk: Annotated[
        int,
        Setting(
            "MB (2^20 bytes) of disk that the jobs of each pilot may ask for together, as far as its work folder has"
            " them free; 0: all free disk, which pilots on one host then share",
            *COUNT,
        ),
    ] = 0
    max_waiting: Annotated[
        int, Setting("pilots that may wait in the batch system at the same time", 0, 10**6)
    ] = 5
    max_running: Annotated[
        int, Setting("pilots that may wait or run in the batch system at the same time", 0, 10**6)
    ] = 20
    listing_period: Annotated[
        float, Setting("seconds between two listings of the batch system", 0.1, YEAR)
    ] = 60.0
    settle: Annotated[
        float,
        Setting(
            "seconds between two complete listings that prove a submission absent: at least twice the batch system's"
            " own time-outs",
            0.1,
            YEAR,
        ),
    ] = 120.0
    budget: Annotated[
        str,
        Setting(
            'core time that its pilots may use within any window, such as "20000 core-h / 30 d"; waiting and running'
            " pilots count with the wall time that they may still use; empty: no limit"
        ),
    ] = ""
    submit_rate: Annotated[float, Setting("submissions a second at most", 1e-3, 1000)] = 1.0
    max_failures: Annotated[
        int,
        Setting(
            "pilots of a batch system that fail alike, in a row and without a job, before nothing more is submitted;"
            " a change of the CE or `pilotage ce enable` ends this; 0: never",
            0,
            10**6,
        ),
    ] = 10
    pool: Annotated[
        str,
        Setting(
            f"submit pool of the CE; empty: {LOCAL_POOL} for a local CE, {BATCH_POOL} for a batch system"
        ),
    ] = ""
    middleware: Annotated[
        str, Setting("the CE's name in `GridMiddleware` of job descriptions; empty: its type")
    ] = ""
    pilot_types: Annotated[
        tuple[PilotType, ...],
        Setting("types of pilots that may be submitted there: private (bound to owner and group), generic"),
    ] = ("private", "generic")

    forward: Annotated[
        dict[str, str],
        Setting(
            "how the batch system says a condition over the attribute of hosts with this name, such as"
            ' GlueHostBenchmarkSI00 = "feature si00_{}"; docs/reference/forwarding.md has the syntax'
        ),
    ] = msgspec.field(default_factory=dict)
    residual: Annotated[
        Literal["forward", "explicit"],
        Setting(
            "forward: flags come from Requirements and HostRequirements of jobs; explicit: from HostRequirements alone"
        ),
    ] = "forward"
    host_selection: Annotated[
        Literal["forward", "match"],
        Setting(
            "forward: conditions over hosts are passed in native terms; match: the names of the hosts that fit are"
            " passed, where the batch system takes them"
        ),
    ] = "forward"
    forward_hook: Annotated[
        str,
        Setting(
            "absolute path of the site's own program on the server's machine that prints further native arguments for"
            " each submission; empty: none"
        ),
    ] = ""
    attributes: Annotated[
        dict[str, AttributeValue],
        Setting(
            "attributes of its ad, by GLUE name (such as GlueHostBenchmarkSI00) or a name of the site; each overrides"
            " the value that the batch system tells",
            -(10**15),
            10**15,
        ),
    ] = msgspec.field(default_factory=dict)
    homogeneous: Annotated[
        bool, Setting("true: all hosts are alike, so GlueHost* attributes of the CE hold for each of them")
    ] = False
    hosts: Annotated[
        tuple[HostsEntry, ...],
        Setting("classes of its hosts; they replace the classes that the batch system reports"),
    ] = ()
    information_period: Annotated[
        float, Setting("seconds between two questions to the batch system about its hosts and jobs", 1, YEAR)
    ] = 60.0
    information_expiry: Annotated[
        float,
        Setting(
            "seconds after which the answer has expired: then its state is unknown; 0: five periods",
            *SECONDS,
        ),
    ] = 0.0

    @property
    def information_lifetime(self) -> float:
        """Seconds from an answer about the CE's hosts and jobs to its expiry."""
        return self.information_expiry or 5 * self.information_period

    @property
    def forward_table(self) -> ForwardTable:
        """The native terms of its batch system. A local CE has none."""
        return ForwardTable() if self.type == "local" else self.batch_options().forwarding

    @property
    def submit_pool(self) -> str:
        return self.pool or (LOCAL_POOL if self.type == "local" else BATCH_POOL)

    @property
    def allowed_pilot_types(self) -> frozenset[str]:
        """Where payloads are not isolated and not all users trust each other, pilots are bound when submitted."""
        return frozenset(self.pilot_types) - ({"generic"} if self.binds_pilots else frozenset())

    def batch_options(self) -> BatchOptions:
        """The options of its own batch system. A local CE has none."""
        return cast(BatchOptions, getattr(self, self.type))

    @property
    def reaches(self) -> tuple[SshReach, ...]:
        """The hosts whose connections its director uses."""
        if self.reach:
            return (parse_reach(self.reach),)
        return () if self.type == "local" else self.batch_options().own_reaches

    def options_as(self, kind: OptionsClass[OptionsType]) -> OptionsType:
        """The options of its own batch system, for the adapter that knows their class."""
        options = self.batch_options()
        assert isinstance(options, kind), f"the options of {self.type} are {type(options).__name__}"
        return options

    @property
    def log_folder(self) -> str:
        """The folder for the output of pilots that nodes and server share; empty: there is none."""
        return "" if self.type == "local" or self.reach else self.batch_options().own_log_folder


if TYPE_CHECKING:

    class Ce(_CeSection, frozen=True):
        """A CE as the policy has it."""

else:
    refuse("batch_systems", BATCH_SYSTEMS, _CeSection.__struct_fields__)
    # The annotations above are read at the first use of the classes, and name these.
    CeType = Literal[("local", *BATCH_SYSTEMS)]
    _CE_TYPES = ", ".join(f"{name} ({options.meaning})" for name, options in BATCH_SYSTEMS.items())
    Ce = msgspec.defstruct(
        "Ce",
        [(name, options, options()) for name, options in BATCH_SYSTEMS.items()],
        bases=(_CeSection,),
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
