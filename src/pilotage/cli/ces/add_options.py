"""The options of `pilotage ce add`."""

from __future__ import annotations

from typing import Annotated

import typer

TypeArgument = Annotated[
    str, typer.Argument(metavar="TYPE", help="slurm, sge or another batch system, or local (this machine)")
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Name of the CE; default: TYPE")
]
SiteOption = Annotated[
    str, typer.Option("--site", metavar="SITE", help="Site of the CE; default: the only site of the policy")
]
OwnersOption = Annotated[
    str,
    typer.Option("--owners", metavar="home|any", help="Whose jobs run there: the owner of the home, or all"),
]

# Keys of [ces.NAME.TYPE]

PartitionOption = Annotated[
    str, typer.Option("--partition", metavar="NAME", help="Partition or queue; default: that of the cluster")
]
ConfOption = Annotated[
    str,
    typer.Option(
        "--conf", metavar="FILE", help="Slurm: slurm.conf of the cluster; default: that of the server"
    ),
]
AccountOption = Annotated[str, typer.Option("--account", metavar="NAME", help="Account to charge")]
QosOption = Annotated[str, typer.Option("--qos", metavar="NAME", help="Slurm: quality of service")]
ConstraintOption = Annotated[str, typer.Option("--constraint", metavar="TEXT", help="Slurm: node features")]
LogFolderOption = Annotated[
    str,
    typer.Option(
        "--log-folder", metavar="DIR", help="Existing folder on nodes and server for pilots' output"
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Further key of [ces.NAME.TYPE]; may be repeated"),
]

# The size and the number of its pilots

ProcessorsOption = Annotated[
    int | None,
    typer.Option("--processors", min=0, help="Cores of each pilot; for local: of all pilots, 0 for all"),
]
MemoryOption = Annotated[
    int | None,
    typer.Option("--memory", min=0, metavar="MB", help="Memory of each pilot; for local: of all"),
]
WallOption = Annotated[
    str | None,
    typer.Option("--wall", metavar="TIME", help="Lifetime of a pilot, such as 12h; default: up to a day"),
]
MaxWaitingOption = Annotated[
    int | None,
    typer.Option("--max-waiting", min=0, help="Pilots that may wait in a batch system; default 5"),
]
MaxRunningOption = Annotated[
    int | None,
    typer.Option("--max-running", min=0, help="Pilots of a batch system at the same time; default 20"),
]

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the change of the policy without applying it")
]
