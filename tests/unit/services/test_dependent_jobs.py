"""Jobs that depend on others: Blocked, released, Skipped and revived, on both stores."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.slice_pace import SlicePace
from pilotage.services.jobs import dependants
from pilotage.services.submission.job_creation import JobCreator
from tests.unit.services.bench import MAX_RESCHEDULES, RETRY_DELAY, Bench, Paper
from tests.unit.services.settling import advance, with_fan_out


def settle(bench: Bench, most: int = 100) -> None:
    """What the duty does until nothing is left."""
    for _ in range(1000):
        if bench.do(lambda tx: advance(bench.pool, tx, most, bench.now)):
            return
    raise AssertionError("the dependants never settle")


def end(bench: Bench, pilot: Paper, job: int, **content: Any) -> None:
    """Let the pilot end this job, which is the only one that waits."""
    [offer] = pilot.take()
    assert offer.job == job
    assert pilot.finish(offer, **content) == "accepted"
    settle(bench)


FAILS = {"exit_code": 3, "failure": "payload"}


def states(bench: Bench, *jobs: int) -> list[str]:
    settle(bench)
    return [bench.state(job) for job in jobs]


def test_a_job_waits_only_when_its_parent_is_done(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    assert states(bench, parent, child) == ["Waiting", "Blocked"]
    pilot = bench.pilot()
    end(bench, pilot, parent)
    assert states(bench, child) == ["Waiting"]
    end(bench, pilot, child)
    assert [event.kind for event in bench.history(child)][:2] == ["submitted", "unblocked"]
    assert bench.connection.execute("SELECT count(*) FROM gates").fetchone()[0] == 0
    assert bench.connection.execute("SELECT count(*) FROM conditions").fetchone()[0] == 0


@pytest.mark.parametrize(
    ("field", "succeeds", "expected"),
    [
        ("after", True, "Waiting"),
        ("after", False, "Waiting"),
        ("after_ok", True, "Waiting"),
        ("after_ok", False, "Skipped"),
        ("after_fail", True, "Skipped"),
        ("after_fail", False, "Waiting"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_each_condition(
    bench: Bench, field: str, succeeds: bool, expected: str, whole: bool, early: bool
) -> None:
    """`whole`: the parent is a submission. `early`: it has ended before the child is submitted."""
    [parent] = bench.submit()
    pilot = bench.pilot()
    named: dict[str, Any] = {field: (f"s:{bench.job(parent)['submission_id']}" if whole else str(parent),)}
    content: dict[str, Any] = {} if succeeds else FAILS
    if early:
        end(bench, pilot, parent, **content)
        [child] = bench.submit(**named)
    else:
        [child] = bench.submit(**named)
        assert states(bench, child) == ["Blocked"]
        end(bench, pilot, parent, **content)
    assert states(bench, child) == [expected]
    if expected == "Skipped":
        reason = str(bench.job(child)["reason"])
        assert reason.startswith(
            f"job {parent} failed (exit 3)" if not succeeds else f"{'submission' if whole else 'job'}"
        )


def test_a_parent_that_is_tried_again_has_not_failed(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    pilot = bench.pilot()
    for _ in range(MAX_RESCHEDULES):
        end(bench, pilot, parent, exit_code=1, failure="node")
        assert states(bench, parent, child) == ["Rescheduled", "Blocked"]
        bench.later(RETRY_DELAY)
    end(bench, pilot, parent)
    assert states(bench, child) == ["Waiting"]


def test_a_rescheduled_parent_revives_all_that_was_skipped_because_of_it(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    [grandchild] = bench.submit(after_ok=(str(child),))
    bench.act("kill", parent)
    assert states(bench, child, grandchild) == ["Skipped", "Skipped"]
    assert bench.job(child)["reason"] == f"job {parent} was killed"
    assert bench.job(grandchild)["reason"] == f"job {child} was skipped"
    bench.later(10.0)
    bench.tidy()
    assert bench.act("reschedule", child).refused
    bench.act("reschedule", parent)
    assert states(bench, parent, child, grandchild) == ["Waiting", "Blocked", "Blocked"]
    pilot = bench.pilot()
    for job in (parent, child, grandchild):
        end(bench, pilot, job)
    assert bench.moves(grandchild) == [
        "Blocked",
        "Skipped",
        "Blocked",
        "Waiting",
        "Matched",
        "Running",
        "Done",
    ]


def test_a_job_stays_skipped_while_another_parent_has_failed(bench: Bench) -> None:
    parents = bench.submit(2)
    [child] = bench.submit(after_ok=tuple(map(str, parents)))
    bench.act("kill", *parents)
    assert states(bench, child) == ["Skipped"]
    bench.act("reschedule", parents[0])
    assert states(bench, child) == ["Skipped"]
    bench.act("reschedule", parents[1])
    assert states(bench, child) == ["Blocked"]


def test_a_killed_child_returns_to_its_gate(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    assert bench.act("kill", child).done == [child]
    bench.act("reschedule", child)
    assert states(bench, child) == ["Blocked"]
    bench.act("kill", child)
    bench.act("kill", parent)
    settle(bench)
    bench.act("reschedule", child)
    assert states(bench, child) == ["Skipped"]
    bench.act("delete", child)
    bench.act("reschedule", parent)
    assert states(bench, child) == ["Deleted"]


def test_a_submission_waits_for_all_jobs_of_another(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fan_out(monkeypatch, 2)
    parents = bench.submit(5)
    children = bench.submit(7, after_ok=("s:1",))
    pilot = bench.pilot()
    for number, _ in enumerate(parents, 1):
        [offer] = pilot.take()
        pilot.finish(offer)
        settle(bench, most=2)
        expected = "Waiting" if number == len(parents) else "Blocked"
        assert states(bench, *children) == [expected] * len(children)


def test_one_failure_skips_all_dependants_of_a_submission(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fan_out(monkeypatch, 2)
    parents = bench.submit(5)
    children = bench.submit(7, after_ok=("s:1",))
    settle(bench, most=2)
    bench.act("kill", parents[2])
    settle(bench, most=2)
    assert states(bench, *children) == ["Skipped"] * len(children)
    assert bench.job(children[0])["reason"] == f"job {parents[2]} was killed, a job of submission 1"
    bench.act("reschedule", parents[2])
    settle(bench, most=3)
    assert states(bench, *children) == ["Blocked"] * len(children)


def test_job_k_waits_for_job_k(bench: Bench) -> None:
    parents = bench.submit(3)
    children = bench.submit(3, after_each=("s:1",))
    bench.act("kill", parents[1])
    assert states(bench, *children) == ["Blocked", "Skipped", "Blocked"]
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.finish(offer)
    place = parents.index(offer.job)
    assert states(bench, children[place]) == ["Waiting"]
    with pytest.raises(InvalidInput, match="submission 1 has 3 jobs, and this submission has 4"):
        bench.submit(4, after_each=("s:1",))


@pytest.mark.parametrize("archived", [False, True])
def test_parents_that_ended_before_their_dependants_came_revive_them(bench: Bench, archived: bool) -> None:
    """Such parents have no marks."""
    parent, other = bench.submit(2)
    bench.act("kill", parent)
    assert bench.tidy(hot=-1.0 if archived else 1.0) == archived
    children = [bench.submit(after_ok=(name,))[0] for name in ("s:1", str(parent))]
    assert states(bench, *children) == ["Skipped", "Skipped"]
    bench.act("reschedule", parent)
    assert states(bench, *children) == ["Blocked", "Blocked"]
    bench.act("hold", other)
    pilot = bench.pilot()
    end(bench, pilot, parent)
    assert states(bench, *children) == ["Blocked", "Waiting"]
    end(bench, pilot, children[1])
    bench.act("release", other)
    end(bench, pilot, other)
    assert states(bench, *children) == ["Waiting", "Done"]


def test_a_parent_that_has_ended_again_before_its_return_is_decided_on_counts(bench: Bench) -> None:
    [parent] = bench.submit()
    bench.act("kill", parent)
    [child] = bench.submit(after_ok=("s:1",))
    assert states(bench, child) == ["Skipped"]
    bench.act("reschedule", parent)
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.finish(offer)
    assert states(bench, child) == ["Waiting"]


def test_job_k_waits_for_job_k_that_is_not_created_yet(bench: Bench) -> None:
    given = bench.accept(bench.prepared(4))
    creator = JobCreator(given.id, pace=SlicePace(1.0, None, first=2, least=2, most=2))
    assert not bench.do(lambda tx: creator.step(bench.pool, tx))
    children = bench.submit(4, after_each=("s:1",))
    assert states(bench, *children) == ["Blocked"] * 4
    bench.make(given)
    bench.act("kill", given.first_job + 3)
    bench.act("kill", given.first_job)
    assert states(bench, *children) == ["Skipped", "Blocked", "Blocked", "Skipped"]
    pilot = bench.pilot()
    for _ in range(2):
        [offer] = pilot.take()
        assert pilot.finish(offer) == "accepted"
    assert states(bench, *children) == ["Skipped", "Waiting", "Waiting", "Skipped"]


@pytest.mark.parametrize("named", ["99", "s:99", "2", "s:2", "3"])
@pytest.mark.parametrize("field", ["after", "after_ok", "after_fail"])
def test_unknown_foreign_and_deleted_jobs_are_refused(bench: Bench, named: str, field: str) -> None:
    bench.submit()
    bench.submit(owner="bob")
    [deleted] = bench.submit()
    bench.act("kill", deleted)
    bench.act("delete", deleted)
    more: dict[str, Any] = {field: (named,)}
    with pytest.raises(InvalidInput, match=r"has no|is deleted"):
        bench.submit(1, **more)
    assert bench.connection.execute("SELECT count(*) FROM submissions").fetchone()[0] == 3


def test_a_crash_at_any_point_loses_no_release(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.finish(offer)
    bench.crash()
    bench.crash(lambda tx: advance(bench.pool, tx, 100, bench.now))
    assert states(bench, child) == ["Waiting"]


def test_a_finish_without_dependants_runs_no_further_statement(bench: Bench) -> None:
    bench.submit(2)
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.finish(offer)
    assert bench.connection.execute("SELECT count(*) FROM parent_changes").fetchone()[0] == 0


def test_a_skipped_job_keeps_its_gate_until_its_submission_is_forgotten(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    bench.act("kill", parent)
    assert states(bench, child) == ["Skipped"]
    assert bench.connection.execute("SELECT outlook FROM gates").fetchall() == [("never",)]


def test_the_jobs_that_a_kill_would_skip_are_counted(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    children = bench.submit(3, after_ok=("s:1",))
    bench.submit(3, after_each=("s:3",))
    [cleaner] = bench.submit(after_fail=("s:3",))
    settle(bench)
    assert dependants.count_needing(bench.connection, [parent]) == 7
    assert dependants.count_needing(bench.connection, [child, cleaner]) == 0
    assert dependants.count_needing(bench.connection, [children[0]]) == 1
