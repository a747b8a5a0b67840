"""The options of `submit`: fields of the job description, and options of the submission."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from pilotage.cli.option_groups import OptionGroup
from pilotage.cli.parser import CommandOption

Values = list[str] | None
"""Values of a repeatable option; None: not given."""


def _repeatable(*names: str, metavar: str, text: str) -> object:
    return CommandOption(*names, metavar=metavar, help=text + "; may be repeated")


@dataclass(frozen=True, kw_only=True)
class JobOptions(OptionGroup):
    """Options that set fields of the job description; None and "" mean not given."""

    name: Annotated[
        str, CommandOption("--name", metavar="NAME", help="Job name; may contain placeholders such as %s")
    ] = ""
    job_group: Annotated[
        str,
        CommandOption(
            "--job-group", metavar="LABEL", help="Label for selecting the jobs, as --job-group of status"
        ),
    ] = ""
    sites: Annotated[Values, _repeatable("--site", metavar="SITE", text="Run only at this site")] = None
    banned_sites: Annotated[
        Values, _repeatable("--ban-site", metavar="SITE", text="Do not run at this site")
    ] = None
    platforms: Annotated[Values, _repeatable("--platform", metavar="NAME", text="Require this platform")] = (
        None
    )
    tags: Annotated[Values, _repeatable("--tag", metavar="TAG", text="Require a node with this tag")] = None
    cpu_time: Annotated[
        str,
        CommandOption(
            "--cpu-time", metavar="TIME", help="CPU time per core: 90s, 2h; a plain number is seconds"
        ),
    ] = ""
    wall_time: Annotated[
        str,
        CommandOption(
            "--wall-time", metavar="TIME", help="Maximum wall time: 90s, 2h; 1:30 and 1-12 as in Slurm"
        ),
    ] = ""
    warn: Annotated[
        str,
        CommandOption(
            "--warn", metavar="TIME", help="Send SIGUSR1 this long before the job is stopped for lack of time"
        ),
    ] = ""
    memory: Annotated[str, CommandOption("--memory", metavar="SIZE", help="Required memory: 2GB, 1500MB")] = (
        ""
    )
    disk: Annotated[
        str, CommandOption("--disk", metavar="SIZE", help="Free disk that the job needs: 20GB, 500MB")
    ] = ""
    processors: Annotated[
        int | None, CommandOption("--processors", metavar="N", min=1, help="Number of cores")
    ] = None
    priority: Annotated[
        int | None,
        CommandOption(
            "--priority", metavar="N", help="Priority among your own jobs: 0 to 10, 10 starts first"
        ),
    ] = None
    mail_type: Annotated[
        str,
        CommandOption(
            "--mail-type", metavar="EVENTS", help="Mail at the end and at the first failure: end,fail"
        ),
    ] = ""
    mail_user: Annotated[
        str, CommandOption("--mail-user", metavar="ADDRESS", help="The address for mail; default: your own")
    ] = ""
    inputs: Annotated[
        Values,
        _repeatable(
            "--input",
            "-i",
            metavar="FILE",
            text="Input file or folder: PATH, PATH=NAME, shared:PATH, job:ID/OUTPUT or a URL",
        ),
    ] = None
    outputs: Annotated[
        Values,
        _repeatable("--output", "-o", metavar="NAME", text="Output file to store: a name or a pattern"),
    ] = None
    environment: Annotated[Values, _repeatable("--env", metavar="K=V", text="Environment variable")] = None
    here: Annotated[
        bool,
        CommandOption(
            "--here", help="Run in place: in this folder, at CEs that share it, without copies of files"
        ),
    ] = False
    chdir: Annotated[
        str, CommandOption("--chdir", metavar="DIR", help="Run in place in this folder, as --here")
    ] = ""
    stdout_file: Annotated[
        str,
        CommandOption(
            "--stdout",
            metavar="FILE",
            help="In place: file for standard output, and error; %j %A %a %x %u %N as in Slurm",
        ),
    ] = ""
    stderr_file: Annotated[
        str, CommandOption("--stderr", metavar="FILE", help="In place: file for standard error")
    ] = ""
    open_mode: Annotated[
        str,
        CommandOption(
            "--open-mode", metavar="append|truncate", help="In place: append to these files, or empty them"
        ),
    ] = ""
    export: Annotated[
        str,
        CommandOption(
            "--export",
            metavar="NONE|ALL|NAMES",
            help="Copy environment variables of this shell to the job: A,B=value,C",
        ),
    ] = ""
    setup: Annotated[
        Values,
        _repeatable("--setup", metavar="LINE", text="Shell command to run before the job: module load ..."),
    ] = None
    container: Annotated[
        str, CommandOption("--container", metavar="IMAGE", help="Container image to run the job in")
    ] = ""
    requirements: Annotated[
        str,
        CommandOption("--requirements", metavar="EXPR", help="ClassAd expression that the node must satisfy"),
    ] = ""
    job_type: Annotated[
        str,
        CommandOption("--job-type", metavar="TYPE", help="Job type, matched against the job types of a CE"),
    ] = ""
    retries: Annotated[
        int | None,
        CommandOption(
            "--retries", metavar="N", min=0, help="Maximum number of retries after the command fails"
        ),
    ] = None
    on_cutoff: Annotated[
        str,
        CommandOption(
            "--on-cutoff",
            metavar="continue|stop",
            help="Continue or stop the job if the server is unreachable for long",
        ),
    ] = ""
    after: Annotated[
        Values, _repeatable("--after", metavar="IDS", text="Start after these jobs have ended: 12,15 or s:12")
    ] = None
    after_ok: Annotated[
        Values, _repeatable("--after-ok", metavar="IDS", text="Start after these are Done, else be Skipped")
    ] = None
    after_fail: Annotated[
        Values,
        _repeatable(
            "--after-fail",
            metavar="IDS",
            text="Start after these have ended and are not Done, else be Skipped",
        ),
    ] = None
    after_each: Annotated[
        Values,
        CommandOption(
            "--after-each",
            metavar="s:N",
            help="Start job k after job k of submission N is Done; both have the same number of jobs",
        ),
    ] = None
    hold: Annotated[
        bool, CommandOption("--hold", help="Hold the jobs: they run after `pilotage release`")
    ] = False
    count: Annotated[
        int | None,
        CommandOption("--count", metavar="N", min=1, help="Number of jobs; %s is replaced by 0, 1, 2 ..."),
    ] = None
    array: Annotated[
        str,
        CommandOption(
            "--array",
            metavar="RANGES",
            help="One job per number: 0-99, 1-100:2, 1,5-8; 0-99%10: at most 10 at once. %s is the number",
        ),
    ] = ""
    parallel: Annotated[
        int | None,
        CommandOption("--parallel", metavar="N", min=1, help="Run at most N jobs of the submission at once"),
    ] = None
    params: Annotated[
        Values,
        _repeatable("--param", metavar="NAME=A,B", text="One job per value; %(NAME)s is replaced by it"),
    ] = None
    params_from: Annotated[
        Path | None,
        CommandOption(
            "--params-from", metavar="FILE", help="One job per line of FILE; %s is replaced by the line"
        ),
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

    group: Annotated[
        str, CommandOption("--group", metavar="GROUP", help="Submit as a member of this group")
    ] = ""
    table: Annotated[
        str,
        CommandOption(
            "--table",
            metavar="FILE",
            help="One job per row of a CSV or JSON Lines file (- for standard input); %(NAME)s is a column",
        ),
    ] = ""
    key: Annotated[
        str,
        CommandOption(
            "--key",
            metavar="KEY",
            help="Idempotency key: repeating the command with it creates no more jobs, and resumes --table",
        ),
    ] = ""
    no_inputs: Annotated[
        bool,
        CommandOption("--no-inputs", help="Send only the files of --input, no files named in the command"),
    ] = False
    wait: Annotated[
        bool, CommandOption("--wait", help="Wait until the jobs have ended; exit code 1 if one fails")
    ] = False
    parsable: Annotated[
        bool, CommandOption("--parsable", help="Print the job ids and nothing else: 12 or 12-40")
    ] = False
    dry_run: Annotated[
        bool, CommandOption("--dry-run", help="Print the request and the server's warnings; submit nothing")
    ] = False
