"""The options of `submit`: fields of the job description, and options of the submission."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from pilotage.cli.option_groups import OptionGroup
from pilotage.cli.parser import CommandOption

Values = list[str] | None
"""Values of a repeatable option; None: not given."""


def _repeatable(text: str, metavar: str, *, names: str = "") -> object:
    return CommandOption(f"{text}; may be repeated", metavar, names=names)


@dataclass(frozen=True, kw_only=True)
class JobOptions(OptionGroup):
    """Options that set fields of the job description; None and "" mean not given."""

    name: Annotated[
        str, CommandOption("Job name; may contain placeholders such as %s", "NAME", may_be_empty=True)
    ] = ""
    job_group: Annotated[
        str, CommandOption("Label for selecting the jobs, as --job-group of status", "LABEL")
    ] = ""
    sites: Annotated[Values, _repeatable("Run only at this site", "SITE", names="--site")] = None
    banned_sites: Annotated[Values, _repeatable("Do not run at this site", "SITE", names="--ban-site")] = None
    platforms: Annotated[Values, _repeatable("Require this platform", "NAME", names="--platform")] = None
    tags: Annotated[Values, _repeatable("Require a node with this tag", "TAG", names="--tag")] = None
    cpu_time: Annotated[
        str, CommandOption("CPU time per core: 90s, 2h; a plain number is seconds", "TIME")
    ] = ""
    wall_time: Annotated[
        str, CommandOption("Maximum wall time: 90s, 2h; 1:30 and 1-12 as in Slurm", "TIME")
    ] = ""
    warn: Annotated[
        str, CommandOption("Send SIGUSR1 this long before the job is stopped for lack of time", "TIME")
    ] = ""
    memory: Annotated[str, CommandOption("Required memory: 2GB, 1500MB", "SIZE")] = ""
    disk: Annotated[str, CommandOption("Free disk that the job needs: 20GB, 500MB", "SIZE")] = ""
    processors: Annotated[int | None, CommandOption("Number of cores", "N", min=1)] = None
    priority: Annotated[
        int | None,
        CommandOption(
            "Priority among your own jobs: 0 to 10, 10 goes first; under the rule dirac only more often", "N"
        ),
    ] = None
    mail_type: Annotated[
        str, CommandOption("Mail at the end and at the first failure: end,fail", "EVENTS")
    ] = ""
    mail_user: Annotated[str, CommandOption("The address for mail; default: your own", "ADDRESS")] = ""
    inputs: Annotated[
        Values,
        _repeatable(
            "Input file or folder: PATH, PATH=NAME, shared:PATH, job:ID/OUTPUT or a URL",
            "FILE",
            names="--input -i",
        ),
    ] = None
    outputs: Annotated[
        Values, _repeatable("Output file to store: a name or a pattern", "NAME", names="--output -o")
    ] = None
    environment: Annotated[Values, _repeatable("Environment variable", "K=V", names="--env")] = None
    here: Annotated[
        bool, CommandOption("Run in place: in this folder, at CEs that share it, without copies of files")
    ] = False
    chdir: Annotated[str, CommandOption("Run in place in this folder, as --here", "DIR")] = ""
    stdout_file: Annotated[
        str,
        CommandOption(
            "In place: file for standard output, and error; %j %A %a %x %u %N as in Slurm",
            "FILE",
            names="--stdout",
        ),
    ] = ""
    stderr_file: Annotated[
        str, CommandOption("In place: file for standard error", "FILE", names="--stderr")
    ] = ""
    open_mode: Annotated[
        str, CommandOption("In place: append to these files, or empty them", "append|truncate")
    ] = ""
    export: Annotated[
        str,
        CommandOption("Copy environment variables of this shell to the job: A,B=value,C", "NONE|ALL|NAMES"),
    ] = ""
    setup: Annotated[Values, _repeatable("Shell command to run before the job: module load ...", "LINE")] = (
        None
    )
    container: Annotated[str, CommandOption("Container image to run the job in", "IMAGE")] = ""
    requirements: Annotated[str, CommandOption("ClassAd expression that the node must satisfy", "EXPR")] = ""
    job_type: Annotated[str, CommandOption("Job type, matched against the job types of a CE", "TYPE")] = ""
    retries: Annotated[
        int | None, CommandOption("Maximum number of retries after the command fails", "N", min=0)
    ] = None
    on_cutoff: Annotated[
        str, CommandOption("Continue or stop the job if the server is unreachable for long", "continue|stop")
    ] = ""
    after: Annotated[Values, _repeatable("Start after these jobs have ended: 12,15 or s:12", "IDS")] = None
    after_ok: Annotated[Values, _repeatable("Start after these are Done, else be Skipped", "IDS")] = None
    after_fail: Annotated[
        Values, _repeatable("Start after these have ended and are not Done, else be Skipped", "IDS")
    ] = None
    after_each: Annotated[
        Values,
        CommandOption(
            "Start job k after job k of submission N is Done; both have the same number of jobs", "s:N"
        ),
    ] = None
    hold: Annotated[bool, CommandOption("Hold the jobs: they run after `pilotage release`")] = False
    count: Annotated[
        int | None, CommandOption("Number of jobs; %s is replaced by 0, 1, 2 ...", "N", min=1)
    ] = None
    array: Annotated[
        str,
        CommandOption(
            "One job per number: 0-99, 1-100:2, 1,5-8; 0-99%10: at most 10 at once. %s is the number",
            "RANGES",
        ),
    ] = ""
    parallel: Annotated[
        int | None, CommandOption("Run at most N jobs of the submission at once", "N", min=1)
    ] = None
    params: Annotated[
        Values, _repeatable("One job per value; %(NAME)s is replaced by it", "NAME=A,B", names="--param")
    ] = None
    params_from: Annotated[
        Path | None, CommandOption("One job per line of FILE; %s is replaced by the line", "FILE")
    ] = None

    @property
    def parametric(self) -> bool:
        return self.count is not None or bool(self.array) or bool(self.params) or self.params_from is not None

    def given_options(self) -> list[str]:
        """Names of the fields that were given."""
        return [
            field.name for field in fields(self) if getattr(self, field.name) not in (None, "", [], False)
        ]


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(OptionGroup):
    """Options of the submission that do not belong to the job description."""

    group: Annotated[str, CommandOption("Submit as a member of this group", "GROUP")] = ""
    table: Annotated[
        str,
        CommandOption(
            "One job per row of a CSV or JSON Lines file (- for standard input); %(NAME)s is a column", "FILE"
        ),
    ] = ""
    key: Annotated[
        str,
        CommandOption(
            "Idempotency key: repeating the command with it creates no more jobs, and resumes --table", "KEY"
        ),
    ] = ""
    no_inputs: Annotated[
        bool, CommandOption("Send only the files of --input, no files named in the command")
    ] = False
    wait: Annotated[bool, CommandOption("Wait until the jobs have ended; exit code 1 if one fails")] = False
    parsable: Annotated[bool, CommandOption("Print the job ids and nothing else: 12 or 12-40")] = False
    dry_run: Annotated[bool, CommandOption("Print the request and the server's warnings; submit nothing")] = (
        False
    )
