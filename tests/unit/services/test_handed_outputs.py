"""Outputs of jobs that are inputs of others: refused, waited for, kept and deleted, on both stores."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import OF_JOB, InputFile
from pilotage.store.tables import attempts, handed_outputs, listing
from pilotage.store.tables import retention as retention_rows
from tests.unit.services.bench import Bench
from tests.unit.services.test_dependent_jobs import FAILS, end, states
from tests.unit.services.test_retention import DAY, everything

WRITES: dict[str, Any] = {"outputs": ["result.json"]}


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
        rows = [listing.job_facts(bench.connection, job) for job in (parent, other)]
        return [
            row.id
            for row in rows
            if row and attempts.result_of(bench.connection, row.id, row.finished_epoch)  # type: ignore[arg-type]
        ]

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
