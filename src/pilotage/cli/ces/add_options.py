"""The options of `pilotage ce add`."""

from __future__ import annotations

from typing import Annotated

from pilotage.cli.parser import CommandArgument, CommandOption

TypeArgument = Annotated[
    str,
    CommandArgument("slurm, sge, arc or another batch system, or local (this machine)", "TYPE"),
]
NameOption = Annotated[str | None, CommandOption("Name of the CE; default: TYPE", "NAME")]
SiteOption = Annotated[str, CommandOption("Site of the CE; default: the only site of the policy", "SITE")]
OwnersOption = Annotated[
    str, CommandOption("Whose jobs run there: the owner of the home, or all", "home|any")
]

ReachOption = Annotated[
    str,
    CommandOption("Where the batch system's commands run; default: on the server's machine", '"ssh HOST"'),
]
RelayOption = Annotated[
    str,
    CommandOption(
        "Let pilots reach the server through the host of --reach, by its own name or as HOST", "auto|HOST"
    ),
]

# Keys of [ces.NAME.TYPE]

PartitionOption = Annotated[str, CommandOption("Partition or queue; default: that of the cluster", "NAME")]
UrlOption = Annotated[
    str,
    CommandOption("ARC: address of the CE, such as https://ce.example.org:443/arex", "URL", names="--url"),
]
ConfOption = Annotated[
    str, CommandOption("Slurm: slurm.conf of the cluster; default: that of the server", "FILE")
]
AccountOption = Annotated[str, CommandOption("Account to charge", "NAME")]
QosOption = Annotated[str, CommandOption("Slurm: quality of service", "NAME")]
ConstraintOption = Annotated[str, CommandOption("Slurm: node features", "TEXT")]
LogFolderOption = Annotated[
    str, CommandOption("Existing folder on nodes and server for pilots' output", "DIR")
]
SetOption = Annotated[
    list[str] | None,
    CommandOption("Further key of [ces.NAME.TYPE]; may be repeated", "KEY=VALUE", names="--set"),
]

# The size and the number of its pilots

ProcessorsOption = Annotated[
    int | None, CommandOption("Cores of each pilot; for local: of all pilots, 0 for all", "N", min=0)
]
MemoryOption = Annotated[int | None, CommandOption("Memory of each pilot; for local: of all", "MB", min=0)]
WallOption = Annotated[
    str | None, CommandOption("Lifetime of a pilot, such as 12h; default: up to a day", "TIME")
]
MaxWaitingOption = Annotated[
    int | None, CommandOption("Pilots that may wait in a batch system; default 5", "N", min=0)
]
MaxRunningOption = Annotated[
    int | None, CommandOption("Pilots of a batch system at the same time; default 20", "N", min=0)
]

DryRunOption = Annotated[bool, CommandOption("Show the change of the policy without applying it")]
