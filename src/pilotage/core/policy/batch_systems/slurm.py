"""Options of CEs that are Slurm clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pilotage.core.forwarding.table import ForwardTable, HostSelection, NativeOption
from pilotage.core.policy.batch_options import BatchOptions, LogFolder
from pilotage.core.setting import Setting

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}"

_FORWARDING = ForwardTable(
    rules={"GlueCEPolicyMaxWallClockTime": "wall", "SlurmFeatures": "feature {}"},
    feature_option="--constraint",
    options={
        "--tmp": NativeOption("local disk space of a node in MB, TmpDisk in slurm.conf", "M"),
        "--cores-per-socket": NativeOption("cores of each socket of a node"),
    },
    has_wall=True,
    selection=HostSelection.EXCLUDE,
    selection_option="--exclude",
    hook_options={
        "--constraint": rf"{_NAME}([&|]{_NAME})*",
        "--exclude": rf"{_NAME}(,{_NAME})*",
        "--tmp": "[0-9]{1,12}[KMGT]?",
        "--cores-per-socket": "[0-9]{1,6}",
        "--sockets-per-node": "[0-9]{1,6}",
        "--partition": rf"{_NAME}(,{_NAME})*",
        "--qos": _NAME,
        "--reservation": _NAME,
        "--account": _NAME,
        "--gres": rf"{_NAME}(,{_NAME})*",
        "--licenses": rf"{_NAME}(,{_NAME})*",
        "--nice": "[0-9]{1,9}",
    },
)
"""No rule asks for memory or cores: `--mem` and `--mincpus` allocate, so they would refuse nodes that fit."""


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
    log_folder: LogFolder = ""

    forwarding: ClassVar[ForwardTable] = _FORWARDING

    @property
    def own_features(self) -> str:
        return self.constraint

    def mistakes(self) -> Iterator[tuple[str, str]]:
        for key, example in (("conf", "/etc/slurm/slurm.conf"), ("log_folder", "/var/log/pilots")):
            path = getattr(self, key)
            if path and not path.startswith("/"):
                yield key, f"{key} must be an absolute path, such as {example}"
        for key in self.__struct_fields__:
            if not getattr(self, key).isprintable():
                yield key, f"{key} has characters that cannot be shown"
