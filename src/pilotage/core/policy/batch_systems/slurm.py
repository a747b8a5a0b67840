"""Options of CEs that are Slurm clusters."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.setting import Setting


class SlurmOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of Slurm"
    own_endpoints: ClassVar[str] = "Slurm's commands try every SlurmctldHost of slurm.conf themselves"

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
