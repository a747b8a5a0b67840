"""Options of CEs that are Slurm clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.setting import Setting


class SlurmOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of Slurm"
    own_endpoints: ClassVar[str] = (
        "Slurm's commands try every SlurmctldHost of slurm.conf themselves; another cluster is a CE with its own"
        " [ces.NAME.slurm] conf"
    )

    conf: Annotated[
        str,
        Setting(
            "absolute path of the slurm.conf of its cluster, on the server's machine and its nodes; empty: SLURM_CONF"
            " of the server, or the system's own"
        ),
    ] = ""
    partition: Annotated[str, Setting("partition of its pilots; empty: the default one of the cluster")] = ""
    account: Annotated[str, Setting("account that its pilots are charged to")] = ""
    qos: Annotated[str, Setting("quality of service of its pilots")] = ""
    constraint: Annotated[
        str, Setting("node features that its pilots need, as for `sbatch --constraint`")
    ] = ""
    gres: Annotated[str, Setting("generic resources of each pilot, as for `sbatch --gres`")] = ""
    reservation: Annotated[str, Setting("reservation that its pilots use")] = ""
    log_folder: Annotated[
        str, Setting("folder on the nodes for the output of pilots; empty: the output is thrown away")
    ] = ""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.conf and (not self.conf.startswith("/") or "\0" in self.conf):
            yield "conf", "conf must be an absolute path, such as /etc/slurm/slurm.conf"
