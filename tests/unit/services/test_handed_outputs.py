"""Outputs of jobs that are inputs of others: refused, waited for, kept and deleted, on both stores."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.ids import JobId
from pilotage.core.jobs.description import OF_JOB, InputFile
from pilotage.store.admin.integrity_check import find_damage
from pilotage.store.admin.revisions import head_revision
from pilotage.store.tables import attempts, handed_outputs, listing
from pilotage.store.tables import retention as retention_rows
from tests.unit.services.bench import Bench
from tests.unit.services.settling import with_fan_out
from tests.unit.services.test_dependent_jobs import FAILS, end, settle, states
from tests.unit.services.test_retention import DAY, everything

WRITES: dict[str, Any] = {"outputs": ["result.json"]}


def has_result(bench: Bench, job: int) -> bool:
    row = listing.job_facts(bench.connection, job)
    return (
        row is not None and attempts.result_of(bench.connection, JobId(job), row.finished_epoch) is not None
    )


def of(job: int, name: str = "result.json") -> tuple[InputFile, ...]:
    return (InputFile("in.json", OF_JOB, f"{job}/{name}"),)


def test_a_child_waits_for_the_output_and_is_given_its_place(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(input_sandbox=of(parent))
    assert states(bench, child) == ["Blocked"]
    pilot = bench.pilot()
    end(bench, pilot, parent, **WRITES)
    assert states(bench, child) == ["Waiting"]
    [offer] = pilot.take()
    [item] = offer.payload.inputs
    assert (item.name, item.mode, item.source) == ("in.json", "job", f"{parent}/result.json")
    bench.check()


def test_a_parent_without_the_file_skips_the_child_with_the_reason(bench: Bench) -> None:
    [parent] = bench.submit()
    children = bench.submit(2, input_sandbox=of(parent))
    [later] = bench.submit(after_ok=(str(children[0]),))
    pilot = bench.pilot()
    end(bench, pilot, parent, outputs=["other.json"])
    assert states(bench, *children, later) == ["Skipped", "Skipped", "Skipped"]
    assert bench.job(children[0])["reason"] == f"job {parent} has no output result.json"
    with pytest.raises(InvalidInput, match=f"job {parent} has no output result.json"):
        bench.submit(input_sandbox=of(parent))
    bench.check()


def test_a_failed_parent_skips_the_child_and_its_next_try_revives_it(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(input_sandbox=of(parent))
    pilot = bench.pilot()
    end(bench, pilot, parent, **FAILS)
    assert states(bench, child) == ["Skipped"]
    bench.act("reschedule", parent)
    assert states(bench, child) == ["Blocked"]
    end(bench, pilot, parent, **WRITES)
    assert states(bench, child) == ["Waiting"]


def test_a_failed_parents_output_is_taken_if_it_only_has_to_end(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(input_sandbox=of(parent), after=(str(parent),))
    pilot = bench.pilot()
    end(bench, pilot, parent, **FAILS, **WRITES)
    assert states(bench, child) == ["Waiting"]


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_the_next_try_of_a_parent_without_the_file_revives_the_child(
    bench: Bench, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`behind`: further dependants of the parent, more than a transaction processes."""
    with_fan_out(monkeypatch, 2)
    [parent] = bench.submit()
    children = [bench.submit(input_sandbox=of(parent), after=(str(parent),))[0] for _ in range(1 + behind)]
    [later] = bench.submit(after_ok=(str(children[0]),))
    pilot = bench.pilot()
    for days in (0, 200):
        end(bench, pilot, parent, **FAILS, outputs=["other.json"])
        assert set(states(bench, *children, later)) == {"Skipped"}
        assert bench.job(children[-1])["reason"] == f"job {parent} has no output result.json"
        bench.now += days * DAY
        everything(bench)
        bench.act("reschedule", parent)
        assert set(states(bench, *children, later)) == {"Blocked"}
    end(bench, pilot, parent, **FAILS, **WRITES)
    assert set(states(bench, *children)) == {"Waiting"}
    bench.check()


def test_a_parent_that_ends_again_before_the_conditions_are_decided(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(input_sandbox=of(parent), after=(str(parent),))
    pilot = bench.pilot()
    end(bench, pilot, parent, **FAILS)
    assert states(bench, child) == ["Skipped"]
    bench.act("reschedule", parent)
    end(bench, pilot, parent, **FAILS, **WRITES)
    assert states(bench, child) == ["Waiting"]


def test_a_done_parent_without_the_file_is_redone_in_its_place(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(input_sandbox=of(parent))
    [later] = bench.submit(after_ok=(str(child),))
    [mourner] = bench.submit(after_fail=(str(parent),))
    pilot = bench.pilot()
    for days in (0, 200):
        end(bench, pilot, parent, outputs=["other.json"])
        assert states(bench, parent, child, later, mourner) == ["Done", "Skipped", "Skipped", "Skipped"]
        bench.now += days * DAY
        everything(bench)
        [(_, refusal)] = bench.act("reschedule", parent).refused
        assert refusal == f"the job is Done: `pilotage reschedule --done {parent}` runs it again in its place"
        assert bench.act("redo", parent).done == [parent]
        assert states(bench, child, later, mourner) == ["Blocked", "Blocked", "Blocked"]
        bench.check()
    end(bench, pilot, parent, **WRITES)
    assert states(bench, child, later, mourner) == ["Waiting", "Blocked", "Skipped"]
    end(bench, pilot, child)
    assert bench.act("redo", parent).done == [parent]
    assert states(bench, parent, child, later) == ["Waiting", "Done", "Waiting"], (
        "what has run stays as it is"
    )
    bench.check()
    assert find_damage(bench.connection, head_revision()) == []


def test_a_parent_whose_outputs_the_retention_deleted_is_redone(bench: Bench) -> None:
    parent, other = bench.submit(2)
    pilot = bench.pilot()
    [child] = bench.submit(input_sandbox=of(parent), after_ok=(str(other),))
    offers = {offer.job: offer for offer in (pilot.take()[0], pilot.take()[0])}
    pilot.finish(offers[parent], **WRITES)
    settle(bench)
    bench.now += 200 * DAY
    everything(bench)
    bench.act("kill", other)
    settle(bench)
    everything(bench)
    assert not has_result(bench, parent)
    bench.act("reschedule", other)
    assert states(bench, child) == ["Blocked"]
    end(bench, pilot, other)
    assert states(bench, child) == ["Skipped"]
    assert bench.job(child)["reason"] == f"job {parent} has no output result.json: it has none any more"
    with pytest.raises(InvalidInput, match="it has none any more") as refused:
        bench.submit(input_sandbox=of(parent))
    assert f"`pilotage reschedule --done {parent}`" in refused.value.hint
    bench.act("redo", parent)
    assert states(bench, child) == ["Blocked"]
    end(bench, pilot, parent, **WRITES)
    assert states(bench, child) == ["Waiting"]
    bench.check()


def test_a_child_that_waits_for_another_parent_reads_the_output_of_the_last_try(bench: Bench) -> None:
    [parent] = bench.submit()
    [other] = bench.submit(hold=True)
    [child] = bench.submit(input_sandbox=of(parent), after=(str(parent), str(other)))
    pilot = bench.pilot()
    end(bench, pilot, parent, **FAILS)
    bench.act("reschedule", parent)
    bench.act("kill", other)
    assert states(bench, child) == ["Blocked"]
    end(bench, pilot, parent, **FAILS, **WRITES)
    assert states(bench, child) == ["Waiting"]


def test_the_retention_does_not_keep_outputs_for_skipped_readers(bench: Bench) -> None:
    parent, other = bench.submit(2)
    pilot = bench.pilot()
    [child] = bench.submit(input_sandbox=of(parent), after_ok=(str(other),))
    offers = {offer.job: offer for offer in (pilot.take()[0], pilot.take()[0])}
    pilot.finish(offers[parent], **WRITES)
    settle(bench)
    bench.now += 200 * DAY
    everything(bench)
    assert has_result(bench, parent)
    bench.act("kill", other)
    assert states(bench, child) == ["Skipped"]
    everything(bench)
    assert not has_result(bench, parent)
    assert handed_outputs.of_submissions(bench.connection, range(10))
    bench.act("reschedule", other)
    assert states(bench, child) == ["Blocked"]


def test_standard_output_is_an_output_too(bench: Bench) -> None:
    [parent] = bench.submit(std_output="log-%j.txt")
    [child] = bench.submit(input_sandbox=of(parent, f"log-{parent}.txt"))
    end(bench, bench.pilot(), parent, stdout="NDI=")
    assert states(bench, child) == ["Waiting"]


def test_unknown_foreign_and_deleted_jobs_are_refused(bench: Bench) -> None:
    [foreign] = bench.submit(owner="bob")
    [deleted] = bench.submit()
    bench.act("delete", deleted)
    for job, words in ((foreign, "has no job"), (99, "has no job 99"), (deleted, "is deleted")):
        with pytest.raises(InvalidInput, match=words):
            bench.submit(input_sandbox=of(job))
    assert handed_outputs.of_submissions(bench.connection, range(10)) == []


def test_the_retention_keeps_outputs_until_their_readers_have_ended(bench: Bench) -> None:
    parent, other = bench.submit(2)
    pilot = bench.pilot()
    for _ in range(2):
        [offer] = pilot.take()
        pilot.finish(offer, **WRITES)
    [first] = bench.submit(input_sandbox=of(parent), hold=True)
    [second] = bench.submit(input_sandbox=of(parent), hold=True)

    def results() -> list[int]:
        return [job for job in (parent, other) if has_result(bench, job)]

    bench.now += 200 * DAY
    everything(bench)
    assert results() == [parent]
    bench.act("kill", first)
    everything(bench)
    assert results() == [parent]
    bench.act("kill", second)
    everything(bench)
    assert results() == []
    removed = [removal.names for removal in retention_rows.pending_removals(bench.connection, 0, 100)]
    assert [[other, 1]] in removed
    assert [[parent, 1]] in removed
    assert handed_outputs.of_submissions(bench.connection, range(10)) == []
