"""Each option of `[ces.NAME.sge]` reaches the batch job of a real Grid Engine."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.runner import LocalRunner
from pilotage.outside.batch.sge.adapter import SgeBatch
from pilotage.outside.batch.submission import ListedTask, NativeState
from tests import sge
from tests.deadlines import PATIENCE
from tests.instance import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]

STAMP = "pilotage-options"


@pytest.fixture(scope="module")
def cell() -> Iterator[sge.GridEngine]:
    with sge.grid_engine({"all.q": {}, "long.q": {"h_rt": "INFINITY", "complex_values": "si00=600"}}) as made:
        made.change("-Aprj", "name physics\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n")
        yield made


def batch_of(cell: sge.GridEngine, options: SgeOptions) -> SgeBatch:
    return SgeBatch(LocalRunner(cell.environment), getpass.getuser(), options, cell.cell)


@pytest.mark.parametrize(
    ("options", "shape", "shown"),
    [
        (SgeOptions(queue="long.q"), Shape(1), "hard_queue_list: long.q"),
        (SgeOptions(project="physics"), Shape(1), "project: physics"),
        (SgeOptions(account="night"), Shape(1), "account: night"),
        (SgeOptions(resources="si00=500"), Shape(1), "hard resource_list: si00=500"),
        (SgeOptions(), Shape(1, 100, 60.0), "hard resource_list: h_rt=60,mem_free=100M"),
        (SgeOptions(memory_complex="h_vmem"), Shape(1, 100), "hard resource_list: h_vmem=100M"),
        (SgeOptions(memory_complex=""), Shape(1, 100, 5.0), "hard resource_list: h_rt=5"),
        (SgeOptions(pe=sge.PE), Shape(3), "parallel environment: smp range: 3"),
    ],
)
def test_an_option_reaches_the_batch_job(
    cell: sge.GridEngine, options: SgeOptions, shape: Shape, shown: str
) -> None:
    batch = batch_of(cell, options)
    receipt = batch.submit(BatchSubmission(STAMP, 1, shape, "#!/bin/sh\n"))
    try:
        lines = [" ".join(line.split()) for line in cell.run("qstat", "-j", receipt.array).splitlines()]
        assert shown in lines, lines
    finally:
        batch.cancel([STAMP])


@pytest.mark.parametrize(
    ("options", "shape", "reason"),
    [
        (SgeOptions(queue="nosuch.q"), Shape(1), "unknown queue"),
        (SgeOptions(project="nosuch"), Shape(1), "does not exist"),
        (SgeOptions(resources="si00=700"), Shape(1), "si00"),
        (SgeOptions(resources="nosuch=1"), Shape(1), "unknown resource"),
        (SgeOptions(queue="all.q"), Shape(1, 0, 1801.0), "all.q"),
        (SgeOptions(), Shape(1, 10**7), "mem_total"),
        (SgeOptions(pe=sge.PE), Shape(33), "PE"),
        (SgeOptions(queue="long.q", resources="si00=600", pe=sge.PE), Shape(16, 100, 1801.0), ""),
    ],
)
def test_grid_engine_is_asked_whether_it_accepts_the_options(
    cell: sge.GridEngine, options: SgeOptions, shape: Shape, reason: str
) -> None:
    refusal = batch_of(cell, options).check(shape)
    assert reason in refusal
    assert bool(refusal) is bool(reason)


@pytest.mark.parametrize("consumable", ["YES", "NO"])
def test_a_slot_asks_for_its_part_of_memory_that_slots_consume(cell: sge.GridEngine, consumable: str) -> None:
    table = cell.run("qconf", "-sc").splitlines()
    lines = [line for line in table if not line.startswith("h_vmem ")]
    cell.change("-Mc", "\n".join([*lines, f"h_vmem h_vmem MEMORY <= YES {consumable} 0 0", ""]))
    batch = batch_of(cell, SgeOptions(pe=sge.PE, memory_complex="h_vmem"))
    receipt = batch.submit(BatchSubmission(STAMP, 1, Shape(4, 1000), "#!/bin/sh\n"))
    try:
        size = "250M" if consumable == "YES" else "1000M"
        assert f"h_vmem={size}" in cell.run("qstat", "-j", receipt.array)
    finally:
        batch.cancel([STAMP])


def test_a_pilot_that_no_queue_fits_has_the_schedulers_reason(cell: sge.GridEngine) -> None:
    batch = batch_of(cell, SgeOptions(resources="si00=700"))
    batch.submit(BatchSubmission(STAMP, 2, Shape(1), "#!/bin/sh\n"))
    try:
        batch.release([STAMP])

        def reasons() -> set[str]:
            tasks = batch.list_pilots([STAMP]).tasks
            assert {task.state for task in tasks} == {NativeState.WAITING}
            return {task.reason for task in tasks if task.reason}

        until(lambda: any("si00" in reason for reason in reasons()), what="the scheduler's reason")
    finally:
        batch.cancel([STAMP])


def test_a_pilot_in_an_error_state_waits_with_its_error(cell: sge.GridEngine) -> None:
    """Exit code 100 of the prolog is an error of the job. An administrator clears it: `qmod -cj`."""
    prolog = cell.folder / "prolog"
    prolog.write_text("#!/bin/sh\nexit 100\n")
    prolog.chmod(0o755)
    cell.replace_queue("all.q", prolog=str(prolog))
    batch = batch_of(cell, SgeOptions(queue="all.q"))
    try:
        batch.submit(BatchSubmission(STAMP, 1, Shape(1), "#!/bin/sh\n"))
        batch.release([STAMP])

        def errors() -> list[ListedTask]:
            tasks = batch.list_pilots([STAMP]).tasks
            return [task for task in tasks if task.native == "Eqw" and task.reason]

        [task] = until(errors, what="the error")
        assert task.state is NativeState.WAITING
    finally:
        batch.cancel([STAMP])
        cell.replace_queue("all.q", prolog="NONE")
        cell.run("qmod", "-c", "*")


def test_a_pilot_that_an_administrator_starts_again_hides_no_other(cell: sge.GridEngine) -> None:
    """Grid Engine prints the reason of its wait as invalid XML. The listing has all pilots meanwhile."""
    batch = batch_of(cell, SgeOptions(queue="all.q"))
    script = "#!/bin/sh\ntrap 'exit 0' USR2\nsleep 600 & wait\n"
    receipt = batch.submit(BatchSubmission(STAMP, 2, Shape(1), script))
    try:
        batch.release([STAMP])
        until(
            lambda: {task.native for task in batch.list_pilots([STAMP]).tasks} == {"r"}, what="running pilots"
        )
        cell.run("qmod", "-f", "-rj", receipt.batch_ids[0])

        def runs_again() -> bool:
            listing = batch.list_pilots([STAMP])
            assert listing.complete, listing.failure
            assert {task.index for task in listing.tasks} == {0, 1}
            return "Rr" in {task.native for task in listing.tasks}

        until(runs_again, what="the second start")
        assert set(batch.properties([STAMP])) == {(STAMP, 0), (STAMP, 1)}
    finally:
        batch.cancel([STAMP])


def test_hosts_of_a_queue_that_is_too_short_do_not_count(cell: sge.GridEngine) -> None:
    shape = Shape(1, 0, 3600.0)
    batch = SgeBatch(LocalRunner(cell.environment), getpass.getuser(), SgeOptions(), cell.cell, shape=shape)
    assert batch.information().attributes["GlueCEName"] == "long.q"
    assert batch_of(cell, SgeOptions(queue="long.q")).check(shape) == ""
    assert batch_of(cell, SgeOptions(queue="all.q")).check(shape), "Grid Engine says the same"


def test_a_host_group_names_hosts_of_its_queue_alone(cell: sge.GridEngine) -> None:
    information = batch_of(cell, SgeOptions(queue="long.q@@allhosts", resources="si00=500")).information()
    assert information.attributes["GlueCEName"] == "long.q"
    assert information.attributes["GlueCEInfoTotalCPUs"] == 16
    assert "GlueCEPolicyMaxWallClockTime" not in information.attributes
    with pytest.raises(Unreachable, match='"@nosuch" does not exist'):
        batch_of(cell, SgeOptions(queue="long.q@@nosuch")).information()
    with pytest.raises(Unreachable, match="no queue of the CE offers 'si00=500' on any host"):
        batch_of(cell, SgeOptions(queue="all.q", resources="si00=500")).information()
