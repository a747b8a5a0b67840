"""For each check a wrong state: how it is put into a lively database, and what goes on after the repair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pilotage.core.datasets.facts import FileEntry, Replica
from pilotage.services.catalogue.locations import elements_of_moved, move_elements
from pilotage.services.catalogue.outputs import WrittenFile, close_output, register_outputs
from pilotage.services.jobs import dependants
from pilotage.store.cluster.limit_leases import key_to_text
from pilotage.store.tables import chains, replicas
from tests.contract.lively_database import Lively

Put = Callable[[Lively], None]


def _nothing(lively: Lively) -> None:
    """No work follows from the repair."""


class WrongState(NamedTuple):
    put: Put
    """Puts the state in by SQL."""
    then: Put = _nothing
    """After the repair: work goes on."""
    leaves: frozenset[str] = frozenset()
    """Further checks that tell the state too."""
    only: str = ""
    """The store that can have it."""


def sql(*texts: str) -> Put:
    def put(lively: Lively) -> None:
        for text in texts:
            lively.sql(text)

    return put


def of(name: str, *texts: str) -> Put:
    """SQL with the id of an attribute of the database as its only value. A job that waits or runs is a new one."""

    def put(lively: Lively) -> None:
        if name == "waiting":
            [lively.waiting] = lively.bench.submit()
        if name == "running":
            lively.bench.submit()
            lively.running = lively.bench.pilot().hold().job
        for text in texts:
            lively.sql(text, *[getattr(lively, name)] * text.count("?"))

    return put


def ends_as(name: str, state: str) -> Put:
    """The job is in a state, and its history ends with it."""

    def then(lively: Lively) -> None:
        job = getattr(lively, name)
        assert lively.bench.state(job) == state
        assert lively.bench.history(job)[-1].new == state

    return then


def _is_done(lively: Lively) -> None:
    lively.work()
    assert lively.bench.state(lively.waiting) == "Done"


# --- chains


def _new_chain(lively: Lively) -> tuple[int, int]:
    [parent] = lively.bench.submit()
    [child] = lively.bench.submit(after_ok=(str(parent),))
    lively.settle()
    return parent, child


def _missed_end(lively: Lively) -> None:
    lively.parent, lively.child = _new_chain(lively)
    lively.bench.act("kill", lively.parent)
    lively.sql("DELETE FROM parent_changes")


def _skipped_again(lively: Lively) -> None:
    lively.settle()
    assert lively.bench.state(lively.child) == "Skipped"


def _of_all(lively: Lively) -> int:
    """A job that waits for a whole submission; returns the first job of that."""
    [first, *_] = lively.bench.submit(2)
    lively.parents = lively.value("SELECT submission_id FROM jobs WHERE id = ?", first)
    [lively.of_all] = lively.bench.submit(after_ok=(f"s:{lively.parents}",))
    lively.settle()
    return first


def _missed_end_of_all(lively: Lively) -> None:
    lively.bench.act("kill", _of_all(lively))
    lively.sql("DELETE FROM parent_changes")


def _all_skipped(lively: Lively) -> None:
    lively.settle()
    assert lively.bench.state(lively.of_all) == "Skipped"


def _gone_parent(lively: Lively) -> None:
    lively.parent, lively.child = _new_chain(lively)
    lively.sql("UPDATE conditions SET parent_job = 99999999 WHERE parent_job = ?", lively.parent)


def _new_limit(lively: Lively) -> None:
    [first, *_] = lively.bench.submit(3, parallel=1)
    lively.limited = lively.value("SELECT submission_id FROM jobs WHERE id = ?", first)
    lively.settle()
    lively.sql("UPDATE parallel_limits SET running = 2, settled = 1 WHERE submission_id = ?", lively.limited)


def _one_more_waits(lively: Lively) -> None:
    lively.settle()
    sql_ = "SELECT count(*) FROM jobs WHERE submission_id = ? AND state = 'Waiting'"
    assert lively.value(sql_, lively.limited) == 2


# --- requests


def _ended_early(lively: Lively) -> None:
    """A request says that it is completed, with elements that were free at the wrong moment."""
    lively.sql("UPDATE request_steps SET closed = 1, ended = 1 WHERE request_id = ?", lively.growing)
    lively.sql("UPDATE requests SET state = 'completed' WHERE id = ?", lively.growing)
    lively.sql(
        "UPDATE datasets SET open = 0 WHERE id IN (SELECT output_dataset FROM request_steps WHERE request_id = ?)",
        lively.growing,
    )


def _all_is_done(lively: Lively) -> None:
    lively.bench.later(301)
    lively.queue.expire()
    assert lively.run_request(lively.growing) == "completed"
    states = lively.queue.sql("SELECT DISTINCT state FROM elements WHERE request_id = ?", lively.growing)
    assert states == [("Done",)]
    lively.queue.check_every_event_once(lively.growing)


def _not_merged(lively: Lively) -> None:
    """The output of a completed request has a block that no merge has seen."""
    unmerged = lively.value(
        "SELECT output_dataset FROM request_steps WHERE request_id = ? AND position = 0", lively.completed
    )
    written = WrittenFile(unmerged, FileEntry("late.root", 500, 7), Replica("here", "/here"))

    def late(tx: object) -> None:
        register_outputs(tx, 77, [written], lively.bench.now)  # type: ignore[arg-type]
        assert close_output(tx, unmerged, lively.bench.now)  # type: ignore[arg-type]

    lively.bench.do(late)


def _merged(lively: Lively) -> None:
    assert lively.run_request(lively.completed) == "completed"
    merges = "SELECT sum(events) FROM elements WHERE request_id = ? AND step = 1 AND state = 'Done'"
    assert lively.value(merges, lively.completed) == 7


_DONE: Final = "(SELECT min(id) FROM elements WHERE state = 'Done' AND step = 0)"
_COUNT: Final = (
    "UPDATE elements SET jobs = (SELECT count(*) FROM element_jobs j WHERE j.element_id = elements.id), jobs_done ="
    " (SELECT count(*) FROM element_jobs j WHERE j.element_id = elements.id AND j.state = 'done'), events_done ="
    " (SELECT sum(j.events) FROM element_jobs j WHERE j.element_id = elements.id AND j.state = 'done') WHERE id = "
)


def _is_completed(lively: Lively) -> None:
    assert lively.run_request(lively.completed) == "completed"


def _named_as_failed(lively: Lively) -> None:
    assert lively.value("SELECT count(*) FROM elements WHERE state = 'Failed' AND unsplit = 1") == 1


def _unheard_end(lively: Lively) -> None:
    """A pool job of a request ends, and the roll-up is not told."""
    queue = lively.queue
    again = queue.request(queue.step(), inputs=[lively.value("SELECT id FROM datasets WHERE name = 'raw'")])
    queue.intake(again)
    agent = queue.agent("further")
    agent.sync(want=100, slots={"here": 10**6, "there": 10**6})
    agent.split()
    lively.requests.release()
    lively.bench.act("kill", *lively.requests.pool_jobs(again))
    lively.sql("DELETE FROM job_outcomes")


def _rolled_up(lively: Lively) -> None:
    lively.requests.roll_up()
    ended = "SELECT count(*) FROM element_jobs e JOIN jobs j ON j.id = e.job_id WHERE e.state = 'released'"
    assert lively.value(f"{ended} AND j.ended IS NOT NULL") == 0


def _moved(lively: Lively) -> None:
    """As the duty of locations does."""
    bench = lively.bench
    moved = replicas.moved_blocks(bench.connection, 100)
    bench.do(lambda tx: move_elements(tx, elements_of_moved(tx.connection, moved), bench.now))
    lively.sql("DELETE FROM moved_blocks")
    assert lively.value("SELECT min(location_set) FROM elements WHERE state = 'Available'") > 0


def _too_many_places(lively: Lively) -> None:
    key = key_to_text(lively.bench.pool.policy.matching_limits()[0].key)
    lively.sql("DELETE FROM limit_states")
    lively.sql(
        "INSERT INTO limit_states (limit_key, running, free, starts, since) VALUES (?, 9, 99, 0, 1)", key
    )


def _left_place(lively: Lively) -> None:
    key = key_to_text(lively.bench.pool.policy.matching_limits()[0].key)
    lively.sql("INSERT INTO limit_states (limit_key, free, starts, since) VALUES (?, 8, 0, 1)", key)
    lively.sql("INSERT INTO limit_blocks (limit_key, server, free) VALUES (?, 'gone', 1)", key)


def _place_is_back(lively: Lively) -> None:
    assert lively.value("SELECT free FROM limit_states") == 9


def _twice(table: str, instant: str) -> Put:
    def put(lively: Lively) -> None:
        described = lively.bench.connection.execute(f"SELECT * FROM {table} LIMIT 0").description
        names = [column[0] for column in described or ()]
        values = ", ".join(f"{name} + 1" if name == instant else name for name in names)
        first = f"(SELECT max(id) FROM {table})"
        lively.sql(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} WHERE id = {first}"
        )

    return put


def _cooled_off(lively: Lively) -> None:
    lively.bench.now += 1
    assert lively.requests.make_again() > 0


_IDLE: Final = "(SELECT max(id) FROM pilots WHERE jobs = '[]' AND state = 'Running')"
_OLD: Final = (
    "INSERT INTO history SELECT id, submission_id, queue_id, 'Done', 1, NULL, 1, 1, 0, 0, 1, '', '', 0, 1, 2,"
    " last_event, owner, '', '', '', '', 1, 1, '', '', '', 0 FROM jobs WHERE id = ?"
)
_CHAIN: Final = "(SELECT submission_id FROM jobs WHERE id = ?)"


def new_chain(*texts: str, of_child: bool = True) -> Put:
    def put(lively: Lively) -> None:
        lively.parent, lively.child = _new_chain(lively)
        for text in texts:
            lively.sql(text, lively.child if of_child else lively.parent)

    return put


def _undecided(lively: Lively) -> None:
    """The gate is decided, and its job has not followed."""
    lively.parent, lively.child = _new_chain(lively)
    lively.bench.act("kill", lively.parent)
    changes = chains.next_changes(lively.bench.connection, 10)
    lively.bench.do(lambda tx: dependants.decide_changes(tx, changes))
    lively.sql("UPDATE gates SET settled = 1")


def _marked_early(lively: Lively) -> None:
    _of_all(lively)
    lively.sql("UPDATE jobs SET has_dependants = 0 WHERE submission_id = ?", lively.parents)


def _told(lively: Lively) -> None:
    """The end of the parent is told."""
    lively.settle()
    lively.bench.act("kill", lively.parent)
    _skipped_again(lively)


STATES: Final[Mapping[str, WrongState]] = {
    # by hand
    "jobs-without-submission": WrongState(of("done", "UPDATE jobs SET submission_id = 7000 WHERE id = ?")),
    "jobs-missing": WrongState(of("done", "DELETE FROM jobs WHERE id = ?")),
    "chunks-without-rows": WrongState(
        of("limited", "UPDATE submission_chunks SET made = made - 1 WHERE submission_id = ?")
    ),
    "two-results": WrongState(
        of(
            "done",
            "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome)"
            " VALUES (?, 0, 1, 1, 1, 2, 'applied')",
        )
    ),
    "requests-without-input": WrongState(sql("UPDATE datasets SET removed = 1 WHERE name = 'growing'")),
    "instance": WrongState(sql("DELETE FROM policies")),
    "history-twice": WrongState(_twice("history", "ended"), only="postgresql"),
    "events-twice": WrongState(_twice("events", "at"), only="postgresql"),
    # jobs
    "rescheduled-for-ever": WrongState(of("rescheduled", "UPDATE jobs SET not_before = NULL WHERE id = ?")),
    "chunks-and-count": WrongState(of("limited", "UPDATE submissions SET count = count + 5 WHERE id = ?")),
    "staged-with-jobs": WrongState(of("limited", "UPDATE submissions SET state = 'staged' WHERE id = ?")),
    "rows-of-deleted-submissions": WrongState(
        sql("INSERT INTO mails (submission_id, event, recipient) VALUES (98765, 'end', 'a@example.org')")
    ),
    "stalled-though-heard": WrongState(
        of(
            "stalled",
            "UPDATE pilots SET lease_until = lease_until + 1000 WHERE id = (SELECT pilot_id FROM jobs WHERE id = ?)",
        ),
        ends_as("stalled", "Running"),
    ),
    "pilots-ended-or-not": WrongState(sql(f"UPDATE pilots SET ended = 5 WHERE id = {_IDLE}")),
    "pilots-without-lease": WrongState(sql(f"UPDATE pilots SET lease_until = NULL WHERE id = {_IDLE}")),
    "jobs-also-in-history": WrongState(of("done", _OLD), leaves=frozenset({"submission-counters"})),
    "jobs-without-queue": WrongState(
        of("waiting", "UPDATE jobs SET queue_id = 99999 WHERE id = ?"), _is_done
    ),
    "jobs-without-last-event": WrongState(
        of("waiting", "UPDATE jobs SET last_event = (SELECT max(id) + 1000 FROM events) WHERE id = ?"),
        _is_done,
    ),
    "jobs-of-another-event": WrongState(
        of(
            "waiting",
            "UPDATE jobs SET last_event = (SELECT min(id) FROM events WHERE new = 'Done') WHERE id = ?",
        ),
        _is_done,
    ),
    "held-by-nobody": WrongState(
        of("running", "UPDATE jobs SET pilot_id = NULL WHERE id = ?"), ends_as("running", "Waiting")
    ),
    "free-with-pilot": WrongState(of("waiting", "UPDATE jobs SET pilot_id = 1 WHERE id = ?"), _is_done),
    "held-by-ended-pilot": WrongState(
        of("running", "UPDATE jobs SET pilot_id = 88888 WHERE id = ?"), ends_as("running", "Waiting")
    ),
    "held-but-not-listed": WrongState(
        of("running", "UPDATE pilots SET jobs = '[]' WHERE id = (SELECT pilot_id FROM jobs WHERE id = ?)"),
        ends_as("running", "Running"),
    ),
    "held-without-attempt": WrongState(
        of("running", "DELETE FROM attempts WHERE job_id = ?"), ends_as("running", "Waiting")
    ),
    "attempts-of-nobody": WrongState(
        of("done", "UPDATE attempts SET ended = NULL, outcome = NULL WHERE job_id = ?")
    ),
    "epochs-behind": WrongState(
        of(
            "waiting",
            "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended) VALUES (?, 1, 1, 1, 1, 2)",
        ),
        _is_done,
    ),
    "owner-or-final-state": WrongState(of("done", "UPDATE jobs SET owner = 'bob' WHERE id = ?")),
    "ended-or-not": WrongState(of("done", "UPDATE jobs SET ended = NULL WHERE id = ?")),
    "blocked-by-nothing": WrongState(
        new_chain(
            f"DELETE FROM conditions WHERE submission_id = {_CHAIN}",
            f"DELETE FROM gates WHERE submission_id = {_CHAIN}",
        ),
        ends_as("child", "Waiting"),
    ),
    # chains
    "parents-unmarked": WrongState(
        new_chain("UPDATE jobs SET has_dependants = 0 WHERE id = ?", of_child=False), _told
    ),
    "parents-marked-early": WrongState(_marked_early, lambda lively: lively.settle()),
    "conditions-on-gone-parents": WrongState(_gone_parent, _skipped_again),
    "conditions-behind-jobs": WrongState(_missed_end, _skipped_again),
    "conditions-behind-submissions": WrongState(_missed_end_of_all, _all_skipped),
    "gates-behind": WrongState(
        new_chain(f"UPDATE gates SET outlook = 'never', settled = 1 WHERE submission_id = {_CHAIN}"),
        _told,
        leaves=frozenset({"gates-unmoved"}),
    ),
    "gates-unmoved": WrongState(_undecided, _skipped_again),
    "limits-unmoved": WrongState(_new_limit, _one_more_waits),
    # data sets
    "block-contents": WrongState(
        sql("UPDATE blocks SET files = files + 1 WHERE id = (SELECT min(id) FROM blocks WHERE open = 0)"),
        leaves=frozenset({"dataset-contents"}),
    ),
    "blocks-closed-or-not": WrongState(
        sql("UPDATE blocks SET closed_number = NULL WHERE id = (SELECT min(id) FROM blocks WHERE open = 0)")
    ),
    "dataset-contents": WrongState(
        sql("UPDATE datasets SET closed_events = closed_events + 1 WHERE name = 'raw'")
    ),
    "block-locations": WrongState(
        sql("DELETE FROM replicas WHERE site = 'there' AND block_id = (SELECT min(id) FROM blocks)"),
        lambda lively: lively.sql("DELETE FROM moved_blocks"),
    ),
    "element-locations": WrongState(
        sql("UPDATE elements SET location_set = 0 WHERE state = 'Available'"), _moved
    ),
    "made-jobs-without-sites": WrongState(
        sql("UPDATE element_jobs SET location_set = 0 WHERE state = 'made'")
    ),
    "rows-of-deleted-blocks": WrongState(
        sql("INSERT INTO replicas (block_id, site, prefix, known) VALUES (77777, 'here', '/x', 1)")
    ),
    # requests
    "element-counts": WrongState(sql(f"UPDATE elements SET jobs_done = jobs_done + 1 WHERE id = {_DONE}")),
    "elements-of-no-agent": WrongState(sql("UPDATE elements SET agent_id = 4444 WHERE state = 'Acquired'")),
    "cooloff-without-end": WrongState(
        sql("UPDATE element_jobs SET state = 'cooloff', not_before = NULL WHERE state = 'made'"), _cooled_off
    ),
    "requests-ended-early": WrongState(_ended_early, _all_is_done),
    "outputs-not-taken": WrongState(_not_merged, _merged),
    "outputs-left-open": WrongState(
        of(
            "completed",
            "UPDATE datasets SET open = 1 WHERE id IN (SELECT output_dataset FROM request_steps WHERE request_id = ?)",
        )
    ),
    "elements-not-ended": WrongState(
        sql(f"UPDATE elements SET state = 'Running' WHERE id = {_DONE}"),
        _is_completed,
        leaves=frozenset({"requests-ended-early"}),
    ),
    "elements-without-events": WrongState(
        sql(
            f"DELETE FROM element_jobs WHERE id = (SELECT min(id) FROM element_jobs WHERE element_id = {_DONE})",
            f"{_COUNT}{_DONE}",
        ),
        _named_as_failed,
    ),
    "released-without-job": WrongState(_unheard_end, _rolled_up),
    # servers and counters
    "duties-of-gone-servers": WrongState(
        sql("INSERT INTO duties (name, holder) VALUES ('a duty', 'gone')"), only="postgresql"
    ),
    "places-of-gone-servers": WrongState(_left_place, _place_is_back, only="postgresql"),
    "limit-places": WrongState(_too_many_places, only="postgresql"),
    "submission-counters": WrongState(
        sql(
            "INSERT INTO count_changes (month, old, new, jobs) SELECT 0, 'Matched', 'Running',"
            " '{\"' || CAST(min(id) AS text) || '\": 1}' FROM submissions"
        )
    ),
    "owner-counters": WrongState(
        sql(
            "INSERT INTO owner_counts (month, owner, grp, state, jobs) VALUES (0, 'nobody', 'none', 'Done', 1)"
        )
    ),
    "sequences": WrongState(
        sql("INSERT INTO removals (id, kind, names) VALUES (5000, 'jobs', '[]')"), only="postgresql"
    ),
}
