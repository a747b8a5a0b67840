"""The table of the job description's fields: names, kinds, defaults and meanings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from pilotage.core.jobs.description import APPEND, TRUNCATE, JobDescription

FILE_PATTERNS: Final = (
    "Relative to `folder`, or absolute. As in Slurm `%j` is the job, `%A` the first job of its submission, `%a` its"
    " array number, `%x` its name, `%u` its owner, `%N` its host and `%%` a percent sign; `%4j` has at least 4 digits."
)
LOG_LEVELS: Final = ("DEBUG", "VERBOSE", "INFO", "WARN", "ERROR", "FATAL", "ALWAYS")


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    `kind` selects the reader of its value (a key of `value_readers.READERS`). `selects_queue`: jobs that differ in this
    field wait in different task queues. `has_placeholders`: parameter placeholders are replaced in its value.
    """

    name: str
    kind: str
    meaning: str
    jdl_names: tuple[str, ...] = ()
    """Empty: the name in capitalized words, as `JobName` for `job_name`."""
    unit: str = ""
    selects_queue: bool = False
    has_placeholders: bool = False
    choices: tuple[str, ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    """(value, hint) for values that are refused although users may expect them."""
    low: int = 0
    high: int = 2**31 - 1

    @property
    def jdl(self) -> tuple[str, ...]:
        return self.jdl_names or ("".join(word.capitalize() for word in self.name.split("_")),)

    @property
    def default(self) -> Any:
        """The default, or `MISSING` for a required field."""
        return DEFAULTS[self.name]


DEFAULTS: Final[dict[str, Any]] = {field.name: field.default for field in fields(JobDescription)}


def _name_list(name: str, meaning: str, jdl_names: tuple[str, ...]) -> Field:
    return Field(name, "names", meaning, jdl_names, selects_queue=True)


FIELDS: Final[tuple[Field, ...]] = (
    Field(
        "executable", "program", "The program: a path, or a name to be found in PATH.", has_placeholders=True
    ),
    Field(
        "arguments",
        "arguments",
        "Arguments of the program: a list, or one string that is split like a shell command line.",
        has_placeholders=True,
    ),
    Field(
        "environment",
        "environment",
        "Environment variables of the program: a mapping, or a list of `NAME=value`.",
        jdl_names=("Environment", "ExecutionEnvironment"),
        has_placeholders=True,
    ),
    Field(
        "setup_lines",
        "lines",
        "Shell lines that run before the program in the same shell: `module load …`, `conda activate …`. "
        "Placeholders are not replaced.",
    ),
    Field("container", "text", "Container image in which the program runs: a path or a URI."),
    Field(
        "input_sandbox",
        "inputs",
        "Files that the program finds in its folder. `path` is uploaded; `shared:/path` is on a file system "
        "that the node mounts too; the node downloads `http(s)://` and `file://`; `job:12/result.json=in.json` is an"
        " output of job 12, which must be Done first unless another condition names it. In YAML also "
        "`{path, mode, url, name, executable}`.",
        has_placeholders=True,
    ),
    Field("output_sandbox", "paths", "Output files to store: names or patterns.", has_placeholders=True),
    Field("std_output", "text", "Name of the file for standard output.", has_placeholders=True),
    Field("std_error", "text", "Name of the file for standard error.", has_placeholders=True),
    Field("job_name", "text", "A name for display.", has_placeholders=True),
    Field("job_group", "text", "A label to group related jobs."),
    Field("job_type", "text", "Type of the job; a site may accept certain types only.", selects_queue=True),
    Field(
        "user_priority",
        "integer",
        "Priority among the jobs of the same owner and group; higher numbers go first. Under the rule dirac they only"
        " go more often.",
        jdl_names=("Priority", "UserPriority"),
        high=10,
    ),
    Field(
        "cpu_time",
        "seconds",
        "Required CPU time on a reference core; 0: the lowest CPU bucket.",
        jdl_names=("CPUTime",),
        unit="s",
        selects_queue=True,
    ),
    Field(
        "wall_time",
        "seconds",
        "The program is stopped after this time, and starts only in pilots that have it left; 0: it is stopped when its"
        " pilot ends.",
        unit="s",
        selects_queue=True,
    ),
    Field(
        "warn",
        "seconds",
        "SIGUSR1 is sent this long before the program is stopped for its wall time or its pilot's end; 0: none.",
        unit="s",
    ),
    Field(
        "memory",
        "megabytes",
        "Required memory. 1 MB is 2^20 bytes and 1 GB is 1024 MB, as in batch systems.",
        jdl_names=("Memory", "MinRAM"),
        unit="MB",
        selects_queue=True,
    ),
    Field(
        "disk",
        "megabytes",
        "Free disk that the program's folder needs on the node. Jobs are not stopped for writing more.",
        unit="MB",
        selects_queue=True,
    ),
    Field(
        "processors",
        "integer",
        "Required cores, all on one node.",
        jdl_names=("NumberOfProcessors", "MinNumberOfProcessors", "Processors"),
        selects_queue=True,
        low=1,
        high=100_000,
    ),
    Field(
        "max_processors",
        "integer",
        "Maximum number of cores that the program can use. No effect yet: a job gets `processors` cores.",
        jdl_names=("MaxNumberOfProcessors", "MaxProcessors"),
        high=100_000,
    ),
    Field("whole_node", "boolean", "Requests a whole node: adds the tag `WholeNode`.", selects_queue=True),
    _name_list("tags", "Tags that the node must offer, such as `GPU`.", jdl_names=("Tags", "Tag")),
    _name_list("sites", "Sites where the job may run; none or `ANY`: all.", jdl_names=("Site", "Sites")),
    _name_list("banned_sites", "Sites where the job must not run.", jdl_names=("BannedSites", "BannedSite")),
    _name_list(
        "grid_ces", "Computing elements where the job may run; none: all.", jdl_names=("GridCE", "GridCEs")
    ),
    _name_list(
        "grid_middlewares",
        "Types of computing element where pilots may be submitted for the job; none: all. Local CEs take no notice of"
        " it.",
        jdl_names=("GridMiddleware", "GridMiddlewares"),
    ),
    _name_list(
        "platforms",
        "Platforms on which the program runs; none or `ANY`: all.",
        jdl_names=("Platform", "Platforms", "LHCbPlatform", "LHCbPlatforms"),
    ),
    Field(
        "pilot_types",
        "names",
        "Types of pilot that may run the job; none: all.",
        jdl_names=("PilotTypes", "PilotType"),
        selects_queue=True,
        choices=("private",),
        hints=(("generic", "set ForceGeneric (force_generic) to require generic pilots"),),
    ),
    _name_list(
        "submit_pools",
        "Pools of computing elements where pilots may be submitted for the job; none: all.",
        jdl_names=("SubmitPools", "SubmitPool"),
    ),
    Field("force_generic", "boolean", "Only generic pilots may run the job.", selects_queue=True),
    Field("setup", "text", "DIRAC setup; only pilots of the same setup run the job.", selects_queue=True),
    Field(
        "requirements",
        "expression",
        "ClassAd expression that must be true for the node's offer.",
        selects_queue=True,
    ),
    Field(
        "host_requirements",
        "expression",
        "ClassAd expression over the host: it must be true for the node's offer, as Requirements, and is passed to the"
        " batch system when a pilot is submitted.",
        jdl_names=("HostRequirements", "CERequirements"),
        selects_queue=True,
    ),
    Field(
        "output_se",
        "text",
        "Storage element for the output: the job runs only at computing elements that are close to it, or that do not"
        " tell their storage elements.",
        jdl_names=("OutputSE",),
        selects_queue=True,
    ),
    Field(
        "log_level",
        "choice",
        "Log level of the program; the job finds it in `PILOTAGE_LOG_LEVEL`.",
        choices=LOG_LEVELS,
    ),
    Field(
        "on_cutoff",
        "choice",
        "Whether the program continues or stops while its pilot cannot reach the server.",
        choices=("continue", "stop"),
    ),
    Field(
        "retries",
        "integer",
        "How often the job is tried again after the program exits with an error.",
        high=100,
    ),
    Field(
        "after",
        "parents",
        "Jobs and submissions that must end first, however they end: `12`, or `s:12` for all jobs of a submission.",
    ),
    Field(
        "after_ok",
        "parents",
        "Jobs and submissions that must be Done first. If one of them cannot be, the job is Skipped.",
    ),
    Field(
        "after_fail",
        "parents",
        "Jobs and submissions that must end first without being Done. If one is Done, the job is Skipped.",
    ),
    Field(
        "after_each",
        "parents",
        "A submission with as many jobs, as `s:12`: job k waits until job k of that submission is Done.",
    ),
    Field("hold", "boolean", "Whether the jobs begin as Held: they run when they are released."),
    Field(
        "parallel",
        "integer",
        "The most jobs of the submission that run at once; 0: no limit.",
        high=1_000_000,
    ),
    Field(
        "folder",
        "text",
        "Absolute path of the folder where the job runs in place: at computing elements that share it, without copies"
        " of files. Empty: the job runs in a folder of its own.",
        selects_queue=True,
    ),
    Field(
        "stdout_file",
        "text",
        "File for standard output of a job with `folder`, and for standard error unless `stderr_file` names another. "
        + FILE_PATTERNS,
    ),
    Field("stderr_file", "text", "File for standard error of a job with `folder`, as `stdout_file`."),
    Field(
        "open_mode",
        "choice",
        "Whether `stdout_file` and `stderr_file` are emptied when the job starts, or appended to.",
        choices=(TRUNCATE, APPEND),
    ),
    Field(
        "folder_mark",
        "text",
        "How a node knows `folder` again, as `pilotage submit --here` writes it. A node where it differs does not run"
        " the job; empty: it only needs to exist.",
    ),
    Field(
        "umask",
        "text",
        "Rights that files of a job with `folder` do not get, in octal digits as of the command umask; empty: 077.",
    ),
    Field(
        "mail_type",
        "names",
        "Events of the submission that mail tells, each once: `end` of all its jobs, and `fail` of the first job"
        " that is Failed.",
        choices=("end", "fail"),
    ),
    Field(
        "mail_user", "text", "The addresses for mail, with commas; empty: that of the owner in the policy."
    ),
)

BY_NAME: Final = {field.name: field for field in FIELDS}
BY_JDL: Final = {jdl.lower(): field for field in FIELDS for jdl in field.jdl}

# Attributes with an effect in DIRAC or gLite but not in Pilotage: refused, because users would expect the effect.
_NOT_MOVED: Final = "is not supported yet: no data would be transferred"
UNSUPPORTED: Final[dict[str, str]] = {
    "inputdata": _NOT_MOVED,
    "outputdata": _NOT_MOVED,
    "outputpath": _NOT_MOVED,
    "inputdatapolicy": _NOT_MOVED,
    "outputsandboxdesturi": _NOT_MOVED,
    "inputsandboxbaseuri": _NOT_MOVED,
    "outputsandboxbasedesturi": _NOT_MOVED,
    "maxram": "is not supported yet: request memory with Memory; there is no upper limit",
    "requestdisk": "is not supported: use Disk instead; its numbers are MB, those of HTCondor's RequestDisk are KiB",
    "rank": "is not supported: the policy decides the order of computing elements",
    "retrycount": "is not supported: use Retries instead",
    "shallowretrycount": "is not supported: lost attempts are always tried again",
    "virtualorganisation": "cannot be set by a job: the policy defines the VO of each group",
    "owner": "cannot be set by a job: it is the submitting user",
    "ownergroup": "cannot be set by a job: it is chosen at login",
}
