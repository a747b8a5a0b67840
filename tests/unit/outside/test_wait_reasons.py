"""The class of each native reason to wait: each class has an action, and an unknown reason has a class."""

from __future__ import annotations

import pytest

from pilotage.core.pilots.waits import RULES, WaitAction, WaitClass, deadline_of, has_deadline, worst
from pilotage.outside.batch.sge import wait_reasons as sge
from pilotage.outside.batch.slurm import wait_reasons as slurm
from pilotage.outside.batch.slurm.output import read_listing

C = WaitClass


def test_every_class_has_a_rule_and_every_cancel_a_deadline() -> None:
    assert set(RULES) == set(WaitClass)
    for wait, (action, _) in RULES.items():
        ends = deadline_of(wait, 100.0, 60.0) < float("inf")
        assert ends == (action is WaitAction.CANCEL) == has_deadline(wait)
    assert deadline_of(C.IMPOSSIBLE, 100.0, 60.0) == 160.0
    assert worst([C.TRANSIENT, C.ERROR, C.POLICY]) is C.ERROR
    assert worst([]) is None


@pytest.mark.parametrize(
    ("reason", "wait"),
    [
        ("Priority", C.TRANSIENT),
        ("BadConstraints", C.IMPOSSIBLE),
        ("PartitionTimeLimit", C.IMPOSSIBLE),
        ("QOSMaxJobsPerUserLimit", C.POLICY),
        ("QOSMaxWallDurationPerJobLimit", C.IMPOSSIBLE),
        ("AssocMaxCpuPerJobLimit", C.IMPOSSIBLE),
        ("QOSMinCpuNotSatisfied", C.IMPOSSIBLE),
        ("AssocGrpCpuLimit", C.POLICY),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", C.SITE),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            C.SITE,
        ),
        ("launch failed requeued held", C.ERROR),
        ("RaisedSignal:53(Real-time_signal_19)", C.ERROR),
        ("JobHeldAdmin", C.USER),
        ("SomethingNew", C.UNKNOWN),
    ],
)
def test_reasons_of_slurm(reason: str, wait: WaitClass) -> None:
    assert slurm.classify_reason(reason) is wait
    [task] = read_listing(f"=|7|0|PENDING||pilotage-a|{reason}\n")
    assert task.wait is wait
    [running] = read_listing(f"=|7|0|RUNNING|n1|pilotage-a|{reason}\n")
    assert running.wait is None


@pytest.mark.parametrize(
    ("letters", "reasons", "wait"),
    [
        ("qw", "", C.TRANSIENT),
        ("hqw", "", C.USER),
        ("Eqw", "error: can't chdir to /nosuch", C.ERROR),
        ("qw", 'cannot run in PE "smp" because it only offers 0 slots', C.TRANSIENT),
        ("qw", 'queue instance "old.q@vm" dropped because it is disabled', C.SITE),
        ("qw", 'cannot run at host "vm" because it offers only hf:mem=2G', C.IMPOSSIBLE),
        ("qw", "a dropped because it is disabled; b dropped because it is full", C.TRANSIENT),
        ("qw", "a sentence of a later version", C.UNKNOWN),
    ],
)
def test_words_of_grid_engine(letters: str, reasons: str, wait: WaitClass) -> None:
    assert sge.classify_wait(letters, reasons) is wait
