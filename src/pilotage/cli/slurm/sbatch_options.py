"""The options of sbatch, with their meanings here."""

from __future__ import annotations

from typing import Final

from pilotage.cli.slurm.options import OptionTable, Takes, ignored, refused, understood

_ONE_NODE: Final = "a job here runs on one node"
_LAYOUT: Final = "a job here runs on one node, and its pilot chooses the cores"
_OF_SITE: Final = "pilots hold the resources, so the batch system's accounting and priorities see pilots only"
_PLACED: Final = "pilots decide when and where a job starts"

SBATCH_OPTIONS = OptionTable(
    "sbatch",
    (
        understood(
            "array/a", "Task numbers, such as `0-9`, `1-9:2`, `1,4` and `0-99%5`", variable="SBATCH_ARRAY_INX"
        ),
        understood("account/A", "The group of the jobs, if it is one of yours", variable="SBATCH_ACCOUNT"),
        understood("chdir/D", "Working folder of the jobs", variable="SBATCH_CHDIR"),
        understood("comment", "Stored with the job", variable="SBATCH_COMMENT"),
        understood(
            "constraint/C",
            "Tags that the node must offer: names with `&`, or `|`",
            variable="SBATCH_CONSTRAINT",
        ),
        understood("cpus-per-gpu", "Cores for each GPU", variable="SBATCH_CPUS_PER_GPU"),
        understood("cpus-per-task/c", "Cores of a task"),
        understood(
            "dependency/d",
            "`afterany`, `afterok`, `afternotok`, `aftercorr` and `singleton`, with commas between them",
        ),
        understood("error/e", "File for standard error", variable="SBATCH_ERROR"),
        understood("exclude/x", "Hosts that the job must not run on"),
        understood(
            "export", "Variables that the job gets: ALL, NONE, or names and values", variable="SBATCH_EXPORT"
        ),
        understood("gpus/G", "Number of GPUs, all on one node", variable="SBATCH_GPUS"),
        understood("gpus-per-node", "Number of GPUs", variable="SBATCH_GPUS_PER_NODE"),
        understood("gpus-per-task", "Number of GPUs for each task", variable="SBATCH_GPUS_PER_TASK"),
        understood("gres", "`gpu:N`: a tag of the node; other names too", variable="SBATCH_GRES"),
        understood("help/h usage", "Print the options", Takes.NOTHING),
        understood("hold/H", "The jobs are held until they are released", Takes.NOTHING),
        understood("input/i", "File for standard input", variable="SBATCH_INPUT"),
        understood("job-name/J", "Name of the jobs", variable="SBATCH_JOB_NAME"),
        understood("mail-type", "`END`, `FAIL` and `ALL`, of the submission as a whole; others send no mail"),
        understood("mail-user", "The address for mail; without `@` that of the policy"),
        understood("mem", "Memory of the node for the job; units K, M, G, T", variable="SBATCH_MEM_PER_NODE"),
        understood("mem-per-cpu", "Memory for each core", variable="SBATCH_MEM_PER_CPU"),
        understood("mem-per-gpu", "Memory for each GPU", variable="SBATCH_MEM_PER_GPU"),
        understood("nodelist/w", "One host that the job must run on"),
        understood("nodes/N", "Must be 1 or a range that begins with 1"),
        understood("ntasks/n", "Number of tasks, all on one node"),
        understood("ntasks-per-node", "Number of tasks"),
        understood("tasks-per-node", "Another name of --ntasks-per-node", means="ntasks-per-node"),
        understood("open-mode", "`append` or `truncate`", variable="SBATCH_OPEN_MODE"),
        understood(
            "output/o",
            "File for standard output; `%j %J %A %a %x %u %N %n %t %%` are replaced",
            variable="SBATCH_OUTPUT",
        ),
        understood("parsable", "Print the number of the job alone", Takes.NOTHING),
        understood(
            "partition/p",
            "Partitions of the policy; if it has none, CEs or sites",
            variable="SBATCH_PARTITION",
        ),
        understood("quiet/Q", "Print no notes", Takes.NOTHING),
        understood(
            "signal", "`[B:]SIGNAL[@SECONDS]`: sent this long before the end", variable="SBATCH_SIGNAL"
        ),
        understood(
            "test-only", "Check the job and submit nothing", Takes.NOTHING, variable="SBATCH_TEST_ONLY"
        ),
        understood("time/t", "The job is stopped after this time", variable="SBATCH_TIMELIMIT"),
        understood("tmp", "Free disk of the node"),
        understood("verbose/v", "Print what was sent", Takes.NOTHING),
        understood("version/V", "Print the version", Takes.NOTHING),
        understood(
            "wait/W",
            "Wait for the end; the exit code is the highest one of the jobs",
            Takes.NOTHING,
            variable="SBATCH_WAIT",
        ),
        understood("wrap", "A command in place of a script"),
        ignored("acctg-freq profile qos/q wckey", _OF_SITE, variable="SBATCH_*"),
        ignored("batch switches", _ONE_NODE),
        ignored("clusters/M", "the CEs of the pool take the place of clusters", variable="SBATCH_CLUSTERS"),
        ignored("contiguous", _ONE_NODE, Takes.NOTHING),
        ignored(
            "core-spec/S distribution/m gpu-bind gpu-freq gres-flags hint mem-bind network thread-spec"
            " threads-per-core",
            _LAYOUT,
            variable="SBATCH_*",
        ),
        ignored(
            "cores-per-socket cpu-freq extra-node-info/B mincpus ntasks-per-core ntasks-per-gpu ntasks-per-socket"
            " sockets-per-node",
            _LAYOUT,
        ),
        ignored("delay-boot", _PLACED),
        ignored(
            "exclusive",
            "a job shares its node with other jobs of the pool; ask for its cores",
            Takes.OPTIONAL,
            variable="SBATCH_EXCLUSIVE",
        ),
        ignored(
            "get-user-env",
            "the environment comes by --export",
            Takes.OPTIONAL,
            variable="SBATCH_GET_USER_ENV",
        ),
        ignored("ignore-pbs", "lines of PBS are never read", Takes.NOTHING, variable="SBATCH_IGNORE_PBS"),
        ignored("kill-on-invalid-dep", "a job whose condition cannot come true is always ended"),
        ignored("nice", "the policy and your own priority decide the order", Takes.OPTIONAL),
        ignored("no-kill/k", _ONE_NODE, Takes.OPTIONAL, variable="SBATCH_NO_KILL"),
        ignored(
            "no-requeue",
            "a job whose node is lost is always tried again, so write jobs that may run twice",
            Takes.NOTHING,
            variable="SBATCH_NO_REQUEUE",
        ),
        ignored("overcommit/O", _LAYOUT, Takes.NOTHING, variable="SBATCH_OVERCOMMIT"),
        ignored("oversubscribe/s", _LAYOUT, Takes.NOTHING),
        ignored("power", _PLACED, variable="SBATCH_POWER"),
        ignored("priority", "the policy and your own priority decide the order"),
        ignored("propagate", "the limits of the pilot hold for its jobs", Takes.OPTIONAL),
        ignored("reboot", _PLACED, Takes.NOTHING),
        ignored(
            "requeue",
            "a job whose node is lost is always tried again",
            Takes.NOTHING,
            variable="SBATCH_REQUEUE",
        ),
        ignored("spread-job use-min-nodes", _ONE_NODE, Takes.NOTHING, variable="SBATCH_*"),
        ignored("wait-all-nodes", _ONE_NODE, variable="SBATCH_WAIT_ALL_NODES"),
        refused("bb", "there are no burst buffers here"),
        refused("bbf", "there are no burst buffers here", variable="SBATCH_BURST_BUFFER"),
        refused("begin/b", "jobs cannot be delayed to a time; hold them and release them"),
        refused("cluster-constraint", "jobs do not choose clusters; use --partition"),
        refused(
            "container",
            "write `pilotage submit --container IMAGE`, or start the container in the script",
            variable="SBATCH_CONTAINER",
        ),
        refused("deadline", "there are no deadlines; use --time"),
        refused("export-file", "variables of a file are not read; use --export"),
        refused("gid uid", "a job runs as its pilot's account"),
        refused("gpus-per-socket", "GPUs are counted for the node", variable="SBATCH_GPUS_PER_SOCKET"),
        refused("licenses/L", "there are no licences here"),
        refused("nodefile/F", "jobs do not name lists of nodes; use --constraint"),
        refused(
            "reservation",
            "pilots hold the resources, so jobs cannot use a reservation",
            variable="SBATCH_RESERVATION",
        ),
    ),
    permutes=False,
)
