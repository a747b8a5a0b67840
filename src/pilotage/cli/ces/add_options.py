"""The options of `pilotage ce add`."""

from __future__ import annotations

from typing import Annotated

from pilotage.cli.parser import CommandArgument, CommandOption

TypeArgument = Annotated[
    str,
    CommandArgument(metavar="TYPE", help="slurm, sge, arc or another batch system, or local (this machine)"),
]
NameOption = Annotated[
    str | None, CommandOption("--name", metavar="NAME", help="Name of the CE; default: TYPE")
]
SiteOption = Annotated[
    str, CommandOption("--site", metavar="SITE", help="Site of the CE; default: the only site of the policy")
]
OwnersOption = Annotated[
    str,
    CommandOption("--owners", metavar="home|any", help="Whose jobs run there: the owner of the home, or all"),
]

ReachOption = Annotated[
    str,
    CommandOption(
        "--reach",
        metavar='"ssh HOST"',
        help="Where the batch system's commands run; default: on the server's machine",
    ),
]
RelayOption = Annotated[
    str,
    CommandOption(
        "--relay",
        metavar="auto|HOST",
        help="Let pilots reach the server through the host of --reach, by its own name or as HOST",
    ),
]

# Keys of [ces.NAME.TYPE]

PartitionOption = Annotated[
    str, CommandOption("--partition", metavar="NAME", help="Partition or queue; default: that of the cluster")
]
UrlOption = Annotated[
    str,
    CommandOption(
        "--url", metavar="URL", help="ARC: address of the CE, such as https://ce.example.org:443/arex"
    ),
]
ConfOption = Annotated[
    str,
    CommandOption(
        "--conf", metavar="FILE", help="Slurm: slurm.conf of the cluster; default: that of the server"
    ),
]
AccountOption = Annotated[str, CommandOption("--account", metavar="NAME", help="Account to charge")]
QosOption = Annotated[str, CommandOption("--qos", metavar="NAME", help="Slurm: quality of service")]
ConstraintOption = Annotated[str, CommandOption("--constraint", metavar="TEXT", help="Slurm: node features")]
LogFolderOption = Annotated[
    str,
    CommandOption(
        "--log-folder", metavar="DIR", help="Existing folder on nodes and server for pilots' output"
    ),
]
SetOption = Annotated[
    list[str] | None,
    CommandOption("--set", metavar="KEY=VALUE", help="Further key of [ces.NAME.TYPE]; may be repeated"),
]

# The size and the number of its pilots

ProcessorsOption = Annotated[
    int | None,
    CommandOption(
        "--processors", metavar="N", min=0, help="Cores of each pilot; for local: of all pilots, 0 for all"
    ),
]
MemoryOption = Annotated[
    int | None,
    CommandOption("--memory", min=0, metavar="MB", help="Memory of each pilot; for local: of all"),
]
WallOption = Annotated[
    str | None,
    CommandOption("--wall", metavar="TIME", help="Lifetime of a pilot, such as 12h; default: up to a day"),
]
MaxWaitingOption = Annotated[
    int | None,
    CommandOption(
        "--max-waiting", metavar="N", min=0, help="Pilots that may wait in a batch system; default 5"
    ),
]
MaxRunningOption = Annotated[
    int | None,
    CommandOption(
        "--max-running", metavar="N", min=0, help="Pilots of a batch system at the same time; default 20"
    ),
]

DryRunOption = Annotated[
    bool, CommandOption("--dry-run", help="Show the change of the policy without applying it")
]
