"""The options of `submit`: what they say of the job, and how it is submitted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from pilotage.cli.option_groups import OptionGroup

Values = list[str] | None
"""Of an option that may be repeated; None: it was not given."""


def _repeatable(*names: str, metavar: str, text: str) -> object:
    return typer.Option(*names, metavar=metavar, help=text + "; may be repeated")


@dataclass(frozen=True, kw_only=True)
class JobOptions(OptionGroup):
    """What the command line says of one job; None and "" mean that it says nothing."""

    name: Annotated[str, typer.Option("--name", help="Name of the job; %s is filled for each")] = ""
    job_group: Annotated[str, typer.Option("--job-group", help="A word to find the jobs by")] = ""
    sites: Annotated[Values, _repeatable("--site", metavar="SITE", text="Run only there")] = None
    banned_sites: Annotated[Values, _repeatable("--ban-site", metavar="SITE", text="Not there")] = None
    platforms: Annotated[Values, _repeatable("--platform", metavar="NAME", text="Of this platform")] = None
    tags: Annotated[Values, _repeatable("--tag", metavar="TAG", text="Only on nodes with it")] = None
    cpu_time: Annotated[
        str,
        typer.Option(
            "--cpu-time", metavar="TIME", help="CPU time of a core: 90s, 2h; a bare number: seconds"
        ),
    ] = ""
    wall_time: Annotated[
        str,
        typer.Option(
            "--wall-time", metavar="TIME", help="Longest wall time: 90s, 2h, or 1:30 and 1-12 as in Slurm"
        ),
    ] = ""
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory needed: 2GB, 1500MB")] = ""
    processors: Annotated[int | None, typer.Option("--processors", min=1, help="Cores")] = None
    priority: Annotated[int | None, typer.Option("--priority", help="Among your own jobs, 0 to 10")] = None
    inputs: Annotated[
        Values,
        _repeatable(
            "--input", "-i", metavar="FILE", text="File or folder: PATH, PATH=NAME, shared:PATH or a URL"
        ),
    ] = None
    outputs: Annotated[
        Values, _repeatable("--output", "-o", metavar="NAME", text="File to bring back: a name or a pattern")
    ] = None
    environment: Annotated[Values, _repeatable("--env", metavar="K=V", text="Environment variable")] = None
    export: Annotated[
        str,
        typer.Option(
            "--export",
            metavar="NONE|ALL|NAMES",
            help="Variables of this shell that the job gets: A,B=value,C",
        ),
    ] = ""
    setup: Annotated[
        Values, _repeatable("--setup", metavar="LINE", text="Shell line run first: module load ...")
    ] = None
    container: Annotated[str, typer.Option("--container", metavar="IMAGE", help="Run in this image")] = ""
    requirements: Annotated[
        str, typer.Option("--requirements", metavar="EXPR", help="A ClassAd expression on the node")
    ] = ""
    job_type: Annotated[str, typer.Option("--job-type", metavar="TYPE", help="The type of the job")] = ""
    retries: Annotated[int | None, typer.Option("--retries", min=0, help="Tries after a failure")] = None
    on_cutoff: Annotated[
        str,
        typer.Option(
            "--on-cutoff", metavar="continue|stop", help="What to do when the server is away for long"
        ),
    ] = ""
    count: Annotated[int | None, typer.Option("--count", min=1, help="Number of jobs; %s is 0, 1, 2 ...")] = (
        None
    )
    params: Annotated[
        Values, _repeatable("--param", metavar="NAME=A,B", text="A job for each value, %(NAME)s in arguments")
    ] = None
    params_from: Annotated[
        Path | None, typer.Option("--params-from", metavar="FILE", help="A job for each line; %s is the line")
    ] = None

    @property
    def parametric(self) -> bool:
        return self.count is not None or bool(self.params) or self.params_from is not None

    def given_options(self) -> list[str]:
        """The names of the fields that were given."""
        return [field.name for field in fields(self) if getattr(self, field.name) not in (None, "", [])]


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(OptionGroup):
    """How it is submitted."""

    group: Annotated[str, typer.Option("--group", help="Submit as a member of this group")] = ""
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="FILE",
            help="A job for each row of CSV or JSON Lines, %(NAME)s a column; - reads it",
        ),
    ] = ""
    key: Annotated[
        str, typer.Option("--key", help="The same key again makes no more jobs; goes on with a table")
    ] = ""
    no_inputs: Annotated[
        bool,
        typer.Option("--no-inputs", help="Send no files but those of --input, whatever the command names"),
    ] = False
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the jobs; exit code 1 if one fails")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent and the warnings, and submit nothing")
    ] = False
