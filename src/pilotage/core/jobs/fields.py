"""The fields of a job description as data: their names, kinds, defaults and meanings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from pilotage.core.jobs.description import JobDescription

LOG_LEVELS: Final = ("DEBUG", "VERBOSE", "INFO", "WARN", "ERROR", "FATAL", "ALWAYS")


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` names how a value is read (`reading.READERS`); `selects_queue`: jobs that differ in it wait apart.

    `has_placeholders`: placeholders of parameters are replaced in it.
    """

    name: str
    jdl: tuple[str, ...]
    kind: str
    meaning: str
    unit: str = ""
    selects_queue: bool = False
    has_placeholders: bool = False
    choices: tuple[str, ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    """What to do instead of some values that are no choice."""
    low: int = 0
    high: int = 2**31 - 1

    @property
    def default(self) -> Any:
        """The default, `MISSING` for the field that must be given."""
        return DEFAULTS[self.name]


DEFAULTS: Final[dict[str, Any]] = {one.name: one.default for one in fields(JobDescription)}


def _sets(name: str, jdl: tuple[str, ...], meaning: str) -> Field:
    return Field(name, jdl, "names", meaning, selects_queue=True)


FIELDS: Final[tuple[Field, ...]] = (
    Field(
        "executable",
        ("Executable",),
        "text",
        "The program: a path, or a name found in PATH.",
        has_placeholders=True,
    ),
    Field(
        "arguments",
        ("Arguments",),
        "arguments",
        "Its arguments: a list, or one string that is split as a shell would, quotes and all.",
        has_placeholders=True,
    ),
    Field(
        "environment",
        ("Environment", "ExecutionEnvironment"),
        "environment",
        "Variables set for the program: a mapping, or a list of `NAME=value`.",
        has_placeholders=True,
    ),
    Field(
        "setup_lines",
        ("SetupLines",),
        "lines",
        "Shell lines run before the program, in its shell: `module load …`, `conda activate …`. "
        "Placeholders are not replaced in them.",
    ),
    Field("container", ("Container",), "text", "Image that the program runs in: a path or a URI."),
    Field(
        "input_sandbox",
        ("InputSandbox",),
        "inputs",
        "Files the program finds in its folder: `path` is sent along, `shared:/path` lies on a file system "
        "the node sees too, `http(s)://` and `file://` are fetched by the node. In YAML also "
        "`{path, mode, url, name, executable}`.",
        has_placeholders=True,
    ),
    Field(
        "output_sandbox",
        ("OutputSandbox",),
        "paths",
        "Files to bring back: names or patterns.",
        has_placeholders=True,
    ),
    Field(
        "std_output", ("StdOutput",), "text", "Name of the file for standard output.", has_placeholders=True
    ),
    Field("std_error", ("StdError",), "text", "Name of the file for standard error.", has_placeholders=True),
    Field("job_name", ("JobName",), "text", "A name, for people.", has_placeholders=True),
    Field("job_group", ("JobGroup",), "text", "A name for jobs that belong together."),
    Field("job_type", ("JobType",), "text", "Sites may take some types only.", selects_queue=True),
    Field(
        "user_priority",
        ("Priority", "UserPriority"),
        "integer",
        "The owner's own ordering among their own jobs; higher goes first.",
        high=10,
    ),
    Field(
        "cpu_time",
        ("CPUTime",),
        "seconds",
        "CPU time needed, of a reference core; 0: the shortest queue.",
        unit="s",
        selects_queue=True,
    ),
    Field(
        "wall_time",
        ("WallTime",),
        "seconds",
        "The program is stopped after this long; 0: when the pilot must.",
        unit="s",
    ),
    Field(
        "memory",
        ("Memory", "MinRAM"),
        "megabytes",
        "Memory needed. 1 MB is 2^20 bytes, 1 GB 1024 MB, as batch systems count.",
        unit="MB",
        selects_queue=True,
    ),
    Field(
        "processors",
        ("NumberOfProcessors", "MinNumberOfProcessors", "Processors"),
        "integer",
        "Cores needed, all on one node.",
        selects_queue=True,
        low=1,
        high=100_000,
    ),
    Field(
        "max_processors",
        ("MaxNumberOfProcessors", "MaxProcessors"),
        "integer",
        "Cores the program can make use of; 0: just those needed.",
        high=100_000,
    ),
    Field(
        "whole_node",
        ("WholeNode",),
        "boolean",
        "Wants a node to itself: adds the tag `WholeNode`.",
        selects_queue=True,
    ),
    _sets("tags", ("Tags", "Tag"), "What the node must offer beyond the above, `GPU` for example."),
    _sets("sites", ("Site", "Sites"), "Where it may run; none, or `ANY`: anywhere."),
    _sets("banned_sites", ("BannedSites", "BannedSite"), "Where it must not run."),
    _sets("grid_ces", ("GridCE", "GridCEs"), "The computing elements it may run behind; none: all."),
    _sets(
        "grid_middlewares",
        ("GridMiddleware", "GridMiddlewares"),
        "The kinds of computing element to ask for pilots; none: all.",
    ),
    _sets(
        "platforms",
        ("Platform", "Platforms", "LHCbPlatform", "LHCbPlatforms"),
        "The platforms it runs on; none, or `ANY`: all.",
    ),
    Field(
        "pilot_types",
        ("PilotTypes", "PilotType"),
        "names",
        "The pilots it accepts; none: all.",
        selects_queue=True,
        choices=("private",),
        hints=(("generic", "ForceGeneric (force_generic) asks for generic pilots only"),),
    ),
    _sets(
        "submit_pools",
        ("SubmitPools", "SubmitPool"),
        "The pools of computing elements to ask for pilots; none: all.",
    ),
    Field(
        "force_generic",
        ("ForceGeneric",),
        "boolean",
        "Only generic pilots are sent for it.",
        selects_queue=True,
    ),
    Field(
        "setup",
        ("Setup",),
        "text",
        "The DIRAC setup it belongs to; a pilot must be of the same.",
        selects_queue=True,
    ),
    Field(
        "requirements",
        ("Requirements",),
        "expression",
        "ClassAd expression that must be true of the node's offer.",
        selects_queue=True,
    ),
    Field(
        "host_requirements",
        ("HostRequirements", "CERequirements"),
        "expression",
        "ClassAd expression passed on to the batch system when a pilot is asked for.",
        selects_queue=True,
    ),
    Field(
        "output_se", ("OutputSE",), "text", "Storage element that the computing element should be close to."
    ),
    Field(
        "log_level", ("LogLevel",), "choice", "How much the pilot writes about this job.", choices=LOG_LEVELS
    ),
    Field(
        "on_cutoff",
        ("OnCutoff",),
        "choice",
        "Whether the program goes on while the pilot has lost the server.",
        choices=("continue", "stop"),
    ),
    Field(
        "retries",
        ("Retries",),
        "integer",
        "How often it is tried again after the program exits non-zero.",
        high=100,
    ),
)

BY_NAME: Final = {one.name: one for one in FIELDS}
BY_JDL: Final = {jdl.lower(): one for one in FIELDS for jdl in one.jdl}

# Attributes that DIRAC or gLite act upon and Pilotage does not: refused, since silence would be a promise.
_NOT_MOVED: Final = "is not supported yet: nothing would be moved"
UNSUPPORTED: Final[dict[str, str]] = {
    "inputdata": _NOT_MOVED,
    "outputdata": _NOT_MOVED,
    "outputpath": _NOT_MOVED,
    "inputdatapolicy": _NOT_MOVED,
    "outputsandboxdesturi": _NOT_MOVED,
    "inputsandboxbaseuri": _NOT_MOVED,
    "outputsandboxbasedesturi": _NOT_MOVED,
    "maxram": "is not supported yet: memory is asked for with Memory and not capped",
    "rank": "is not supported: which computing element is asked first is the sites' policy",
    "retrycount": "is not supported: use Retries",
    "shallowretrycount": "is not supported: lost attempts are tried again by themselves",
    "virtualorganisation": "is not a matter of the job: the group's VO is in the policy",
    "owner": "is not a matter of the job: it is who submits",
    "ownergroup": "is not a matter of the job: it is chosen when logging in",
}
