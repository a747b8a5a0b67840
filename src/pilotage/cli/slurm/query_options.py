"""The options of squeue, sacct, scancel, scontrol and sinfo, with their meanings here."""

from __future__ import annotations

from typing import Final

from pilotage.cli.slurm.options import OptionTable, SlurmOption, Takes, ignored, refused, understood

_CLUSTERS: Final = "the CEs of the pool take the place of clusters"
_ONE_POOL: Final = "a server has one pool"
_RESERVATIONS: Final = "jobs have no reservations here"
_AGAIN: Final = "call the command again; `pilotage wait` and the change feed wait without asking"
_SITE: Final = "the batch systems of the CEs keep these records of pilots"


def _common(*, help_names: str = "help") -> tuple[list[SlurmOption], ...]:
    return (
        understood(f"{help_names} usage", "Print the options", Takes.NOTHING),
        understood("version/V", "Print the version", Takes.NOTHING),
    )


_SILENT: Final = ignored("verbose/v", "there is nothing more to tell", Takes.NOTHING)


SQUEUE_OPTIONS: Final = OptionTable(
    "squeue",
    (
        *_common(),
        _SILENT,
        understood("account/A", "Only these groups", variable="SQUEUE_ACCOUNT"),
        understood("array/r", "A row for each task", Takes.NOTHING, variable="SQUEUE_ARRAY"),
        understood("format/o", "Columns by letters: `%.18i %j`", variable="SQUEUE_FORMAT"),
        understood("Format/O", "Columns by names: `jobid:10,state`", variable="SQUEUE_FORMAT2"),
        understood("jobs/j", "Only these jobs", Takes.OPTIONAL),
        understood("json", "One JSON document", Takes.OPTIONAL),
        understood("long/l", "More columns", Takes.NOTHING),
        understood("me", "Only your jobs", Takes.NOTHING),
        understood("name/n", "Only jobs with these names", variable="SQUEUE_NAMES"),
        understood("nodelist/w", "Only jobs on these hosts"),
        understood("noheader/h", "No titles", Takes.NOTHING),
        understood("partition/p", "Only these partitions", variable="SQUEUE_PARTITION"),
        understood("sort/S", "Order by columns: `-i,t`", variable="SQUEUE_SORT"),
        understood("start", "Only pending jobs", Takes.NOTHING),
        understood("states/t", "Only these states, or `all`", variable="SQUEUE_STATES"),
        understood("user/u", "Only jobs of these users", variable="SQUEUE_USERS"),
        ignored("all/a hide", "no partition is hidden", Takes.NOTHING),
        ignored("clusters/M", _CLUSTERS),
        ignored("federation local sibling", _ONE_POOL, Takes.NOTHING),
        ignored("noconvert", "sizes are printed as they are", Takes.NOTHING),
        ignored("priority/P", "a job is listed once", Takes.NOTHING),
        refused("iterate/i", _AGAIN),
        refused("licenses/L", "there are no licences here"),
        refused("qos/q", "jobs are not found by QOS"),
        refused("reservation/R", _RESERVATIONS),
        refused("steps/s", "steps are not recorded; a job has its batch step only", Takes.OPTIONAL),
        refused("yaml", "write --json", Takes.OPTIONAL),
    ),
    permutes=True,
    selects=True,
)
SACCT_OPTIONS: Final = OptionTable(
    "sacct",
    (
        *_common(help_names="help/h"),
        _SILENT,
        understood("accounts/A", "Only these groups", Takes.LIST),
        understood("allocations/X", "No rows of steps", Takes.NOTHING),
        understood("allusers/a", "Jobs of all users whom you may see", Takes.NOTHING),
        understood("array", "A row for each task", Takes.NOTHING),
        understood("brief/b", "Number, state and exit code", Takes.NOTHING),
        understood("delimiter", "Between columns of -p and -P"),
        understood("endtime/E", "Jobs that were submitted before"),
        understood("format/o", "Columns: `JobID%20,State`", Takes.LIST, variable="SACCT_FORMAT"),
        understood("helpformat/e", "Print the names of columns", Takes.NOTHING),
        understood("jobs/j", "Only these jobs", Takes.LIST),
        understood("json", "One JSON document", Takes.OPTIONAL),
        understood("long/l", "More columns", Takes.NOTHING),
        understood("name", "Only jobs with these names", Takes.LIST),
        understood("nodelist/N", "Only jobs on these hosts"),
        understood("noheader/n", "No titles", Takes.NOTHING),
        understood("parsable/p", "`|` after each column", Takes.NOTHING),
        understood("parsable2/P", "`|` between columns", Takes.NOTHING),
        understood("partition/r", "Only these partitions", Takes.LIST),
        understood("starttime/S", "Jobs that had not ended before; default today"),
        understood("state/s", "Only these states", Takes.LIST),
        understood("user/u", "Only jobs of these users", Takes.LIST),
        ignored("allclusters/L", _CLUSTERS, Takes.NOTHING),
        ignored("clusters/M", _CLUSTERS),
        ignored("duplicates/D", "a job keeps its number when it is tried again", Takes.NOTHING),
        ignored("env-vars", "variables are not listed", Takes.NOTHING),
        ignored("federation local", _ONE_POOL, Takes.NOTHING),
        ignored("noconvert", "sizes are printed as they are", Takes.NOTHING),
        ignored("truncate/T", "times are printed as they are", Takes.NOTHING),
        ignored("units", "sizes are printed as they are"),
        ignored("use-local-uid", "names of users are those of Pilotage", Takes.NOTHING),
        refused("associations/x file/f flags/F wckeys/W", _SITE),
        refused("batch-script/B", "`pilotage status` shows the description", Takes.NOTHING),
        refused("completion/c", _SITE, Takes.NOTHING),
        refused("constraints/C", "jobs are not found by constraints"),
        refused("gid/g group", "groups are names: --accounts"),
        refused("ncpus/I nnodes/i", "jobs are not found by size"),
        refused("qos/q", "jobs are not found by QOS"),
        refused("reason/R", "jobs are not found by reason"),
        refused("timelimit-max/K timelimit-min/k", "jobs are not found by time limit"),
        refused("uid", "users are names: --user"),
        refused("yaml", "write --json", Takes.OPTIONAL),
    ),
    permutes=True,
    selects=True,
)
SCANCEL_OPTIONS: Final = OptionTable(
    "scancel",
    (
        *_common(),
        understood("account/A", "Only jobs of this group"),
        understood("ctld", "The same as without", Takes.NOTHING),
        understood("interactive/i", "Ask for each job", Takes.NOTHING),
        understood("jobname/n", "Only jobs with this name"),
        understood("me", "All of your jobs", Takes.NOTHING),
        understood("name", "Only jobs with this name"),
        understood("nodelist/w", "Only jobs on these hosts"),
        understood("partition/p", "Only jobs of this partition"),
        understood("quiet/Q", "The same as without: ended jobs are no error", Takes.NOTHING),
        understood("signal/s", "KILL or TERM: the jobs are cancelled. Others are refused"),
        understood("state/t", "Only PENDING or RUNNING jobs"),
        understood("user/u", "All jobs of this user"),
        understood("verbose/v", "Tell each job that is cancelled", Takes.NOTHING),
        ignored("batch/b", "the whole job is cancelled", Takes.NOTHING),
        ignored("clusters/M", _CLUSTERS),
        ignored("cron/c", "there are no cron jobs here", Takes.NOTHING),
        ignored("full/f", "the whole job is always cancelled", Takes.NOTHING),
        ignored("hurry/H", "there are no burst buffers here", Takes.NOTHING),
        ignored("sibling", _ONE_POOL),
        refused("qos/q", "jobs are not found by QOS"),
        refused("reservation/R", _RESERVATIONS),
        refused("wckey", _SITE),
    ),
    permutes=True,
    selects=True,
)
SCONTROL_OPTIONS: Final = OptionTable(
    "scontrol",
    (
        *_common(help_names="help/h"),
        _SILENT,
        understood("oneliner/o", "One line for each object", Takes.NOTHING),
        understood("quiet/Q", "No messages", Takes.NOTHING),
        ignored("all/a hide", "no partition is hidden", Takes.NOTHING),
        ignored("cluster/M clusters", _CLUSTERS),
        ignored("details/d", "all that is known is printed", Takes.NOTHING),
        ignored("federation/F local sibling", _ONE_POOL, Takes.NOTHING),
        ignored("future", "nodes are those of pilots", Takes.NOTHING),
        refused("json", "squeue and sacct have --json", Takes.OPTIONAL),
        refused("uid/u", "a token names the user"),
        refused("yaml", "squeue has --json", Takes.OPTIONAL),
    ),
    permutes=True,
    selects=True,
)
SINFO_OPTIONS: Final = OptionTable(
    "sinfo",
    (
        *_common(),
        _SILENT,
        understood("format/o", "Columns by letters", variable="SINFO_FORMAT"),
        understood("Format/O", "Columns by names"),
        understood("long/l", "More columns", Takes.NOTHING),
        understood("Node/N", "A row for each host", Takes.NOTHING),
        understood("nodes/n", "Only these hosts"),
        understood("noheader/h", "No titles", Takes.NOTHING),
        understood("partition/p", "Only these partitions", variable="SINFO_PARTITION"),
        understood("states/t", "Only hosts in these states, such as `idle,mix`"),
        understood("summarize/s", "A row for each partition", Takes.NOTHING),
        ignored("all/a hide", "no partition is hidden", Takes.NOTHING),
        ignored("cluster/M clusters", _CLUSTERS),
        ignored("exact/e", "sizes are not grouped", Takes.NOTHING),
        ignored("federation/F local", _ONE_POOL, Takes.NOTHING),
        ignored("noconvert", "sizes are printed as they are", Takes.NOTHING),
        ignored("responding/r", "hosts are those of live pilots", Takes.NOTHING),
        ignored("sort/S", "rows are in the order of their names"),
        refused("dead/d", "hosts are those of live pilots", Takes.NOTHING),
        refused("iterate/i", _AGAIN),
        refused("json yaml", "squeue has --json", Takes.OPTIONAL),
        refused("list-reasons/R", "`pilotage ce list` tells why no pilots start", Takes.NOTHING),
        refused("reservation/T", _RESERVATIONS, Takes.NOTHING),
    ),
    permutes=True,
    selects=True,
)
