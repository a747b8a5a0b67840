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
    jdl: tuple[str, ...]
    kind: str
    meaning: str
    unit: str = ""
    selects_queue: bool = False
    has_placeholders: bool = False
    choices: tuple[str, ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    """(value, hint) for values that are refused although users may expect them."""
    low: int = 0
    high: int = 2**31 - 1

    @property
    def default(self) -> Any:
        """The default, or `MISSING` for a required field."""
        return DEFAULTS[self.name]


DEFAULTS: Final[dict[str, Any]] = {field.name: field.default for field in fields(JobDescription)}


def _name_list(name: str, jdl: tuple[str, ...], meaning: str) -> Field:
    return Field(name, jdl, "names", meaning, selects_queue=True)


FIELDS: Final[tuple[Field, ...]] = (
    Field(
        "executable",
        ("Executable",),
        "program",
        "The program: a path, or a name to be found in PATH.",
        has_placeholders=True,
    ),
    Field(
        "arguments",
        ("Arguments",),
        "arguments",
        "Arguments of the program: a list, or one string that is split like a shell command line.",
        has_placeholders=True,
    ),
    Field(
        "environment",
        ("Environment", "ExecutionEnvironment"),
        "environment",
        "Environment variables of the program: a mapping, or a list of `NAME=value`.",
        has_placeholders=True,
    ),
    Field(
        "setup_lines",
        ("SetupLines",),
        "lines",
        "Shell lines that run before the program in the same shell: `module load …`, `conda activate …`. "
        "Placeholders are not replaced.",
    ),
    Field("container", ("Container",), "text", "Container image in which the program runs: a path or a URI."),
    Field(
        "input_sandbox",
        ("InputSandbox",),
        "inputs",
        "Files that the program finds in its folder. `path` is uploaded; `shared:/path` is on a file system "
        "that the node mounts too; the node downloads `http(s)://` and `file://`; `job:12/result.json=in.json` is an"
        " output of job 12, which must be Done first unless another condition names it. In YAML also "
        "`{path, mode, url, name, executable}`.",
        has_placeholders=True,
    ),
    Field(
        "output_sandbox",
        ("OutputSandbox",),
        "paths",
        "Output files to store: names or patterns.",
        has_placeholders=True,
    ),
    Field(
        "std_output", ("StdOutput",), "text", "Name of the file for standard output.", has_placeholders=True
    ),
    Field("std_error", ("StdError",), "text", "Name of the file for standard error.", has_placeholders=True),
    Field("job_name", ("JobName",), "text", "A name for display.", has_placeholders=True),
    Field("job_group", ("JobGroup",), "text", "A label to group related jobs."),
    Field(
        "job_type",
        ("JobType",),
        "text",
        "Type of the job; a site may accept certain types only.",
        selects_queue=True,
    ),
    Field(
        "user_priority",
        ("Priority", "UserPriority"),
        "integer",
        "Priority among the jobs of the same owner; higher numbers go first.",
        high=10,
    ),
    Field(
        "cpu_time",
        ("CPUTime",),
        "seconds",
        "Required CPU time on a reference core; 0: the lowest CPU bucket.",
        unit="s",
        selects_queue=True,
    ),
    Field(
        "wall_time",
        ("WallTime",),
        "seconds",
        "The program is stopped after this time, and starts only in pilots that have it left; 0: it is stopped when its"
        " pilot ends.",
        unit="s",
        selects_queue=True,
    ),
    Field(
        "warn",
        ("Warn",),
        "seconds",
        "SIGUSR1 is sent this long before the program is stopped for its wall time or its pilot's end; 0: none.",
        unit="s",
    ),
    Field(
        "memory",
        ("Memory", "MinRAM"),
        "megabytes",
        "Required memory. 1 MB is 2^20 bytes and 1 GB is 1024 MB, as in batch systems.",
        unit="MB",
        selects_queue=True,
    ),
    Field(
        "disk",
        ("Disk",),
        "megabytes",
        "Free disk that the program's folder needs on the node. Jobs are not stopped for writing more.",
        unit="MB",
        selects_queue=True,
    ),
    Field(
        "processors",
        ("NumberOfProcessors", "MinNumberOfProcessors", "Processors"),
        "integer",
        "Required cores, all on one node.",
        selects_queue=True,
        low=1,
        high=100_000,
    ),
    Field(
        "max_processors",
        ("MaxNumberOfProcessors", "MaxProcessors"),
        "integer",
        "Maximum number of cores that the program can use. No effect yet: a job gets `processors` cores.",
        high=100_000,
    ),
    Field(
        "whole_node",
        ("WholeNode",),
        "boolean",
        "Requests a whole node: adds the tag `WholeNode`.",
        selects_queue=True,
    ),
    _name_list("tags", ("Tags", "Tag"), "Tags that the node must offer, such as `GPU`."),
    _name_list("sites", ("Site", "Sites"), "Sites where the job may run; none or `ANY`: all."),
    _name_list("banned_sites", ("BannedSites", "BannedSite"), "Sites where the job must not run."),
    _name_list("grid_ces", ("GridCE", "GridCEs"), "Computing elements where the job may run; none: all."),
    _name_list(
        "grid_middlewares",
        ("GridMiddleware", "GridMiddlewares"),
        "Types of computing element where pilots may be submitted for the job; none: all.",
    ),
    _name_list(
        "platforms",
        ("Platform", "Platforms", "LHCbPlatform", "LHCbPlatforms"),
        "Platforms on which the program runs; none or `ANY`: all.",
    ),
    Field(
        "pilot_types",
        ("PilotTypes", "PilotType"),
        "names",
        "Types of pilot that may run the job; none: all.",
        selects_queue=True,
        choices=("private",),
        hints=(("generic", "set ForceGeneric (force_generic) to require generic pilots"),),
    ),
    _name_list(
        "submit_pools",
        ("SubmitPools", "SubmitPool"),
        "Pools of computing elements where pilots may be submitted for the job; none: all.",
    ),
    Field(
        "force_generic",
        ("ForceGeneric",),
        "boolean",
        "Only generic pilots may run the job.",
        selects_queue=True,
    ),
    Field(
        "setup",
        ("Setup",),
        "text",
        "DIRAC setup; only pilots of the same setup run the job.",
        selects_queue=True,
    ),
    Field(
        "requirements",
        ("Requirements",),
        "expression",
        "ClassAd expression that must be true for the node's offer.",
        selects_queue=True,
    ),
    Field(
        "host_requirements",
        ("HostRequirements", "CERequirements"),
        "expression",
        "ClassAd expression over the host: it must be true for the node's offer, as Requirements, and is passed to the"
        " batch system when a pilot is submitted.",
        selects_queue=True,
    ),
    Field(
        "output_se",
        ("OutputSE",),
        "text",
        "Storage element for the output: the job runs only at computing elements that are close to it, or that do not"
        " tell their storage elements.",
        selects_queue=True,
    ),
    Field(
        "log_level",
        ("LogLevel",),
        "choice",
        "Log level of the program; the job finds it in `PILOTAGE_LOG_LEVEL`.",
        choices=LOG_LEVELS,
    ),
    Field(
        "on_cutoff",
        ("OnCutoff",),
        "choice",
        "Whether the program continues or stops while its pilot cannot reach the server.",
        choices=("continue", "stop"),
    ),
    Field(
        "retries",
        ("Retries",),
        "integer",
        "How often the job is tried again after the program exits with an error.",
        high=100,
    ),
    Field(
        "after",
        ("After",),
        "parents",
        "Jobs and submissions that must end first, however they end: `12`, or `s:12` for all jobs of a submission.",
    ),
    Field(
        "after_ok",
        ("AfterOk",),
        "parents",
        "Jobs and submissions that must be Done first. If one of them cannot be, the job is Skipped.",
    ),
    Field(
        "after_fail",
        ("AfterFail",),
        "parents",
        "Jobs and submissions that must end first without being Done. If one is Done, the job is Skipped.",
    ),
    Field(
        "after_each",
        ("AfterEach",),
        "parents",
        "A submission with as many jobs, as `s:12`: job k waits until job k of that submission is Done.",
    ),
    Field(
        "hold",
        ("Hold",),
        "boolean",
        "Whether the jobs begin as Held: they run when they are released.",
    ),
    Field(
        "parallel",
        ("Parallel",),
        "integer",
        "The most jobs of the submission that run at once; 0: no limit.",
        high=1_000_000,
    ),
    Field(
        "folder",
        ("Folder",),
        "text",
        "Absolute path of the folder where the job runs in place: at computing elements that share it, without copies"
        " of files. Empty: the job runs in a folder of its own.",
        selects_queue=True,
    ),
    Field(
        "stdout_file",
        ("StdoutFile",),
        "text",
        "File for standard output of a job with `folder`, and for standard error unless `stderr_file` names another. "
        + FILE_PATTERNS,
    ),
    Field(
        "stderr_file",
        ("StderrFile",),
        "text",
        "File for standard error of a job with `folder`, as `stdout_file`.",
    ),
    Field(
        "open_mode",
        ("OpenMode",),
        "choice",
        "Whether `stdout_file` and `stderr_file` are emptied when the job starts, or appended to.",
        choices=(TRUNCATE, APPEND),
    ),
    Field(
        "folder_mark",
        ("FolderMark",),
        "text",
        "How a node knows `folder` again, as `pilotage submit --here` writes it. A node where it differs does not run"
        " the job; empty: it only needs to exist.",
    ),
    Field(
        "umask",
        ("Umask",),
        "text",
        "Rights that files of a job with `folder` do not get, in octal digits as of the command umask; empty: 077.",
    ),
    Field(
        "mail_type",
        ("MailType",),
        "names",
        "Events of the submission that mail tells, each once: `end` of all its jobs, and `fail` of the first job"
        " that is Failed.",
        choices=("end", "fail"),
    ),
    Field(
        "mail_user",
        ("MailUser",),
        "text",
        "The address for mail; empty: that of the owner in the policy.",
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
